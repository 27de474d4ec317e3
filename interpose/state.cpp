#include "interpose/state.h"

#include <sched.h>

#include <cerrno>

#include "interpose/ask.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/sample.h"
#include "interpose/touch.h"
#include "interpose/waits.h"

namespace fragscope::interpose {

constinit std::atomic<std::uint32_t> context_epoch{1};
constinit KnownPools known_pools{};
constinit std::atomic<std::int32_t> captures_running{0};
constinit std::atomic<bool> graphs_allocate{false};
constinit std::atomic<bool> environment_sent{false};

namespace {

struct KnownContext {
    std::atomic<std::uint64_t> context;
    std::atomic<std::uint8_t> device;
    std::atomic<std::uint32_t> attached;  // uses beside that of who created it
};
constinit KnownContext contexts[kMaxContexts];
constexpr std::uint64_t kEndedContext = 1;  // keeps the place of a context that was destroyed

constinit std::atomic<std::uint32_t> contexts_seen{0};
constinit std::atomic<std::uint64_t> pool_of_device[kMaxDevices];

// Streams by hash. Two streams that meet in one place make the answer "perhaps" for all.
constexpr std::uint32_t kStreams = 64;
constinit std::atomic<std::uint64_t> pending[kStreams];
constinit std::atomic<bool> any_pending{false};
constinit std::atomic<bool> pending_unknown{false};

// By the streams on which they began; the same one as often as captures are said to run on it (a thread's own
// stream has the same name in all threads).
constexpr std::uint32_t kCapturedStreams = 64;
constinit std::atomic<std::uint64_t> captured_streams[kCapturedStreams];
constinit std::atomic<std::int32_t> captures_unplaced{0};  // that found no place there

// False: it is 0.
bool take_one(std::atomic<std::int32_t>& count) {
    std::int32_t value = count.load();
    while (value > 0)
        if (count.compare_exchange_weak(value, value - 1)) return true;
    return false;
}

std::uint32_t place_of(std::uint64_t stream) {
    return static_cast<std::uint32_t>((stream * 0x9e3779b97f4a7c15u) >> 58);
}

// True if the context was not known before.
bool remember_context(std::uint64_t context, std::uint8_t device) {
    for (KnownContext& known : contexts) {
        std::uint64_t value = known.context.load(std::memory_order_relaxed);
        if (value == 0 && known.context.compare_exchange_strong(value, context)) {
            known.attached.store(0, std::memory_order_relaxed);
            known.device.store(device, std::memory_order_release);
            contexts_seen.fetch_add(1, std::memory_order_relaxed);
            return true;
        }
        if (value == context) return false;
    }
    return false;
}

}  // namespace

void reset_process_state() {
    context_epoch.fetch_add(1);
    for (KnownContext& known : contexts) known.context.store(0);
    contexts_seen.store(0);
    for (auto& pool : known_pools.pool) pool.store(0);
    for (auto& maximum : known_pools.maximum) maximum.store(0);
    known_pools.overflow.store(0);
    known_pools.readers.store(0);
    for (auto& pool : pool_of_device) pool.store(0);
    for (auto& stream : pending) stream.store(0);
    any_pending.store(false);
    pending_unknown.store(false);
    captures_running.store(0);
    for (auto& stream : captured_streams) stream.store(0);
    captures_unplaced.store(0);
    graphs_allocate.store(false);
    environment_sent.store(false);
    forget_names();
    forget_questions();
    begin_samples();
    forget_touches();
    forget_all_waits();
}

namespace {

Place seen(Place place) {
    if (place.fresh) thread_state.unsampled_bytes |= kFirstLook;
    return place;
}

}  // namespace

Place here() {
    ThreadState& thread = thread_state;
    const auto ask = driver.cuCtxGetCurrent.load(std::memory_order_relaxed);
    CUcontext current = nullptr;
    if (ask == nullptr || ask(&current) != CUDA_SUCCESS || current == nullptr) return {};
    const auto context = reinterpret_cast<std::uint64_t>(current);
    const std::uint32_t epoch = context_epoch.load(std::memory_order_relaxed);
    if (thread.context == context && thread.context_epoch == epoch)
        return {context, thread.context_device, false};
    const auto ask_device = driver.cuCtxGetDevice.load(std::memory_order_relaxed);
    CUdevice device = -1;
    if (ask_device == nullptr || ask_device(&device) != CUDA_SUCCESS || device < 0 ||
        device >= wire::kDeviceUnknown)
        return seen({context, wire::kDeviceUnknown, remember_context(context, wire::kDeviceUnknown)});
    // Only a context whose device is known is remembered by the thread.
    thread.context = context;
    thread.context_epoch = epoch;
    thread.context_device = static_cast<std::uint8_t>(device);
    return seen({context, thread.context_device, remember_context(context, thread.context_device)});
}

std::uint8_t device_of(std::uint64_t context) {
    for (const KnownContext& known : contexts)
        if (context != 0 && known.context.load(std::memory_order_acquire) == context)
            return known.device.load(std::memory_order_relaxed);
    return wire::kDeviceUnknown;
}

bool only_context(std::uint64_t context) {
    if (context == 0 || several_contexts()) return false;
    for (const KnownContext& known : contexts)
        if (known.context.load(std::memory_order_acquire) == context) return true;
    return false;
}

void context_ended(std::uint64_t context) {
    context_epoch.fetch_add(1);
    for (KnownContext& known : contexts) {
        std::uint64_t value = context;
        if (known.context.compare_exchange_strong(value, kEndedContext)) return;
    }
}

void context_attached(std::uint64_t context) {
    for (KnownContext& known : contexts)
        if (known.context.load(std::memory_order_acquire) == context)
            known.attached.fetch_add(1, std::memory_order_relaxed);
}

bool context_detached(std::uint64_t context) {
    for (KnownContext& known : contexts) {
        if (known.context.load(std::memory_order_acquire) != context) continue;
        std::uint32_t uses = known.attached.load(std::memory_order_relaxed);
        while (uses != 0)
            if (known.attached.compare_exchange_weak(uses, uses - 1, std::memory_order_relaxed)) return true;
    }
    return false;
}

bool several_contexts() { return contexts_seen.load(std::memory_order_relaxed) > 1; }

void capture_on(std::uint64_t stream) {
    for (auto& place : captured_streams) {
        std::uint64_t none = 0;
        if (place.load(std::memory_order_relaxed) == 0 && place.compare_exchange_strong(none, stream)) return;
    }
    captures_unplaced.fetch_add(1);
}

bool captured_from(std::uint64_t stream) {
    for (const auto& place : captured_streams)
        if (place.load(std::memory_order_acquire) == stream) return true;
    return false;
}

void capture_over(std::uint64_t stream, bool said) {
    for (auto& place : captured_streams) {
        std::uint64_t value = stream;
        if (place.load(std::memory_order_relaxed) != stream || !place.compare_exchange_strong(value, 0))
            continue;
        capture_uncounted();
        return;
    }
    if (said && take_one(captures_unplaced)) capture_uncounted();
}

void capture_uncounted() { take_one(captures_running); }

void captures_over() {
    for (auto& place : captured_streams)
        if (place.exchange(0) != 0) capture_uncounted();
    while (take_one(captures_unplaced)) capture_uncounted();
}

void remember_pool(std::uint64_t pool) {
    if (pool == 0) return;
    for (auto& known : known_pools.pool)
        if (known.load(std::memory_order_relaxed) == pool) return;
    for (auto& known : known_pools.pool) {
        std::uint64_t none = 0;
        if (known.compare_exchange_strong(none, pool) || none == pool) return;
    }
    known_pools.overflow.fetch_add(1, std::memory_order_relaxed);
}

void set_pool_maximum(std::uint64_t pool, std::uint64_t maximum) {
    for (std::uint32_t i = 0; i < kMaxPools; ++i)
        if (known_pools.pool[i].load() == pool) known_pools.maximum[i].store(maximum);
}

CUmemoryPool forget_pool(CUmemoryPool pool) {
    for (std::uint32_t i = 0; i < kMaxPools; ++i) {
        auto value = reinterpret_cast<std::uint64_t>(pool);
        if (known_pools.pool[i].load() != value) continue;
        // First, so that who takes the place next is not told to have this one's.
        known_pools.maximum[i].store(0);
        known_pools.pool[i].compare_exchange_strong(value, 0);
    }
    for (auto& current : pool_of_device) {
        auto value = reinterpret_cast<std::uint64_t>(pool);
        current.compare_exchange_strong(value, 0);  // the device goes back to its default pool
    }
    // Longer than any answer that is under way.
    constexpr std::uint64_t kPatienceNs = 2'000'000'000;
    if (known_pools.readers.load() != 0) {
        const int saved = errno;
        const std::uint64_t deadline = monotonic_ns() + kPatienceNs;
        while (known_pools.readers.load() != 0 && monotonic_ns() < deadline) sched_yield();
        errno = saved;
    }
    return pool;
}

std::uint64_t current_pool(std::uint8_t device) {
    return device < kMaxDevices ? pool_of_device[device].load(std::memory_order_relaxed) : 0;
}

void set_current_pool(std::uint8_t device, std::uint64_t pool) {
    if (device < kMaxDevices) pool_of_device[device].store(pool, std::memory_order_relaxed);
}

void free_pending(std::uint64_t stream) {
    std::uint64_t before = pending[place_of(stream)].exchange(stream, std::memory_order_relaxed);
    if (before != 0 && before != stream) pending_unknown.store(true, std::memory_order_relaxed);
    if (!any_pending.load(std::memory_order_relaxed)) any_pending.store(true, std::memory_order_relaxed);
}

bool take_pending(std::uint64_t stream) {
    if (!any_pending.load(std::memory_order_relaxed)) return false;
    std::uint64_t expected = stream;
    if (pending[place_of(stream)].compare_exchange_strong(expected, 0)) return true;
    return pending_unknown.load(std::memory_order_relaxed);
}

bool take_all_pending() {
    if (!any_pending.load(std::memory_order_relaxed)) return false;
    if (several_contexts()) return true;  // which streams were of this context is not known
    any_pending.store(false, std::memory_order_relaxed);
    pending_unknown.store(false, std::memory_order_relaxed);
    for (auto& stream : pending) stream.store(0, std::memory_order_relaxed);
    return true;
}

}  // namespace fragscope::interpose
