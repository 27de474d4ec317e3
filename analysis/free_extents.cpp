#include "analysis/free_extents.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace fragscope::analysis {
namespace {

void add_up(std::uint64_t& sum, std::uint64_t bytes) { sum += std::min(bytes, UINT64_MAX - sum); }

}  // namespace

void FreeExtents::add(const Range& extent) {
    if (extent.begin >= extent.end) return;
    const std::uint64_t bytes = usable(extent, alignment_, granularity_);
    add_up(unusable_bytes_, extent.size() - bytes);
    if (bytes == 0) {
        ++unusable_count_;
        return;
    }
    ++count_;
    add_up(sum_, bytes);
    Class& size_class = classes_.at(static_cast<std::size_t>(std::bit_width(bytes)) - 1);
    ++size_class.count;
    add_up(size_class.sum, bytes);
    if (largest_.size() == kLargestKept && bytes <= largest_.back()) return;
    largest_.insert(std::upper_bound(largest_.begin(), largest_.end(), bytes, std::greater<>()), bytes);
    if (largest_.size() > kLargestKept) largest_.pop_back();
}

std::optional<double> FreeExtents::external_ratio() const {
    if (sum_ == 0) return std::nullopt;
    return 1.0 - static_cast<double>(largest()) / static_cast<double>(sum_);
}

void FreeExtents::describe(report::Domain& out) const {
    out.set_free_extents(count_);
    out.set_alignment_bytes(std::max<std::uint64_t>(alignment_, 1));
    out.set_granularity_bytes(std::max<std::uint64_t>(granularity_, 1));
    if (const auto ratio = external_ratio())
        out.set_external_ratio(*ratio);
    else
        out.set_external_ratio_reason("nothing in it is usable and unused: a share of nothing is no number");
    for (std::size_t i = 0; i < classes_.size(); ++i) {
        if (classes_[i].count == 0) continue;
        report::ExtentClass& size_class = *out.add_extent_classes();
        size_class.set_at_least_bytes(std::uint64_t{1} << i);
        size_class.set_count(classes_[i].count);
        size_class.set_sum_bytes(classes_[i].sum);
    }
    for (const std::uint64_t bytes : largest_) out.add_largest_extents_bytes(bytes);
    out.set_unusable_extents(unusable_count_);
    out.set_unusable_bytes(unusable_bytes_);
}

}  // namespace fragscope::analysis
