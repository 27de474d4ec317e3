// What one process holds at a moment in a way that a program rarely means: memory that no address leads to,
// mappings that nobody may use, what is kept by others' oversight; and, at its end, what it never gave back.
//
// Each class is what the records show. Where a release may be among missing records, or be no record at all
// (a stream that went on), its bytes are bounded and the class says why.
#pragma once

#include <vector>

#include "analysis/callers.h"
#include "analysis/quantity.h"
#include "analysis/sharing.h"
#include "analysis/state.h"
#include "analysis/trace.h"
#include "proto/leaks.pb.h"

namespace fragscope::analysis {

struct LeakMoment {
    const Trace* trace = nullptr;
    ProcessIndex process;
    const ProcessState* state = nullptr;
    std::uint64_t sequence = 0;  // of the last event that counts
    std::uint64_t clock_ns = 0;  // the session's clock then; decides what others still hold
    bool at_the_end = false;     // nothing of the process comes after it
};

// Classes without anything in them are left out.
std::vector<report::LeakClass> leaks_at(const LeakMoment& moment, const Sharing& sharing,
                                        const StackWords& words);

}  // namespace fragscope::analysis
