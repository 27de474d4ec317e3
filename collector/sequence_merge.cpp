#include "collector/sequence_merge.h"

#include <algorithm>

namespace fragscope::collector {

void SequenceMerge::sort_new() {
    const auto earlier = [](const Held& a, const Held& b) { return a.record.sequence < b.record.sequence; };
    const auto fresh = held_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    if (fresh == held_.end()) return;
    // Stable: further records of one call have its number and follow it.
    if (!std::is_sorted(fresh, held_.end(), earlier)) std::stable_sort(fresh, held_.end(), earlier);
    // Only what stands above the lowest new number has to move.
    const auto from = std::upper_bound(held_.begin(), fresh, *fresh, earlier);
    if (from != fresh) std::inplace_merge(from, fresh, held_.end(), earlier);
    sorted_ = held_.size();
}

}  // namespace fragscope::collector
