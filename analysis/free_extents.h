// The free extents of one eligibility domain at one moment, as one kind of request may use them: their sum F,
// the largest L, and how many there are of which size.
//
// An extent counts with what an aligned request could take of it (`usable`), so F and L are of one alignment
// and one granularity. Which extents are free, and whether they belong to one domain, is the caller's
// business.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/extent_map.h"
#include "proto/measures.pb.h"

namespace fragscope::analysis {

class FreeExtents {
  public:
    static constexpr std::size_t kLargestKept = 8;

    struct Class {
        std::uint64_t count = 0;
        std::uint64_t sum = 0;  // bytes
        bool operator==(const Class&) const = default;
    };

    // What a request may start at and is made of multiples of, in bytes; 0 and 1: any.
    explicit FreeExtents(std::uint64_t alignment = 1, std::uint64_t granularity = 1)
        : alignment_(alignment), granularity_(granularity) {}

    void add(const Range& extent);

    std::uint64_t alignment() const { return alignment_; }
    std::uint64_t granularity() const { return granularity_; }
    std::uint64_t sum() const { return sum_; }  // F; saturates at 2^64 - 1
    std::uint64_t largest() const { return largest_.empty() ? 0 : largest_.front(); }  // L
    std::uint64_t count() const { return count_; }  // extents of which something is usable
    std::uint64_t unusable_count() const { return unusable_count_; }
    // Cut off by alignment and granularity, of all extents.
    std::uint64_t unusable_bytes() const { return unusable_bytes_; }
    // Usable bytes, the largest first; at most kLargestKept.
    const std::vector<std::uint64_t>& largest_first() const { return largest_; }
    // By power of two: extents with at least 2^i and less than 2^(i+1) usable bytes.
    const std::array<Class, 64>& classes() const { return classes_; }
    // 1 - L/F; nothing where F is zero.
    std::optional<double> external_ratio() const;

    void describe(report::Domain& out) const;

  private:
    std::uint64_t alignment_;
    std::uint64_t granularity_;
    std::uint64_t sum_ = 0;
    std::uint64_t count_ = 0;
    std::uint64_t unusable_count_ = 0;
    std::uint64_t unusable_bytes_ = 0;
    std::vector<std::uint64_t> largest_;
    std::array<Class, 64> classes_{};
};

}  // namespace fragscope::analysis
