#include "interpose/touch.h"

namespace fragscope::interpose {

constinit std::atomic<bool> any_touch{false};

namespace {

constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
constexpr std::uint32_t kEntries = 4096;
constexpr std::uint64_t kMaxPages = 1024;  // longer extents are always told

// One interval of a page, [low, high), all of which was told.
struct Entry {
    std::uint64_t page;  // number + 1; 0: none
    std::uint32_t low, high;
    std::uint64_t epoch;
};
constinit Entry entries[kEntries];
constinit std::uint64_t epoch = 1;
constinit std::atomic<bool> locked{false};
constinit std::atomic<bool> stale{
    false};  // a renewal could not be entered: all is forgotten at the next chance

bool try_lock() { return !locked.exchange(true, std::memory_order_acquire); }
void unlock() { locked.store(false, std::memory_order_release); }

void settle() {
    if (stale.load(std::memory_order_relaxed) && stale.exchange(false)) ++epoch;
}

// Widens the page's interval by [low, high) if they meet. True if nothing new was in it.
bool covered(std::uint64_t page, std::uint32_t low, std::uint32_t high) {
    Entry& entry = entries[page % kEntries];
    if (entry.page != page + 1 || entry.epoch != epoch) {
        entry = {page + 1, low, high, epoch};
        return false;
    }
    if (low >= entry.low && high <= entry.high) return true;
    if (low <= entry.high && high >= entry.low) {
        if (low < entry.low) entry.low = low;
        if (high > entry.high) entry.high = high;
    } else if (high - low > entry.high - entry.low) {
        entry.low = low;
        entry.high = high;
    }
    return false;
}

}  // namespace

bool touch(std::uint64_t address, std::uint64_t bytes) {
    if (bytes == 0) return false;
    const std::uint64_t last = address + bytes - 1;
    if (last < address || last / kPage - address / kPage >= kMaxPages || !try_lock()) return true;
    any_touch.store(true, std::memory_order_relaxed);
    settle();
    bool all = true;
    for (std::uint64_t page = address / kPage; page <= last / kPage; ++page) {
        const std::uint64_t start = page * kPage;
        const auto low = static_cast<std::uint32_t>(address > start ? address - start : 0);
        const auto high = static_cast<std::uint32_t>(last - start < kPage ? last - start + 1 : kPage);
        all = covered(page, low, high) && all;
    }
    unlock();
    return !all;
}

void renew_told(std::uint64_t address, std::uint64_t bytes) {
    if (bytes == 0) return;
    const std::uint64_t last = address + bytes - 1;
    if (last < address || last / kPage - address / kPage >= kMaxPages || !try_lock()) {
        stale.store(true);
        return;
    }
    for (std::uint64_t page = address / kPage; page <= last / kPage; ++page)
        if (entries[page % kEntries].page == page + 1) entries[page % kEntries].page = 0;
    unlock();
}

void forget_touches() {
    // Of a forked child the lock may have been held by a thread that is no longer there.
    locked.store(false);
    stale.store(true);
    any_touch.store(false);
}

}  // namespace fragscope::interpose
