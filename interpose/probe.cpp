#include "interpose/probe.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "interpose/driver.h"

namespace fragscope::interpose {

namespace {

using wire::ProbeMechanism;
using wire::ProbesEnd;

// Failures in quick succession are those of one want (a cache is emptied, the call made again): all of a few
// are looked into. Beyond that probes take at most a tenth of the time.
constexpr std::uint32_t kBurst = 4;
constexpr std::uint64_t kPauseFor = 10;

// No allocation is tried above this, whatever the limits: more than any device has.
constexpr std::uint64_t kMostAddresses = std::uint64_t{1} << 44;
constexpr std::uint64_t kSmallest = 512;
constexpr std::uint64_t kMostHandles = std::uint64_t{1} << 20;

constinit std::atomic<std::uint32_t> bursts{0};
constinit std::atomic<std::uint64_t> not_before_ns{0};
constinit std::atomic<bool> not_undone{
    false};  // something could not be given back: this process is left alone from then on

struct Run {
    Place place;
    std::uint64_t sequence = 0;
    std::uint64_t begun_ns = 0, deadline_ns = 0;
    std::uint64_t minimum = 0, recommended = 0, capacity = 0;
    std::uint64_t held_most = 0;
    ProbesEnd end = ProbesEnd::kFinished;
    CUmemoryPool pool = nullptr;  // the shim's own
    CUstream stream = nullptr;

    bool going() const { return end == ProbesEnd::kFinished; }
};

template <typename Function, typename... Arguments>
CUresult call(const std::atomic<Function>& function, Arguments... arguments) {
    const Function real = function.load(std::memory_order_relaxed);
    return real != nullptr ? real(arguments...) : CUDA_ERROR_NOT_SUPPORTED;
}

struct Mechanism {
    ProbeMechanism name;
    HookId function;
    CUresult (*take)(const Run& run, std::uint64_t bytes, std::uint64_t& what);
    CUresult (*give_back)(const Run& run, std::uint64_t what, std::uint64_t bytes);
};

CUresult take_handle(const Run& run, std::uint64_t bytes, std::uint64_t& what) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = run.place.device;
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp* wanted = &properties;
    const CUresult result = call(driver.cuMemCreate, &handle, bytes, wanted, 0ull);
    what = handle;
    return result;
}
CUresult release_handle(const Run&, std::uint64_t what, std::uint64_t) {
    return call(driver.cuMemRelease, static_cast<CUmemGenericAllocationHandle>(what));
}
CUresult take_direct(const Run&, std::uint64_t bytes, std::uint64_t& what) {
    CUdeviceptr address = 0;
    const CUresult result = call(driver.cuMemAlloc_v2, &address, bytes);
    what = address;
    return result;
}
CUresult take_managed(const Run&, std::uint64_t bytes, std::uint64_t& what) {
    CUdeviceptr address = 0;
    const CUresult result =
        call(driver.cuMemAllocManaged, &address, bytes, static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL));
    what = address;
    return result;
}
CUresult free_device(const Run&, std::uint64_t what, std::uint64_t) {
    return call(driver.cuMemFree_v2, static_cast<CUdeviceptr>(what));
}
CUresult take_addresses(const Run&, std::uint64_t bytes, std::uint64_t& what) {
    CUdeviceptr address = 0;
    const CUresult result =
        call(driver.cuMemAddressReserve, &address, bytes, std::size_t{0}, CUdeviceptr{0}, 0ull);
    what = address;
    return result;
}
CUresult free_addresses(const Run&, std::uint64_t what, std::uint64_t bytes) {
    return call(driver.cuMemAddressFree, static_cast<CUdeviceptr>(what), bytes);
}
CUresult take_host(const Run&, std::uint64_t bytes, std::uint64_t& what) {
    void* address = nullptr;
    const CUresult result = call(driver.cuMemHostAlloc, &address, bytes, 0u);
    what = reinterpret_cast<std::uint64_t>(address);
    return result;
}
CUresult free_host(const Run&, std::uint64_t what, std::uint64_t) {
    return call(driver.cuMemFreeHost, reinterpret_cast<void*>(what));
}
CUresult take_from_pool(const Run& run, std::uint64_t bytes, std::uint64_t& what) {
    CUdeviceptr address = 0;
    const CUresult result = call(driver.cuMemAllocFromPoolAsync, &address, bytes, run.pool, run.stream);
    what = address;
    return result;
}
// By cuMemFree, which for memory of a pool waits for nothing and takes effect at once: nothing has used this
// memory. A stream-ordered free would take effect with the next synchronisation, at which the driver trims
// the program's pools too.
CUresult free_to_pool(const Run& run, std::uint64_t what, std::uint64_t) {
    if (const CUresult result = call(driver.cuMemFree_v2, static_cast<CUdeviceptr>(what));
        result != CUDA_SUCCESS)
        return result;
    cuuint64_t reserved = 0;
    call(driver.cuMemPoolTrimTo, run.pool, std::size_t{0});
    void* value = &reserved;
    const CUresult asked =
        call(driver.cuMemPoolGetAttribute, run.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, value);
    return asked == CUDA_SUCCESS && reserved != 0 ? CUDA_ERROR_NOT_READY : asked;
}

constexpr Mechanism kAddresses = {ProbeMechanism::kAddresses, HookId::k_cuMemAddressReserve, take_addresses,
                                  free_addresses};
constexpr Mechanism kMinimum = {ProbeMechanism::kHandleMinimum, HookId::k_cuMemCreate, take_handle,
                                release_handle};
constexpr Mechanism kRecommended = {ProbeMechanism::kHandleRecommended, HookId::k_cuMemCreate, take_handle,
                                    release_handle};
constexpr Mechanism kStitched = {ProbeMechanism::kStitched, HookId::k_cuMemCreate, take_handle,
                                 release_handle};
constexpr Mechanism kDirect = {ProbeMechanism::kDirect, HookId::k_cuMemAlloc_v2, take_direct, free_device};
constexpr Mechanism kManaged = {ProbeMechanism::kManaged, HookId::k_cuMemAllocManaged, take_managed,
                                free_device};
constexpr Mechanism kPool = {ProbeMechanism::kPool, HookId::k_cuMemAllocFromPoolAsync, take_from_pool,
                             free_to_pool};
constexpr Mechanism kHost = {ProbeMechanism::kHost, HookId::k_cuMemHostAlloc, take_host, free_host};

void tell(const Run& run, const Mechanism& mechanism, std::uint64_t bytes, std::uint64_t granularity,
          CUresult result, std::uint64_t start, std::uint64_t end) {
    wire::Record record = shim_record(Kind::kProbe, mechanism.function, run.place.device);
    record.start = start;
    record.duration = duration_between(start, end);
    record.result = static_cast<std::uint16_t>(result);
    record.address = static_cast<std::uint64_t>(mechanism.name);
    record.bytes = bytes;
    record.object = run.sequence;
    record.extra = granularity;
    emit(record);
}

void failed_to_undo(Run& run) {
    not_undone.store(true);
    run.end = ProbesEnd::kNotUndone;
}

// One mechanism's search: the largest size known to be granted, the smallest known to be refused.
struct Search {
    Run& run;
    const Mechanism& mechanism;
    std::uint64_t granularity;
    std::uint64_t granted = 0;
    std::uint64_t refused = UINT64_MAX;
    std::uint64_t last_took_ns = 0;  // with its undoing
    bool over = false;               // another answer than granted or refused

    bool going() const { return run.going() && !over; }

    void attempt(std::uint64_t bytes) {
        const std::uint64_t began = monotonic_ns();
        // A larger one takes longer.
        if (began + 2 * last_took_ns >= run.deadline_ns) {
            run.end = ProbesEnd::kTimeLimit;
            return;
        }
        if (captures_running.load() != 0) {
            run.end = ProbesEnd::kCapturing;
            return;
        }
        std::uint64_t what = 0;
        const std::uint64_t start = now();
        const CUresult result = mechanism.take(run, bytes, what);
        const std::uint64_t end = now();
        if (result == CUDA_SUCCESS) {
            granted = bytes;
            if (mechanism.name != ProbeMechanism::kAddresses && bytes > run.held_most) run.held_most = bytes;
            if (mechanism.give_back(run, what, bytes) != CUDA_SUCCESS) failed_to_undo(run);
        } else if (result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_INVALID_VALUE) {
            refused = bytes;
        } else {
            over = true;
        }
        last_took_ns = monotonic_ns() - began;
        tell(run, mechanism, bytes, granularity, result, start, end);
    }

    // Until less than two steps lie between the two.
    void halve(std::uint64_t step) {
        while (going() && refused != UINT64_MAX && refused - granted >= 2 * step)
            attempt(granted + (refused - granted) / step / 2 * step);
    }

    void from_above(std::uint64_t most) {
        most -= most % granularity;
        if (most == 0 || !going()) return;
        attempt(most);
        halve(granularity);
    }

    // Where what is granted is expensive.
    void from_below(std::uint64_t most) {
        for (std::uint64_t bytes = granularity; bytes <= most && going() && refused == UINT64_MAX; bytes *= 2)
            attempt(bytes);
        halve(granularity);
    }
};

std::uint64_t smaller(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

Search search(Run& run, const Mechanism& mechanism, std::uint64_t granularity) {
    return Search{run, mechanism, granularity};
}

void probe_device(Run& run, const Mechanism& mechanism, std::uint64_t granularity) {
    if (granularity == 0 || !run.going()) return;
    Search direct = search(run, mechanism, granularity);
    direct.from_above(smaller(session.probe_bytes, run.capacity));
    // Small requests share what is too small for others.
    if (mechanism.name == ProbeMechanism::kDirect && direct.granted == 0) {
        direct.refused = smaller(direct.refused, granularity);
        direct.halve(kSmallest);
    }
}

// Handles of the minimum granularity, as many as are granted. Half of the time that is left is kept for
// undoing.
void probe_stitched(Run& run) {
    if (run.minimum == 0 || !run.going()) return;
    const std::uint64_t most =
        smaller(smaller(session.probe_bytes, run.capacity) / run.minimum, kMostHandles);
    const std::size_t size = most * sizeof(std::uint64_t);
    if (most == 0) return;
    void* memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    auto* handles = static_cast<std::uint64_t*>(memory);
    const std::uint64_t began = monotonic_ns();
    const std::uint64_t stop = began + (run.deadline_ns > began ? (run.deadline_ns - began) / 2 : 0);
    CUresult result = CUDA_SUCCESS;
    std::uint64_t count = 0;
    const std::uint64_t start = now();
    while (count < most && result == CUDA_SUCCESS && run.going()) {
        if (monotonic_ns() >= stop)
            run.end = ProbesEnd::kTimeLimit;
        else if (captures_running.load() != 0)
            run.end = ProbesEnd::kCapturing;
        else if (result = take_handle(run, run.minimum, handles[count]); result == CUDA_SUCCESS)
            ++count;
    }
    const std::uint64_t end = now();
    if (count * run.minimum > run.held_most) run.held_most = count * run.minimum;
    for (std::uint64_t i = 0; i < count; ++i)
        if (release_handle(run, handles[i], run.minimum) != CUDA_SUCCESS) failed_to_undo(run);
    munmap(memory, size);
    if (count != 0) tell(run, kStitched, count * run.minimum, run.minimum, CUDA_SUCCESS, start, end);
    if (result != CUDA_SUCCESS)
        tell(run, kStitched, (count + 1) * run.minimum, run.minimum, result, start, end);
}

// From a pool of the shim's own, made as the device's default one is: what the program's pools have cached,
// have given out, or had at most, stays as it is. Only where the program uses pools, as the first one costs
// the process something.
void probe_pool(Run& run) {
    bool any = false;
    for (const auto& pool : known_pools.pool) any = any || pool.load() != 0;
    if (!any || run.minimum == 0 || !run.going()) return;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = run.place.device;
    const std::uint64_t start = now();
    const CUmemPoolProps* wanted = &properties;
    CUresult result = call(driver.cuStreamCreate, &run.stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    if (result == CUDA_SUCCESS) {
        result = call(driver.cuMemPoolCreate, &run.pool, wanted);
        if (result == CUDA_SUCCESS) {
            search(run, kPool, run.minimum).from_above(smaller(session.probe_bytes, run.capacity));
            if (call(driver.cuMemPoolDestroy, run.pool) != CUDA_SUCCESS) failed_to_undo(run);
        }
        if (call(driver.cuStreamDestroy_v2, run.stream) != CUDA_SUCCESS) failed_to_undo(run);
    }
    if (result != CUDA_SUCCESS) tell(run, kPool, 0, run.minimum, result, start, now());
}

// The number after `name` in a file of the kernel's, 0 if it has none. An empty name: the file's first word.
std::uint64_t number_in(const char* path, const char* name) {
    char text[4096];
    const std::size_t length = read_file(path, text, sizeof text - 1);
    text[length] = '\0';
    const char* at = std::strstr(text, name);
    return at != nullptr ? strtoull(at + std::strlen(name), nullptr, 10) : 0;
}

// Pinned memory cannot be taken back by a system that runs out of it, and then somebody is killed: a small
// part of what is free, by the system and, where the control group has a limit, by that.
std::uint64_t host_limit() {
    std::uint64_t most = number_in("/proc/meminfo", "MemAvailable:") * 1024 / 16;
    char group[512];
    const std::size_t length = read_file("/proc/self/cgroup", group, sizeof group - 1);
    group[length] = '\0';
    char* at = std::strncmp(group, "0::", 3) == 0 ? group + 3 : nullptr;
    if (at == nullptr) return most;
    at[strcspn(at, "\n")] = '\0';
    constexpr char kRoot[] = "/sys/fs/cgroup";
    for (;;) {  // every group above has its own limit
        char path[640];
        const auto file = [&](const char* name) {
            std::size_t used = 0;
            for (const char* part : {kRoot, static_cast<const char*>(at), name})
                for (const char* c = part; *c != '\0' && used + 1 < sizeof path; ++c) path[used++] = *c;
            path[used] = '\0';
            return static_cast<const char*>(path);
        };
        // "max" where there is none.
        const std::uint64_t limit = number_in(file("/memory.max"), "");
        const std::uint64_t taken = number_in(file("/memory.current"), "");
        if (limit != 0) most = smaller(most, limit > taken ? (limit - taken) / 16 : 0);
        char* slash = std::strrchr(at, '/');
        if (slash == nullptr || at[0] == '\0') return most;
        *slash = '\0';
    }
}

void probe_all(Run& run) {
    std::size_t free_bytes = 0, capacity = 0;
    if (call(driver.cuMemGetInfo_v2, &free_bytes, &capacity) != CUDA_SUCCESS) return;
    run.capacity = capacity;
    run.minimum = granularity_of(run.place.device, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    run.recommended = granularity_of(run.place.device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    constexpr std::uint64_t kWithoutGranularity = std::uint64_t{2} << 20;  // a driver without these functions
    const std::uint64_t step = run.minimum != 0 ? run.minimum : kWithoutGranularity;
    // No potentially unsafe call of this thread disturbs a capture that the shim does not know of.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged = call(driver.cuThreadExchangeStreamCaptureMode, &mode) == CUDA_SUCCESS;
    if (exchanged) thread_state.capture_mode = static_cast<std::uint8_t>(mode);
    // What is cheap and tells most comes first.
    if (run.minimum != 0) search(run, kAddresses, run.minimum).from_above(kMostAddresses);
    probe_device(run, kMinimum, run.minimum);
    if (run.recommended != run.minimum) probe_device(run, kRecommended, run.recommended);
    probe_device(run, kDirect, step);
    probe_device(run, kManaged, step);
    probe_pool(run);
    probe_stitched(run);
    search(run, kHost, step).from_below(smaller(session.probe_bytes, host_limit()));
    thread_state.capture_mode = kNotExchanged;
    if (exchanged) call(driver.cuThreadExchangeStreamCaptureMode, &mode);
}

}  // namespace

void probe_left() { not_undone.store(true); }

void probe(Questions& questions, Place place, std::uint64_t sequence) {
    const int saved = errno;
    Run run;
    run.place = place;
    run.sequence = sequence;
    run.begun_ns = monotonic_ns();
    run.deadline_ns = run.begun_ns + smaller(session.probe_ns, UINT64_MAX / 4);
    if (questions.capturing())
        run.end = ProbesEnd::kCapturing;
    else if (place.context == 0 || place.device == wire::kDeviceUnknown)
        run.end = ProbesEnd::kNoContext;
    else if (not_undone.load())
        run.end = ProbesEnd::kNotUndone;
    else if ((bursts.load() >= kBurst && run.begun_ns < not_before_ns.load()) || !questions.alone())
        run.end = ProbesEnd::kTooSoon;
    if (run.going()) {
        bursts.fetch_add(1);
        probe_all(run);
        const std::uint64_t ended = monotonic_ns();
        not_before_ns.store(ended + kPauseFor * (ended - run.begun_ns));
    }
    wire::Record end = shim_record(Kind::kProbesEnded, HookId::k_cuMemGetInfo_v2, place.device);
    end.address = static_cast<std::uint64_t>(run.end);
    end.bytes = monotonic_ns() - run.begun_ns;
    end.object = sequence;
    end.extra = run.held_most;
    emit(end);
    errno = saved;
}

}  // namespace fragscope::interpose
