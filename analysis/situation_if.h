// The situation of a request that nobody made, at a moment that somebody names: what would have come of it.
//
// There is no failure, so nothing is bounded by one. What the driver said counts if it was asked at this very
// moment (driver_word.h); otherwise there are the records' own bounds: an upper end by what they say is
// taken, and a lower one by what the process went on to take before it gave anything back. A request of the
// same kind that was refused in the same state, and no larger, decides as the failure itself would.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/situation.h"

namespace fragscope::analysis {

struct AskedRequest {
    ProcessIndex process;
    std::size_t moment = 0;                // the state before the event of this index
    std::optional<std::uint64_t> time_ns;  // CLOCK_MONOTONIC, where a time was asked for
    wire::Kind kind = wire::Kind::kLinearAcquired;
    std::uint64_t bytes = 0;
    std::int16_t device = kNoDevice;
    ObjectId pool;  // kPoolAcquired only; 0: the device's own
};

// The moments of one walk are cheap in ascending order.
Situation situation_if(const Trace& trace, const AskedRequest& asked, SessionWalk& walk);

}  // namespace fragscope::analysis
