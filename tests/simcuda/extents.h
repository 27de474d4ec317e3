// A set of free extents [address, address + size) from which ranges are taken best fit: the smallest extent that
// can hold the range, the lowest of equals. Used for the device address space and inside pools. Not locked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace fragscope::sim {

class FreeExtents {
  public:
    // Adds [base, base + size), which must not overlap a free extent, merging it with its neighbours. Nothing
    // is merged across an address in `barriers`, when given: those begin separate blocks.
    void add(std::uint64_t base, std::uint64_t size) {
        auto next = by_address_.lower_bound(base);
        if (next != by_address_.end() && base + size == next->first && !barriers_.contains(next->first)) {
            size += next->second;
            by_size_.erase({next->second, next->first});
            next = by_address_.erase(next);
        }
        if (next != by_address_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == base && !barriers_.contains(base)) {
                by_size_.erase({before->second, before->first});
                before->second += size;
                by_size_.insert({before->second, before->first});
                return;
            }
        }
        by_address_.emplace_hint(next, base, size);
        by_size_.insert({size, base});
    }

    // A range of `size` bytes at a multiple of `alignment` (a power of two).
    std::optional<std::uint64_t> take(std::uint64_t size, std::uint64_t alignment) {
        for (auto at = by_size_.lower_bound({size, 0}); at != by_size_.end(); ++at) {
            const std::uint64_t base = (at->second + alignment - 1) & ~(alignment - 1);
            const std::uint64_t skipped = base - at->second;
            if (base < at->second || skipped > at->first || at->first - skipped < size) continue;
            cut(at->second, at->first, base, size);
            return base;
        }
        return std::nullopt;
    }

    // Exactly [base, base + size); false when any of it is not free.
    bool take_at(std::uint64_t base, std::uint64_t size) {
        auto at = by_address_.upper_bound(base);
        if (at == by_address_.begin()) return false;
        --at;
        if (base - at->first > at->second || at->second - (base - at->first) < size) return false;
        cut(at->first, at->second, base, size);
        return true;
    }

    // Whether exactly [base, base + size) is free.
    bool contains(std::uint64_t base, std::uint64_t size) const {
        auto at = by_address_.upper_bound(base);
        if (at == by_address_.begin()) return false;
        --at;
        return base - at->first <= at->second && at->second - (base - at->first) >= size;
    }

    void set_barrier(std::uint64_t address) { barriers_.insert(address); }
    void clear_barrier(std::uint64_t address) { barriers_.erase(address); }

  private:
    void cut(std::uint64_t extent, std::uint64_t extent_size, std::uint64_t base, std::uint64_t size) {
        by_address_.erase(extent);
        by_size_.erase({extent_size, extent});
        const auto put = [&](std::uint64_t from, std::uint64_t length) {
            if (length == 0) return;
            by_address_.emplace(from, length);
            by_size_.insert({length, from});
        };
        put(extent, base - extent);
        put(base + size, extent + extent_size - (base + size));
    }

    std::map<std::uint64_t, std::uint64_t> by_address_;
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
    std::set<std::uint64_t> barriers_;
};

}  // namespace fragscope::sim
