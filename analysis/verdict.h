// The cause of a failure: the smallest set of removals that lets the request fit for certain. Where the
// intervals straddle the answer, the verdict is "undetermined" and names the measurement that would decide. A
// failure alone is never called fragmentation.
//
// Rules that are choices, in one place:
// - What the program can undo itself (cached, pending, gaps, limits, waste) is named before other processes
// and before
//   memory that no record explains, when either would have been enough.
// - Internal waste is named only when it is at least a quarter of what the process is charged
// (kMaterialWaste): on a device
//   that is full of live data some rounding is always enough for one more small request.
// - A pool at its maximum size is `other_constraint` "pool_maximum"; `commitment_limit` is kept for limits of
// what the host
//   or the operating system will back.
// - "driver_refused" needs free bytes of at least four times the need, and a sixteenth of the device beyond
// it.
#pragma once

#include <string>
#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

inline constexpr std::uint64_t kMaterialWaste = 4;  // waste * this >= charged
inline constexpr std::uint64_t kRefusedTimes = 4;   // free >= needed * this
inline constexpr std::uint64_t kRefusedShare = 16;  // free - needed >= capacity / this

report::Verdict verdict_of(const Situation& situation, const std::vector<Counterfactual>& rows);

}  // namespace fragscope::analysis
