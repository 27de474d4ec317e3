// Sets and maps of extents: half-open ranges [begin, end) of one 64-bit address or offset space.
//
// ExtentMap keeps disjoint extents, each with its value. ExtentSet keeps a union of ranges, joined where they
// touch, with its sum and largest extent known at all times. Neither knows what an address means.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/extent_chunks.h"

namespace fragscope::analysis {

// The range of `bytes` at `begin`, cut at the end of the address space.
constexpr Range range_of(std::uint64_t begin, std::uint64_t bytes) {
    const std::uint64_t end = begin + bytes;
    return {begin, end < begin ? UINT64_MAX : end};
}

// Without the call that std::has_single_bit is where the processor may lack the instruction.
constexpr bool is_power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }
// The whole units in the value. Almost all units are powers of two, and a division is dear.
constexpr std::uint64_t units_in(std::uint64_t value, std::uint64_t unit) {
    return is_power_of_two(unit) ? value >> std::countr_zero(unit) : value / unit;
}
// Up or down to a multiple of `unit` (0 and 1: unchanged); up saturates at the last multiple that fits.
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) {
    if (unit <= 1) return value;
    return is_power_of_two(unit) ? value & ~(unit - 1) : value - value % unit;
}
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    const std::uint64_t down = round_down(value, unit);
    if (down == value) return value;
    return down > UINT64_MAX - unit ? down : down + unit;
}

// What of a free extent a request may use: it starts at a multiple of `alignment` and takes whole multiples
// of `granularity`.
constexpr std::uint64_t usable(const Range& free, std::uint64_t alignment, std::uint64_t granularity) {
    const std::uint64_t begin = round_up(free.begin, alignment);
    if (begin < free.begin || begin >= free.end) return 0;
    return round_down(free.end - begin, granularity);
}

// What removing a range did to one extent.
enum class Cut { kFreed, kShrunk, kSplit };

template <typename Value>
class ExtentMap {
  public:
    struct Extent {
        Range range;
        Value value;
    };
    struct Removed {
        Range removed;   // the part that is gone
        Range original;  // as it was
        Cut cut;
        Value value;
    };

    // False, and nothing changed, if the range is empty or overlaps an extent that is there.
    bool insert(const Range& range, Value value) {
        if (range.begin >= range.end) return false;
        const Place behind = extents_.after(range.begin);
        if (behind != extents_.begin() && extents_.range(extents_.previous(behind)).end > range.begin)
            return false;
        if (behind != extents_.end() && extents_.range(behind).begin < range.end) return false;
        extents_.insert(behind, range, std::move(value));
        total_ += range.size();
        return true;
    }

    // Removes the extent that begins exactly there.
    std::optional<Extent> take(std::uint64_t begin) {
        const Place at = place_at(begin);
        if (at == extents_.end()) return std::nullopt;
        Extent out{extents_.range(at), std::move(extents_.value(at))};
        total_ -= out.range.size();
        extents_.erase(at);
        return out;
    }

    // Removes every byte of the range, in address order, and tells `visit(const Removed&)` of each extent
    // that lost some; the rest of what it touches stays. A rest keeps its value, so a value that speaks of
    // the extent's beginning has to be mended by the caller (see Removed::original).
    template <typename Visit>
    void cut(const Range& range, Visit&& visit) {
        if (range.begin >= range.end) return;
        Place at = first_overlap(range);
        while (at != extents_.end()) {
            const Range original = extents_.range(at);
            if (original.begin >= range.end) return;
            const Range gone{std::max(original.begin, range.begin), std::min(original.end, range.end)};
            const bool left = gone.begin > original.begin;
            const bool right = gone.end < original.end;
            const Removed part{gone, original,
                               left && right   ? Cut::kSplit
                               : left || right ? Cut::kShrunk
                                               : Cut::kFreed,
                               extents_.value(at)};
            total_ -= gone.size();
            if (left) {
                extents_.reshape(at, {original.begin, gone.begin});
                at = extents_.next(at);
                if (right) extents_.insert(at, {gone.end, original.end}, part.value);
            } else if (right) {
                extents_.reshape(at, {gone.end, original.end});
            } else {
                at = extents_.erase(at);
            }
            visit(part);
            if (right) return;
        }
    }
    std::vector<Removed> cut(const Range& range) {
        std::vector<Removed> out;
        cut(range, [&](const Removed& part) { out.push_back(part); });
        return out;
    }

    // The extent that holds this address.
    std::optional<Extent> find(std::uint64_t address) const {
        const Place behind = extents_.after(address);
        if (behind == extents_.begin()) return std::nullopt;
        const Place at = extents_.previous(behind);
        if (extents_.range(at).end <= address) return std::nullopt;
        return Extent{extents_.range(at), extents_.value(at)};
    }
    // Of the extent that begins exactly there, or nothing.
    Value* value_at(std::uint64_t begin) {
        const Place at = place_at(begin);
        return at == extents_.end() ? nullptr : &extents_.value(at);
    }

    bool overlaps(const Range& range) const {
        if (range.begin >= range.end) return false;
        const Place at = first_overlap(range);
        return at != extents_.end() && extents_.range(at).begin < range.end;
    }

    // In address order: `visit(range, value)` for every extent, or for every extent that overlaps.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (Place at = extents_.begin(); at != extents_.end(); at = extents_.next(at)) {
            visit(extents_.range(at), extents_.value(at));
        }
    }
    template <typename Visit>
    void for_each_in(const Range& range, Visit&& visit) const {
        for (Place at = first_overlap(range); at != extents_.end() && extents_.range(at).begin < range.end;
             at = extents_.next(at)) {
            visit(extents_.range(at), extents_.value(at));
        }
    }
    // The free ranges between extents inside `window`.
    template <typename Visit>
    void for_each_gap(const Range& window, Visit&& visit) const {
        std::uint64_t at = window.begin;
        for_each_in(window, [&](const Range& range, const Value&) {
            if (range.begin > at) visit(Range{at, range.begin});
            at = std::max(at, range.end);
        });
        if (at < window.end) visit(Range{at, window.end});
    }

    // Removes every extent that overlaps the range as a whole; `visit(range, value)` of each.
    template <typename Visit>
    void drop_overlapping(const Range& range, Visit&& visit) {
        if (range.begin >= range.end) return;
        for (Place at = first_overlap(range); at != extents_.end() && extents_.range(at).begin < range.end;) {
            at = drop(at, visit);
        }
    }
    // Removes every extent of which the condition holds; `visit(range, value)` of each.
    template <typename Condition, typename Visit>
    void drop_if(Condition&& condition, Visit&& visit) {
        for (Place at = extents_.begin(); at != extents_.end();) {
            at = condition(extents_.range(at), extents_.value(at)) ? drop(at, visit) : extents_.next(at);
        }
    }

    std::uint64_t total() const { return total_; }  // bytes in extents
    std::size_t size() const { return extents_.size(); }
    bool empty() const { return extents_.empty(); }

  private:
    using Chunks = ExtentChunks<Value>;
    using Place = typename Chunks::Place;

    Place place_at(std::uint64_t begin) const {
        const Place behind = extents_.after(begin);
        if (behind == extents_.begin()) return extents_.end();
        const Place at = extents_.previous(behind);
        return extents_.range(at).begin == begin ? at : extents_.end();
    }
    // The first extent that ends behind the range's beginning.
    Place first_overlap(const Range& range) const {
        const Place behind = extents_.after(range.begin);
        if (behind == extents_.begin()) return behind;
        const Place before = extents_.previous(behind);
        return extents_.range(before).end > range.begin ? before : behind;
    }
    template <typename Visit>
    Place drop(const Place& at, Visit& visit) {
        const Range range = extents_.range(at);
        visit(range, extents_.value(at));
        total_ -= range.size();
        return extents_.erase(at);
    }

    Chunks extents_;
    std::uint64_t total_ = 0;
};

class ExtentSet {
  public:
    // Adds every byte of the range; bytes already there stay.
    void add(const Range& range) {
        if (range.begin >= range.end) return;
        Place at = ranges_.after(range.begin);
        Range joined = range;
        if (at != ranges_.begin()) {
            const Place before = ranges_.previous(at);
            const Range old = ranges_.range(before);
            if (old.end >= range.end) return;
            if (old.end >= range.begin) {
                joined.begin = old.begin;
                at = before;
            }
        }
        if (at == ranges_.end() || ranges_.range(at).begin > joined.end) {
            ranges_.insert(at, joined, {});
            sum_ += joined.size();
            return;
        }
        // The first one touched takes in all the others.
        const Range first = ranges_.range(at);
        joined.end = std::max(joined.end, first.end);
        sum_ -= first.size();
        Place other = ranges_.next(at);
        while (other != ranges_.end() && ranges_.range(other).begin <= joined.end) {
            const Range old = ranges_.range(other);
            joined.end = std::max(joined.end, old.end);
            sum_ -= old.size();
            other = ranges_.erase(other);
        }
        sum_ += joined.size();
        // Removing may have moved it.
        at = ranges_.after(first.begin);
        ranges_.reshape(ranges_.previous(at), joined);
    }

    // Removes every byte of the range. Returns how many were there.
    std::uint64_t remove(const Range& range) {
        if (range.begin >= range.end) return 0;
        const std::uint64_t before = sum_;
        Place at = ranges_.after(range.begin);
        if (at != ranges_.begin()) {
            const Place in_front = ranges_.previous(at);
            if (ranges_.range(in_front).end > range.begin) at = in_front;
        }
        while (at != ranges_.end()) {
            const Range old = ranges_.range(at);
            if (old.begin >= range.end) break;
            sum_ -= std::min(old.end, range.end) - std::max(old.begin, range.begin);
            const bool right = old.end > range.end;
            if (old.begin < range.begin) {
                ranges_.reshape(at, {old.begin, range.begin});
                at = ranges_.next(at);
                if (right) ranges_.insert(at, {range.end, old.end}, {});
            } else if (right) {
                ranges_.reshape(at, {range.end, old.end});
            } else {
                at = ranges_.erase(at);
            }
            if (right) break;
        }
        return before - sum_;
    }

    // Bytes of the set inside the range.
    std::uint64_t overlap(const Range& range) const {
        std::uint64_t bytes = 0;
        Place at = ranges_.after(range.begin);
        if (at != ranges_.begin()) at = ranges_.previous(at);
        for (; at != ranges_.end(); at = ranges_.next(at)) {
            const Range held = ranges_.range(at);
            if (held.begin >= range.end) break;
            const std::uint64_t begin = std::max(held.begin, range.begin);
            const std::uint64_t end = std::min(held.end, range.end);
            if (begin < end) bytes += end - begin;
        }
        return bytes;
    }

    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (Place at = ranges_.begin(); at != ranges_.end(); at = ranges_.next(at)) visit(ranges_.range(at));
    }

    // In address order: `visit(part)` for what of the set lies inside the range.
    template <typename Visit>
    void for_each_in(const Range& range, Visit&& visit) const {
        Place at = ranges_.after(range.begin);
        if (at != ranges_.begin()) at = ranges_.previous(at);
        for (; at != ranges_.end(); at = ranges_.next(at)) {
            const Range held = ranges_.range(at);
            if (held.begin >= range.end) return;
            const Range part{std::max(held.begin, range.begin), std::min(held.end, range.end)};
            if (part.begin < part.end) visit(part);
        }
    }

    std::uint64_t sum() const { return sum_; }
    std::uint64_t largest() const { return ranges_.largest(); }
    std::size_t size() const { return ranges_.size(); }
    bool empty() const { return ranges_.empty(); }

  private:
    struct Nothing {};
    using Place = ExtentChunks<Nothing>::Place;

    ExtentChunks<Nothing> ranges_;
    std::uint64_t sum_ = 0;
};

// A set that is empty most of the time, and takes no more room than a pointer then.
class RareExtentSet {
  public:
    RareExtentSet() = default;
    RareExtentSet(const RareExtentSet& other)
        : set_(other.set_ == nullptr ? nullptr : std::make_unique<ExtentSet>(*other.set_)) {}
    RareExtentSet& operator=(const RareExtentSet& other) {
        if (this != &other) *this = RareExtentSet(other);
        return *this;
    }
    RareExtentSet(RareExtentSet&&) noexcept = default;
    RareExtentSet& operator=(RareExtentSet&&) noexcept = default;
    ~RareExtentSet() = default;

    void add(const Range& range) {
        if (set_ == nullptr) set_ = std::make_unique<ExtentSet>();
        set_->add(range);
    }
    template <typename Visit>
    void for_each(Visit&& visit) const {
        if (set_ != nullptr) set_->for_each(visit);
    }
    std::uint64_t sum() const { return set_ == nullptr ? 0 : set_->sum(); }

  private:
    std::unique_ptr<ExtentSet> set_;
};

}  // namespace fragscope::analysis
