// The cause of a failure: the smallest set of removals that lets the request fit for certain. Where the
// intervals straddle the answer, the verdict is "undetermined" and names the measurement that would decide. A
// failure alone is never called fragmentation.
//
// Rules that are choices, in one place:
//
// Of several sets of the same size the one is named that the program can undo with the least: what it has
// freed already (kept by a pool, waiting, still mapped by an importer, leaked) before what it would have to
// share (another owner's extents), before roundings, before moving live memory (gaps), before raising a
// limit; and all of that before other processes and memory that no record explains (kOrderOfNaming).
//
// Internal waste of what is held is named only when it is at least a quarter of what the process is charged
// (kMaterialWaste): on a device that is full of live data some rounding is always enough for one more small
// request. The rounding of the request itself is named whenever it decides.
//
// Of a combined set the member names the cause on which most of the margin rests; the others stand as shares.
//
// Where a set that may be enough comes before the one that is enough for certain, and is another cause, the
// verdict is undetermined: the amounts do not decide between the two.
//
// A limit is `commitment_limit` where all that is known is a sum that may be committed; otherwise
// `other_constraint` with its name. See LimitFacts.
//
// "driver_refused" needs that the driver itself refused. A recorded call shows that, and there it takes free
// bytes of at least four times the need, and a sixteenth of the device beyond it, so that no rounding can be
// the reason; of a scenario only its writer can say so.
//
// A launch that fails for want of its stacks is `stack_reservation`, not capacity: no call of the program
// asks for those bytes, and a setting decides how many they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

inline constexpr std::array kOrderOfNaming = {
    Blame::kStack,           Blame::kCached,
    Blame::kPending,         Blame::kGraphs,
    Blame::kFrameworkCached, Blame::kFrameworkWaiting,
    Blame::kImporter,        Blame::kLeaked,
    Blame::kOwners,          Blame::kStreams,
    Blame::kRounding,        Blame::kFrameworkGaps,
    Blame::kWaste,           Blame::kGaps,
    Blame::kLimit,
};
// Removals of a set; more of them at once are no explanation.
inline constexpr std::size_t kLargestSet = 6;
inline constexpr std::uint64_t kMaterialWaste = 4;  // waste * this >= charged
inline constexpr std::uint64_t kRefusedTimes = 4;   // free >= needed * this
inline constexpr std::uint64_t kRefusedShare = 16;  // free - needed >= capacity / this

report::Verdict verdict_of(const Situation& situation, const std::vector<Counterfactual>& rows);

}  // namespace fragscope::analysis
