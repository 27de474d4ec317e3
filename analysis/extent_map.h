// Sets and maps of extents: half-open ranges [begin, end) of one 64-bit address or offset space.
//
// ExtentMap keeps disjoint extents, each with its value. ExtentSet keeps a union of ranges, joined where they touch, with
// its sum and largest extent known at all times. Neither knows what an address means.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace fragscope::analysis {

struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;  // not included; >= begin
    std::uint64_t size() const { return end - begin; }
    bool operator==(const Range&) const = default;
};

// The range of `bytes` at `begin`, cut at the end of the address space.
constexpr Range range_of(std::uint64_t begin, std::uint64_t bytes) {
    const std::uint64_t end = begin + bytes;
    return {begin, end < begin ? UINT64_MAX : end};
}

// Up or down to a multiple of `unit` (0 and 1: unchanged); up saturates at the last multiple that fits.
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) {
    return unit <= 1 ? value : value - value % unit;
}
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    if (unit <= 1 || value % unit == 0) return value;
    const std::uint64_t down = value - value % unit;
    return down > UINT64_MAX - unit ? down : down + unit;
}

// What of a free extent a request may use: it starts at a multiple of `alignment` and takes whole multiples of
// `granularity`.
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
        if (range.begin >= range.end || overlaps(range)) return false;
        extents_.emplace(range.begin, Node{range.end, std::move(value)});
        total_ += range.size();
        return true;
    }

    // Removes the extent that begins exactly there.
    std::optional<Extent> take(std::uint64_t begin) {
        const auto found = extents_.find(begin);
        if (found == extents_.end()) return std::nullopt;
        Extent out{{begin, found->second.end}, std::move(found->second.value)};
        total_ -= out.range.size();
        extents_.erase(found);
        return out;
    }

    // Removes every byte of the range, in address order; the rest of what it touches stays. A rest keeps its value, so a
    // value that speaks of the extent's beginning has to be mended by the caller (see Removed::original).
    std::vector<Removed> cut(const Range& range) {
        std::vector<Removed> out;
        if (range.begin >= range.end) return out;
        auto at = first_overlap(range);
        while (at != extents_.end() && at->first < range.end) {
            const Range original{at->first, at->second.end};
            const Range gone{std::max(original.begin, range.begin), std::min(original.end, range.end)};
            const bool left = gone.begin > original.begin;
            const bool right = gone.end < original.end;
            out.push_back({gone, original, left && right ? Cut::kSplit : left || right ? Cut::kShrunk : Cut::kFreed,
                           at->second.value});
            total_ -= gone.size();
            if (right) extents_.emplace(gone.end, Node{original.end, at->second.value});
            if (left) {
                at->second.end = gone.begin;
                ++at;
                if (right) break;
            } else {
                at = extents_.erase(at);
                if (right) break;
            }
        }
        return out;
    }

    // The extent that holds this address.
    std::optional<Extent> find(std::uint64_t address) const {
        auto after = extents_.upper_bound(address);
        if (after == extents_.begin()) return std::nullopt;
        --after;
        if (after->second.end <= address) return std::nullopt;
        return Extent{{after->first, after->second.end}, after->second.value};
    }
    Value* value_at(std::uint64_t begin) {
        const auto found = extents_.find(begin);
        return found == extents_.end() ? nullptr : &found->second.value;
    }

    bool overlaps(const Range& range) const {
        const auto at = first_overlap(range);
        return range.begin < range.end && at != extents_.end() && at->first < range.end;
    }

    // In address order: `visit(range, value)` for every extent, or for every extent that overlaps.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (const auto& [begin, node] : extents_) visit(Range{begin, node.end}, node.value);
    }
    template <typename Visit>
    void for_each_in(const Range& range, Visit&& visit) const {
        for (auto at = first_overlap(range); at != extents_.end() && at->first < range.end; ++at) {
            visit(Range{at->first, at->second.end}, at->second.value);
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

    template <typename Condition>
    std::vector<Extent> take_if(Condition&& condition) {
        std::vector<Extent> out;
        for (auto at = extents_.begin(); at != extents_.end();) {
            const Range range{at->first, at->second.end};
            if (condition(range, at->second.value)) {
                total_ -= range.size();
                out.push_back({range, std::move(at->second.value)});
                at = extents_.erase(at);
            } else {
                ++at;
            }
        }
        return out;
    }

    std::uint64_t total() const { return total_; }  // bytes in extents
    std::size_t size() const { return extents_.size(); }
    bool empty() const { return extents_.empty(); }

  private:
    struct Node {
        std::uint64_t end;
        Value value;
    };
    using Map = std::map<std::uint64_t, Node>;

    template <typename Self>
    static auto first_overlap_of(Self& self, const Range& range) {
        auto at = self.extents_.upper_bound(range.begin);
        if (at != self.extents_.begin()) {
            auto before = std::prev(at);
            if (before->second.end > range.begin) return before;
        }
        return at;
    }
    auto first_overlap(const Range& range) { return first_overlap_of(*this, range); }
    auto first_overlap(const Range& range) const { return first_overlap_of(*this, range); }

    Map extents_;
    std::uint64_t total_ = 0;
};

class ExtentSet {
  public:
    // Adds every byte of the range; bytes already there stay.
    void add(const Range& range) {
        if (range.begin >= range.end) return;
        Range joined = range;
        auto at = ranges_.upper_bound(joined.begin);
        if (at != ranges_.begin() && std::prev(at)->second >= joined.begin) --at;
        while (at != ranges_.end() && at->first <= joined.end) {
            joined = {std::min(joined.begin, at->first), std::max(joined.end, at->second)};
            at = erase(at);
        }
        put(joined);
    }

    // Removes every byte of the range. Returns how many were there.
    std::uint64_t remove(const Range& range) {
        if (range.begin >= range.end) return 0;
        const std::uint64_t before = sum_;
        auto at = ranges_.upper_bound(range.begin);
        if (at != ranges_.begin() && std::prev(at)->second > range.begin) --at;
        while (at != ranges_.end() && at->first < range.end) {
            const Range old{at->first, at->second};
            at = erase(at);
            if (old.begin < range.begin) put({old.begin, range.begin});
            if (old.end > range.end) put({range.end, old.end});
        }
        return before - sum_;
    }

    // Bytes of the set inside the range.
    std::uint64_t overlap(const Range& range) const {
        std::uint64_t bytes = 0;
        auto at = ranges_.upper_bound(range.begin);
        if (at != ranges_.begin()) --at;
        for (; at != ranges_.end() && at->first < range.end; ++at) {
            const std::uint64_t begin = std::max(at->first, range.begin);
            const std::uint64_t end = std::min(at->second, range.end);
            if (begin < end) bytes += end - begin;
        }
        return bytes;
    }

    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (const auto& [begin, end] : ranges_) visit(Range{begin, end});
    }

    std::uint64_t sum() const { return sum_; }
    std::uint64_t largest() const { return sizes_.empty() ? 0 : *sizes_.rbegin(); }
    std::size_t size() const { return ranges_.size(); }
    bool empty() const { return ranges_.empty(); }

  private:
    using Map = std::map<std::uint64_t, std::uint64_t>;

    Map::iterator erase(Map::iterator at) {
        const std::uint64_t bytes = at->second - at->first;
        sum_ -= bytes;
        sizes_.erase(sizes_.find(bytes));
        return ranges_.erase(at);
    }
    void put(const Range& range) {
        ranges_.emplace(range.begin, range.end);
        sizes_.insert(range.size());
        sum_ += range.size();
    }

    Map ranges_;
    std::multiset<std::uint64_t> sizes_;
    std::uint64_t sum_ = 0;
};

}  // namespace fragscope::analysis
