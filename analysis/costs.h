// Durations of calls by function, in memory that does not grow with their number.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// Counts of durations in steps of at most 1/32 of their value.
class DurationHistogram {
  public:
    void add(std::uint64_t ns) {
        if (count_ == 0) {
            counts_.resize(kBuckets);
            least_ = ns;
        }
        ++counts_[std::min(bucket_of(ns), kBuckets - 1)];
        ++count_;
        least_ = std::min(least_, ns);
        largest_ = std::max(largest_, ns);
    }
    std::uint64_t count() const { return count_; }
    std::uint64_t least() const { return least_; }  // 0: there are none
    std::uint64_t largest() const { return largest_; }
    // The smallest duration that at least this share of the calls did not exceed, exact to 1/32; share in (0,
    // 1].
    std::uint64_t quantile(double share) const;

  private:
    static constexpr unsigned kSteps = 32;  // per power of two
    static constexpr std::size_t kBuckets = 60 * kSteps;
    static std::size_t bucket_of(std::uint64_t ns) {
        if (ns < kSteps) return static_cast<std::size_t>(ns);
        const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 6;  // leaves 6 bits: 32 … 63
        return static_cast<std::size_t>(shift) * kSteps + static_cast<std::size_t>(ns >> shift);
    }
    static std::uint64_t end_of(std::size_t bucket);  // largest duration in it

    std::vector<std::uint64_t> counts_;
    std::uint64_t count_ = 0;
    std::uint64_t least_ = 0;
    std::uint64_t largest_ = 0;
};

// The program's own calls, most expensive (in sum) first, then those without any measured duration. The
// shim's own questions are not counted.
std::vector<report::FunctionCost> costs_of(const Trace& trace);

}  // namespace fragscope::analysis
