#include "interpose/ask.h"

#include <sched.h>

#include <cerrno>

#include "interpose/driver.h"
#include "interpose/probe.h"
#include "interpose/sample.h"

namespace fragscope::interpose {

namespace {

constinit std::atomic<std::int32_t> asking{0};  // threads between the beginning and the end of Questions
constinit std::atomic<std::int32_t> contexts_ending{0};  // calls under way that end a context
constinit std::atomic<bool> somebody_alone{false};

// Longer than any answer, and than all probes together may take.
constexpr std::uint64_t kPatienceNs = 2'000'000'000;

struct DeviceContexts {
    std::atomic<std::uint64_t> created, primary;
};
constinit DeviceContexts contexts_of[kMaxDevices];

// Waits until at most `others` threads ask.
void wait_for_questions(std::int32_t others) {
    if (asking.load() <= others) return;
    const int saved = errno;
    const std::uint64_t deadline = monotonic_ns() + kPatienceNs;
    for (int turn = 0; asking.load() > others && monotonic_ns() < deadline; ++turn) {
        const timespec nap{0, 20'000};
        if (turn < 50)
            sched_yield();
        else
            nanosleep(&nap, nullptr);
    }
    errno = saved;
}

}  // namespace

std::uint64_t monotonic_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(time.tv_nsec);
}

// Who begins a capture or ends a context counts that first and then looks whether somebody asks; here it is
// the other way round, so that one of the two sees the other.
Questions::Questions() {
    asking.fetch_add(1);
    if (captures_running.load() != 0)
        refusal_ = Refusal::kCapturing;
    else if (contexts_ending.load() != 0 || somebody_alone.load())
        refusal_ = Refusal::kOthers;
    if (!allowed()) asking.fetch_sub(1);
    thread_state.asking = allowed();
}

Questions::~Questions() {
    thread_state.asking = false;
    if (thread_state.asking_alone) somebody_alone.store(false);
    thread_state.asking_alone = false;
    if (allowed()) asking.fetch_sub(1);
}

bool Questions::alone() {
    if (!allowed() || somebody_alone.exchange(true)) return false;
    thread_state.asking_alone = true;
    wait_for_questions(1);
    return asking.load() <= 1;
}

std::uint64_t granularity_of(CUdevice device, CUmemAllocationGranularity_flags which) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    const auto ask = driver.cuMemGetAllocationGranularity.load(std::memory_order_relaxed);
    std::size_t bytes = 0;
    return ask != nullptr && ask(&bytes, &properties, which) == CUDA_SUCCESS ? bytes : 0;
}

CUstream capture_begins(CUstream stream) {
    ThreadState& thread = thread_state;
    if (thread.gate == kBusy && !thread.capture_counted && attached()) {
        captures_running.fetch_add(1);
        thread.capture_counted = true;
        wait_for_questions(0);
    }
    return stream;
}

CUstream capture_may_end(CUstream stream) {
    ThreadState& thread = thread_state;
    if (thread.gate == kBusy)
        thread.capture_ends = captures_running.load(std::memory_order_relaxed) != 0 &&
                              captured_from(reinterpret_cast<std::uint64_t>(stream));
    return stream;
}

void captures_ended_with_context(std::uint64_t context) {
    if (only_context(context)) captures_over();
}

void context_end_begins(HookId function) {
    if (!attached()) return;
    take_sample(wire::SampleReason::kContextEnds, function);
    contexts_ending.fetch_add(1);
    thread_state.ending_counted = true;
    wait_for_questions(0);
}

void context_end_done() {
    thread_state.ending_counted = false;
    // Not below 0 where the process was not attached when the call began.
    std::int32_t ending = contexts_ending.load();
    while (ending > 0 && !contexts_ending.compare_exchange_weak(ending, ending - 1)) {
    }
}

namespace {

// A jump may have come before it was pushed or after it was popped: then another context is current, as this
// one's device is not the one of the call.
void pop_own(ThreadState& thread) {
    const auto ask = driver.cuCtxGetCurrent.load(std::memory_order_relaxed);
    const auto pop = driver.cuCtxPopCurrent_v2.load(std::memory_order_relaxed);
    CUcontext current = nullptr;
    if (ask != nullptr && pop != nullptr && ask(&current) == CUDA_SUCCESS &&
        reinterpret_cast<std::uint64_t>(current) == thread.pushed)
        pop(&current);
    thread.pushed = 0;
}

}  // namespace

void forget_call(ThreadState& thread) {
    const int saved = errno;
    thread.entered_at = kInNoWrapper;  // what is called from here is the shim's
    if (thread.capture_counted) capture_uncounted();
    thread.capture_counted = false;
    if (thread.ending_counted) context_end_done();
    if (thread.capture_mode != kNotExchanged) {
        const auto exchange = driver.cuThreadExchangeStreamCaptureMode.load(std::memory_order_relaxed);
        auto mode = static_cast<CUstreamCaptureMode>(thread.capture_mode);
        exchange(&mode);
        thread.capture_mode = kNotExchanged;
    }
    if (thread.pushed != 0) pop_own(thread);
    if (thread.reading_pools) known_pools.readers.fetch_sub(1);
    thread.reading_pools = false;
    if (thread.asking) {
        if (thread.asking_alone) {
            probe_left();
            somebody_alone.store(false);
        }
        asking.fetch_sub(1);
        thread.asking = thread.asking_alone = false;
    }
    errno = saved;
}

void know_context(std::uint8_t device, std::uint64_t context, bool primary) {
    if (device >= kMaxDevices || context == 0) return;
    (primary ? contexts_of[device].primary : contexts_of[device].created).store(context);
}

void lose_context(std::uint64_t context) {
    for (DeviceContexts& known : contexts_of) {
        std::uint64_t value = context;
        known.created.compare_exchange_strong(value, 0);
    }
}

std::uint64_t primary_context(std::uint8_t device) {
    return device < kMaxDevices ? contexts_of[device].primary.load() : 0;
}

void forget_questions() {
    asking.store(0);
    contexts_ending.store(0);
    somebody_alone.store(false);
    for (DeviceContexts& known : contexts_of) {
        known.created.store(0);
        known.primary.store(0);
    }
}

// ---------------------------------------------------------------------------------------------------
// questions

bool tell_device_memory(Place place, unsigned flags, HookId function) {
    const auto ask = driver.cuMemGetInfo_v2.load(std::memory_order_relaxed);
    std::size_t free_bytes = 0, total_bytes = 0;
    const std::uint64_t asked = now();
    if (place.context == 0 || ask == nullptr || ask(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        return false;
    wire::Record record = shim_record(Kind::kDeviceMemory, function, place.device, flags);
    // What other processes do at the same time may be in the answer or not: say from when to when it was asked.
    record.start = asked;
    record.duration = duration_between(asked, now());
    record.address = free_bytes;
    record.bytes = total_bytes;
    record.object = place.context;
    emit(record);
    return true;
}

namespace {

// A context of the device that lives; 0: none is known. A primary one may have been released since it was
// seen: whether it is active the driver says without making it so.
std::uint64_t context_on(std::uint8_t device) {
    if (const std::uint64_t created = contexts_of[device].created.load(); created != 0) return created;
    const std::uint64_t primary = contexts_of[device].primary.load();
    const auto ask = driver.cuDevicePrimaryCtxGetState.load(std::memory_order_relaxed);
    unsigned flags = 0;
    int active = 0;
    if (primary == 0 || ask == nullptr || ask(device, &flags, &active) != CUDA_SUCCESS || active == 0)
        return 0;
    return primary;
}

}  // namespace

void tell_other_devices(Place place, unsigned flags, HookId function) {
    const auto push = driver.cuCtxPushCurrent_v2.load(std::memory_order_relaxed);
    const auto pop = driver.cuCtxPopCurrent_v2.load(std::memory_order_relaxed);
    if (push == nullptr || pop == nullptr) return;
    for (std::uint8_t device = 0; device < kMaxDevices; ++device) {
        const std::uint64_t context = device == place.device ? 0 : context_on(device);
        if (context == 0) continue;
        thread_state.pushed = context;
        const bool current = push(reinterpret_cast<CUcontext>(context)) == CUDA_SUCCESS;
        if (current && tell_device_memory({context, device, false}, flags, function))
            tell_graph_memory(device, flags, function);
        CUcontext popped = nullptr;
        if (current) pop(&popped);
        thread_state.pushed = 0;
    }
}

namespace {

bool ask_pool(std::uint64_t pool, CUmemPool_attribute attribute, std::uint64_t& value) {
    const auto ask = driver.cuMemPoolGetAttribute.load(std::memory_order_relaxed);
    cuuint64_t number = 0;
    if (ask == nullptr || ask(reinterpret_cast<CUmemoryPool>(pool), attribute, &number) != CUDA_SUCCESS)
        return false;
    value = number;
    return true;
}

void tell_pool(std::uint64_t pool, std::uint64_t maximum, unsigned flags, HookId function, bool marks) {
    std::uint64_t used = 0, reserved = 0, threshold = 0, used_high = 0, reserved_high = 0;
    if (ask_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, used) &&
        ask_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, reserved) &&
        ask_pool(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold)) {
        wire::Record record = shim_record(Kind::kPoolState, function, wire::kDeviceUnknown, flags);
        record.address = used;
        record.bytes = reserved;
        record.object = pool;
        record.extra = threshold;
        emit(record);
    }
    if (marks && ask_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, used_high) &&
        ask_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, reserved_high)) {
        wire::Record record = shim_record(Kind::kPoolHigh, function, wire::kDeviceUnknown, flags);
        record.address = used_high;
        record.bytes = reserved_high;
        record.object = pool;
        record.extra = maximum;
        emit(record);
    }
}

}  // namespace

void tell_pools(unsigned flags, HookId function, bool marks) {
    // A pool that is being destroyed waits for this to end before it goes.
    thread_state.reading_pools = true;
    known_pools.readers.fetch_add(1);
    for (std::uint32_t i = 0; i < kMaxPools; ++i)
        if (const std::uint64_t pool = known_pools.pool[i].load(); pool != 0)
            tell_pool(pool, known_pools.maximum[i].load(), flags, function, marks);
    thread_state.reading_pools = false;
    known_pools.readers.fetch_sub(1);
}

void tell_graph_memory(std::uint8_t device, unsigned flags, HookId function) {
    const auto ask = driver.cuDeviceGetGraphMemAttribute.load(std::memory_order_relaxed);
    if (device == wire::kDeviceUnknown || ask == nullptr) return;
    constexpr CUgraphMem_attribute kAttributes[] = {
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH};
    cuuint64_t values[4] = {};
    for (int i = 0; i < 4; ++i)
        if (ask(device, kAttributes[i], &values[i]) != CUDA_SUCCESS) return;
    wire::Record record = shim_record(Kind::kGraphMemory, function, device, flags);
    record.address = values[0];
    record.bytes = values[1];
    record.object = values[2];
    record.extra = values[3];
    emit(record);
}

}  // namespace fragscope::interpose
