// The program that bench_shim.py runs again and again: calls a driver function in a loop and says what a call
// took. It knows nothing of Fragscope; the shim is preloaded into it, or not.
//   shim_worker CALL NOTE THREADS BATCHES [DEPTH [PAUSE_US [FILE]]]
//     CALL: alloc (cuMemAlloc + cuMemFree in turn), async (cuMemAllocAsync + cuMemFreeAsync), create
//     (cuMemCreate + cuMemRelease) or info (cuMemGetInfo)    NOTE: none, lttng, spdlog (into FILE), backtrace
//     DEPTH: calls between the thread's beginning and the loop    PAUSE_US: between batches, 2000 if not
//     given
// Calls come in batches with a pause between them that is not measured: real programs do not call the driver
// without a break, and whoever takes the records away gets the time that it would have.
#include <cuda.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/bench/measure.h"
#include "tests/bench/peers.h"
#ifdef FRAGSCOPE_BENCH_SPDLOG
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#endif
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

using namespace fragscope::bench;

namespace {

constexpr std::size_t kCallsPerBatch = 1000;
constexpr std::size_t kBytes = 64 << 10;
constexpr std::size_t kHandleBytes = 2 << 20;

// By dlsym, so that the same binary runs on any driver that LD_LIBRARY_PATH names.
struct Driver {
    CUresult (*init)(unsigned) = nullptr;
    CUresult (*device)(CUdevice*, int) = nullptr;
    CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
    CUresult (*set_current)(CUcontext) = nullptr;
    CUresult (*allocate)(CUdeviceptr*, std::size_t) = nullptr;
    CUresult (*release)(CUdeviceptr) = nullptr;
    CUresult (*info)(std::size_t*, std::size_t*) = nullptr;
    CUresult (*allocate_async)(CUdeviceptr*, std::size_t, CUstream) = nullptr;
    CUresult (*release_async)(CUdeviceptr, CUstream) = nullptr;
    CUresult (*create)(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                       unsigned long long) = nullptr;
    CUresult (*release_handle)(CUmemGenericAllocationHandle) = nullptr;

    bool load() {
        void* library = dlopen("libcuda.so.1", RTLD_NOW);
        if (library == nullptr) return false;
        const auto find = [library](auto& function, const char* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            return function != nullptr;
        };
        return find(init, "cuInit") && find(device, "cuDeviceGet") &&
               find(retain, "cuDevicePrimaryCtxRetain") && find(set_current, "cuCtxSetCurrent") &&
               find(allocate, "cuMemAlloc_v2") && find(release, "cuMemFree_v2") &&
               find(info, "cuMemGetInfo_v2") && find(allocate_async, "cuMemAllocAsync") &&
               find(release_async, "cuMemFreeAsync") && find(create, "cuMemCreate") &&
               find(release_handle, "cuMemRelease");
    }
};

// User-mode instructions of the calling thread. Not available in many virtual machines and containers.
class InstructionCounter {
  public:
    InstructionCounter() {
        perf_event_attr attributes{};
        attributes.type = PERF_TYPE_HARDWARE;
        attributes.size = sizeof attributes;
        attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
        attributes.exclude_kernel = 1;
        attributes.exclude_hv = 1;
        fd_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
    }
    ~InstructionCounter() {
        if (fd_ >= 0) close(fd_);
    }
    InstructionCounter(const InstructionCounter&) = delete;
    InstructionCounter& operator=(const InstructionCounter&) = delete;
    bool available() const { return fd_ >= 0; }
    std::uint64_t now() const {
        std::uint64_t value = 0;
        return read(fd_, &value, sizeof value) == sizeof value ? value : 0;
    }

  private:
    int fd_;
};

enum class Note { kNone, kLttng, kSpdlog, kBacktrace };
enum class Calls { kInfo, kAlloc, kAsync, kCreate };

struct Plan {
    Calls calls = Calls::kInfo;
    Note how = Note::kNone;
    int batches = 1;
    int depth = 0;
    timespec pause{0, 2'000'000};
};

#ifdef FRAGSCOPE_BENCH_SPDLOG
std::shared_ptr<spdlog::logger> logger;
#endif

void note(Note how, const bench_call& call) {
    switch (how) {
        case Note::kNone:
            break;
        case Note::kLttng:
#ifdef FRAGSCOPE_BENCH_LTTNG
            bench_lttng_note(&call);
#endif
            break;
        case Note::kBacktrace: {
            // What a tool does with a stack at the least: a number for it.
            void* frames[64];
            const int count = backtrace(frames, 64);
            std::uint64_t hash = static_cast<std::uint64_t>(count);
            for (int i = 0; i < count; ++i)
                hash = (hash ^ reinterpret_cast<std::uint64_t>(frames[i])) * 0x9e3779b97f4a7c15u;
            keep(hash);
            break;
        }
        case Note::kSpdlog:
#ifdef FRAGSCOPE_BENCH_SPDLOG
            logger->info("{},{},{},{},0x{:x},{},{},{},{}", call.function, call.result, call.start_ns,
                         call.duration_ns, call.address, call.bytes, call.object, call.extra, call.thread);
#endif
            break;
    }
}

struct Samples {
    std::vector<double> ns;            // per call, one entry per batch
    std::vector<double> instructions;  // empty: not available
    bool failed = false;
};

// One driver call as a peer has to wrap it: two readings of the clock around it.
template <typename Call>
bool noted(Note how, std::uint32_t function, std::uint64_t bytes, Call&& call) {
    if (how == Note::kNone) return call() == CUDA_SUCCESS;
    const std::uint64_t start = monotonic_ns();
    const CUresult result = call();
    bench_call record{start, monotonic_ns() - start,           0, bytes, 0, 0, function, 0,
                      0,     static_cast<std::int32_t>(result)};
    note(how, record);
    return result == CUDA_SUCCESS;
}

bool batch(const Driver& driver, Calls calls, Note how) {
    bool good = true;
    const std::size_t pairs = kCallsPerBatch / 2;
    switch (calls) {
        case Calls::kInfo:
            for (std::size_t i = 0; i < kCallsPerBatch; ++i) {
                std::size_t unused = 0;
                std::size_t total = 0;
                good &= noted(how, 3, 0, [&] { return driver.info(&unused, &total); });
            }
            break;
        case Calls::kAlloc:
            for (std::size_t i = 0; i < pairs; ++i) {
                CUdeviceptr address = 0;
                good &= noted(how, 1, kBytes, [&] { return driver.allocate(&address, kBytes); });
                good &= noted(how, 2, 0, [&] { return driver.release(address); });
            }
            break;
        case Calls::kAsync:
            for (std::size_t i = 0; i < pairs; ++i) {
                CUdeviceptr address = 0;
                good &=
                    noted(how, 4, kBytes, [&] { return driver.allocate_async(&address, kBytes, nullptr); });
                good &= noted(how, 5, 0, [&] { return driver.release_async(address, nullptr); });
            }
            break;
        case Calls::kCreate: {
            CUmemAllocationProp properties{};
            properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            for (std::size_t i = 0; i < pairs; ++i) {
                CUmemGenericAllocationHandle handle = 0;
                good &= noted(how, 6, kHandleBytes,
                              [&] { return driver.create(&handle, kHandleBytes, &properties, 0); });
                good &= noted(how, 7, 0, [&] { return driver.release_handle(handle); });
            }
            break;
        }
    }
    return good;
}

void measure(const Driver& driver, CUcontext context, const Plan& plan, std::atomic<int>& waiting,
             Samples& samples) {
    samples.failed = driver.set_current(context) != CUDA_SUCCESS;
    const InstructionCounter counter;
    samples.failed = samples.failed || !batch(driver, plan.calls, plan.how);  // warms up
    --waiting;
    while (waiting.load() > 0) std::this_thread::yield();
    for (int i = 0; i < plan.batches && !samples.failed; ++i) {
        if (plan.pause.tv_nsec != 0) nanosleep(&plan.pause, nullptr);
        const std::uint64_t instructions = counter.available() ? counter.now() : 0;
        const std::uint64_t begin = monotonic_ns();
        samples.failed = !batch(driver, plan.calls, plan.how);
        const std::uint64_t spent = monotonic_ns() - begin;
        samples.ns.push_back(static_cast<double>(spent) / kCallsPerBatch);
        if (counter.available()) {
            samples.instructions.push_back(static_cast<double>(counter.now() - instructions) /
                                           kCallsPerBatch);
        }
    }
}

// `depth` frames further down.
template <typename Function>
[[gnu::noinline]] void below(int depth, Function&& function) {
    if (depth <= 0)
        function();
    else
        below(depth - 1, function);
    keep(depth);  // not a tail call
}

template <typename Read>
double cost_of(Read&& read_clock) {
    constexpr int kReads = 10'000;
    std::vector<double> batches;
    for (int b = 0; b < 21; ++b) {
        const std::uint64_t begin = monotonic_ns();
        for (int i = 0; i < kReads; ++i) keep(read_clock());
        batches.push_back(static_cast<double>(monotonic_ns() - begin) / kReads);
    }
    return median(batches);
}

double cost_of_tsc() {
#if defined(__x86_64__)
    return cost_of([] { return __rdtsc(); });
#else
    return 0;
#endif
}

double cost_of_clock() {
    return cost_of([] {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<std::uint64_t>(now.tv_nsec);
    });
}

int complain(const std::string& what) {
    fmt::print(stderr, "shim_worker: {}\n", what);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    constexpr const char* kUsage =
        "usage: shim_worker alloc|async|create|info none|lttng|spdlog|backtrace THREADS BATCHES [DEPTH "
        "[PAUSE_US [FILE]]]";
    if (argc < 5) return complain(kUsage);
    const std::string_view called = argv[1], wanted = argv[2];
    Plan plan;
    plan.calls = called == "alloc"    ? Calls::kAlloc
                 : called == "async"  ? Calls::kAsync
                 : called == "create" ? Calls::kCreate
                                      : Calls::kInfo;
    const int threads = std::max(1, std::min(64, atoi(argv[3])));
    plan.batches = std::max(1, atoi(argv[4]));
    plan.depth = argc > 5 ? std::max(0, std::min(1000, atoi(argv[5]))) : 0;
    if (argc > 6) plan.pause.tv_nsec = std::max(0L, std::min(999'999L, atol(argv[6]))) * 1000;
    if (wanted == "lttng") {
#ifndef FRAGSCOPE_BENCH_LTTNG
        return complain("built without LTTng-UST");
#endif
        plan.how = Note::kLttng;
    } else if (wanted == "backtrace") {
        plan.how = Note::kBacktrace;
    } else if (wanted == "spdlog") {
#ifdef FRAGSCOPE_BENCH_SPDLOG
        if (argc < 8) return complain("spdlog needs a FILE");
        logger = spdlog::basic_logger_mt("bench", argv[7], true);
        plan.how = Note::kSpdlog;
#else
        return complain("built without spdlog");
#endif
    }

    Driver driver;
    CUdevice device = 0;
    CUcontext context = nullptr;
    if (!driver.load() || driver.init(0) != CUDA_SUCCESS || driver.device(&device, 0) != CUDA_SUCCESS ||
        driver.retain(&context, device) != CUDA_SUCCESS) {
        return complain("no usable CUDA driver");
    }
    std::vector<Samples> samples(static_cast<std::size_t>(threads));
    std::vector<std::thread> running;
    std::atomic<int> waiting{threads};
    const std::uint64_t begin = monotonic_ns();
    for (Samples& own : samples) {
        running.emplace_back(
            [&] { below(plan.depth, [&] { measure(driver, context, plan, waiting, own); }); });
    }
    for (std::thread& thread : running) thread.join();
    const double seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
    const double calls =
        static_cast<double>(threads) * (plan.batches + 1) * static_cast<double>(kCallsPerBatch);

    std::vector<double> ns;
    std::vector<double> instructions;
    for (const Samples& own : samples) {
        if (own.failed) return complain("a driver call failed");
        ns.insert(ns.end(), own.ns.begin(), own.ns.end());
        instructions.insert(instructions.end(), own.instructions.begin(), own.instructions.end());
    }
    fmt::print(
        "{{\"ns\": {:.2f}, \"instructions\": {}, \"tsc_ns\": {:.2f}, \"clock_ns\": {:.2f}, \"calls\": "
        "{:.0f}, \"per_second\": {:.0f}}}\n",
        median(ns), instructions.empty() ? "null" : fmt::format("{:.1f}", median(instructions)),
        cost_of_tsc(), cost_of_clock(), calls, calls / seconds);
    return 0;
}
