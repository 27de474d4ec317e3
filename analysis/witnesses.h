// What succeeded between a failure, or another moment, and its process's next release, by mechanism. All of
// it fitted into the state of that moment: nothing was given back in between.
#pragma once

#include <cstdint>

#include "analysis/failures.h"
#include "analysis/request.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

struct Witnesses {
    std::uint64_t linear = 0;  // largest single one
    std::uint64_t handle = 0;
    std::uint64_t pool = 0;
    std::uint64_t reservation = 0;
    std::uint64_t block = 0;  // of a framework's allocator, before it took a block back
    std::uint64_t handles_together = 0;
    std::uint64_t pieces_together = 0;  // linear memory and handles
};

// `request`: of the failure, which is the driver's where a framework's allocator gave up because of one.
Witnesses witnesses_of(const Trace& trace, const Failure& failure, const RequestFacts& request);
// The same where nothing failed: from the event of this index on. A success of the very request is the best
// witness then.
Witnesses witnesses_from(const Trace& trace, ProcessIndex process, std::size_t first,
                         const RequestFacts& request);

}  // namespace fragscope::analysis
