// What the driver says of memory at the moments when it matters: when a context is first seen, and after a
// call that failed for want of memory. Only questions that change nothing, and none while a stream capture is
// running, which some of them would break.
#include <atomic>

#include "interpose/call.h"
#include "interpose/driver.h"
#include "interpose/emit.h"

namespace fragscope::interpose {

namespace {

// A program that fails in a loop is not slowed by each failure: a burst of snapshots in quick succession (a program that
// fails, empties a cache and tries again fails several times within a millisecond, and the last time is the one that
// matters), then one for each pause.
constexpr std::uint64_t kSnapshotPauseNs = 10'000'000;
constexpr std::uint64_t kSnapshotBurst = 16;

constinit std::atomic<std::uint64_t> snapshots_paid_until_ns{0};
constinit std::atomic<std::uint64_t> skipped{0};

bool ask_pool(std::uint64_t pool, CUmemPool_attribute attribute, std::uint64_t& value) {
    const auto ask = driver.cuMemPoolGetAttribute.load(std::memory_order_relaxed);
    cuuint64_t number = 0;
    if (ask == nullptr || ask(reinterpret_cast<CUmemoryPool>(pool), attribute, &number) != CUDA_SUCCESS)
        return false;
    value = number;
    return true;
}

void snapshot_pool(std::uint64_t pool, std::uint64_t maximum, HookId function) {
    std::uint64_t used = 0, reserved = 0, threshold = 0, used_high = 0, reserved_high = 0;
    if (ask_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, used) &&
        ask_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, reserved) &&
        ask_pool(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold)) {
        wire::Record record = shim_record(Kind::kPoolState, function, wire::kDeviceUnknown, wire::kSnapshot);
        record.address = used;
        record.bytes = reserved;
        record.object = pool;
        record.extra = threshold;
        emit(record);
    }
    if (ask_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, used_high) &&
        ask_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, reserved_high)) {
        wire::Record record = shim_record(Kind::kPoolHigh, function, wire::kDeviceUnknown, wire::kSnapshot);
        record.address = used_high;
        record.bytes = reserved_high;
        record.object = pool;
        record.extra = maximum;
        emit(record);
    }
}

}  // namespace

void sample_device_memory(Place place, std::uint16_t flags, HookId function) {
    const auto ask = driver.cuMemGetInfo_v2.load(std::memory_order_relaxed);
    if (place.context == 0 || ask == nullptr || captures_running.load(std::memory_order_relaxed) != 0) return;
    std::size_t free_bytes = 0, total_bytes = 0;
    if (ask(&free_bytes, &total_bytes) != CUDA_SUCCESS) return;
    wire::Record record = shim_record(Kind::kDeviceMemory, function, place.device, flags);
    record.address = free_bytes;
    record.bytes = total_bytes;
    record.object = place.context;
    emit(record);
}

namespace {

// Each snapshot is paid for with one pause; the debt may reach a burst.
bool may_take_snapshot() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    const auto now =
        static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
    std::uint64_t paid_until = snapshots_paid_until_ns.load(std::memory_order_relaxed);
    for (;;) {
        const std::uint64_t from = paid_until > now ? paid_until : now;
        if (from - now > (kSnapshotBurst - 1) * kSnapshotPauseNs) return false;
        if (snapshots_paid_until_ns.compare_exchange_weak(paid_until, from + kSnapshotPauseNs,
                                                          std::memory_order_relaxed))
            return true;
    }
}

}  // namespace

void failure_snapshot(HookId function, std::uint64_t sequence) {
    if (!attach() || !may_take_snapshot()) {
        skipped.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    const bool capturing = captures_running.load(std::memory_order_relaxed) != 0;
    const Place place = here();
    if (!capturing) {
        sample_device_memory(place, wire::kSnapshot, function);
        // A pool that is being destroyed waits for this to end before it goes.
        known_pools.readers.fetch_add(1);
        for (std::uint32_t i = 0; i < kMaxPools; ++i)
            if (const std::uint64_t pool = known_pools.pool[i].load(); pool != 0)
                snapshot_pool(pool, known_pools.maximum[i].load(), function);
        known_pools.readers.fetch_sub(1);
    }
    unsigned flags = wire::kSnapshot;
    if (capturing) flags |= wire::kCaptured;  // nothing was asked
    if (place.context == 0) flags |= wire::kNoContext;
    wire::Record end = shim_record(Kind::kFailureSnapshotEnd, function, place.device, flags);
    end.bytes = known_pools.overflow.load(std::memory_order_relaxed);
    end.object = sequence;
    end.extra = skipped.exchange(0, std::memory_order_relaxed);
    emit(end);
}

}  // namespace fragscope::interpose
