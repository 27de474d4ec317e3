// What to say of a failed call from its record alone.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// What came of the call, by the driver's word; an allocator that gives up has none.
std::string result_of(const Event& event);
// Empty: the trace has no name for it.
std::string function_name(const Trace& trace, const Event& event);
// The granularity that the size of a physical allocation has to be a multiple of and is not; 0: no such thing
// is known.
std::uint64_t granularity_missed(const Trace& trace, ProcessIndex process, const Event& event);
// The verdict of a call that failed for another reason than memory.
report::Verdict not_about_memory(const Trace& trace, ProcessIndex process, const Event& event);

}  // namespace fragscope::analysis
