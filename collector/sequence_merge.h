// Puts the records of one process's threads into the order of their sequence numbers, without knowing all of
// them.
//
// Numbers are taken before a release's call and after all else, records come when the call is over, and a
// full ring loses some; so a number may come late or never. Contiguous numbers leave at once. What stands
// behind a gap waits until it has been held for kHoldNs or too many records are held, then the gap is passed
// over. A number that comes after that still leaves, late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/wire.h"

namespace fragscope::collector {

inline constexpr std::uint64_t kHoldNs = 250'000'000;
inline constexpr std::size_t kMaxHeld = 1u << 17;  // 10 MiB of a process

class SequenceMerge {
  public:
    struct Held {
        wire::Record record;
        std::int32_t thread;
        std::uint64_t since_ns;  // when it came
    };

    void add(const wire::Record& record, std::int32_t thread, std::uint64_t now_ns) {
        held_.push_back({record, thread, now_ns});
    }

    // Hands to `take(const Held&)` what may leave now; with `all`, everything.
    template <typename Take>
    void release(std::uint64_t now_ns, bool all, Take&& take) {
        if (held_.empty()) return;
        sort_new();
        std::size_t i = 0;
        for (; i < held_.size(); ++i) {
            const Held& held = held_[i];
            const std::uint64_t sequence = held.record.sequence;
            if (sequence >= next_) {
                const bool gap = sequence > next_;
                if (gap && !all && held_.size() - i <= kMaxHeld && now_ns - held.since_ns < kHoldNs) break;
                if (gap && first_gap_ == 0) first_gap_ = next_;
                next_ = sequence + 1;
            }
            take(held);
        }
        held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(i));
        sorted_ = held_.size();
    }

    // All numbers below it came and left. Conservative: a gap that was passed over counts for ever.
    std::uint64_t complete_below() const { return first_gap_ != 0 ? first_gap_ : next_; }
    // The lowest number above all that left.
    std::uint64_t next() const { return next_; }
    std::size_t held() const { return held_.size(); }

  private:
    void sort_new();

    std::vector<Held> held_;
    std::size_t sorted_ = 0;  // so many at the front are in order
    std::uint64_t next_ = 1;
    std::uint64_t first_gap_ = 0;  // 0: none
};

}  // namespace fragscope::collector
