// A program under test: `victim NAME ARGS…` runs the scenario of that name. It knows nothing of the shim.
// Linked against the driver like a program built with -lcuda. What it saw it writes to stdout, one line a
// fact; the test compares.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fake_driver.h"

namespace {

using Arguments = std::vector<std::string>;

// Which library an address is of, without its path and version.
std::string home(void* address) {
    Dl_info info;
    if (address == nullptr) return "null";
    if (dladdr(address, &info) == 0) return "unknown";
    const char* slash = std::strrchr(info.dli_fname, '/');
    std::string file = slash != nullptr ? slash + 1 : info.dli_fname;
    return file.substr(0, file.find('.'));
}

void* open_driver() { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL); }

int linear(const Arguments& arguments) {
    const int times = arguments.empty() ? 1 : std::atoi(arguments[0].c_str());
    cuInit(0);
    fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
    for (int i = 0; i < times; ++i) {
        CUdeviceptr address = 0;
        cuMemAlloc_v2(&address, 1000);
        cuMemFree_v2(address);
    }
    return 0;
}

// One of each kind, in a known order.
int kinds(const Arguments&) {
    cuInit(0);
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    CUdeviceptr address = 0;
    std::size_t pitch = 0, free_bytes = 0;
    void* host = nullptr;
    cuMemAllocPitch_v2(&address, &pitch, 100, 10, 4);
    cuMemFree_v2(address);
    cuMemHostAlloc(&host, 4096, 0);
    cuMemFreeHost(host);
    cuMemAddressReserve(&address, 4u << 20, 0, 0, 0);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
    cuMemCreate(&handle, 2u << 20, &properties, 0);
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {-7}};
    CUmemGenericAllocationHandle on_host = 0;
    cuMemCreate(&on_host, 2u << 20, &properties, 0);
    cuMemMap(address, 2u << 20, 0, handle, 0);
    CUmemAccessDesc access[2] = {};
    access[0] = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access[1] = {{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    cuMemSetAccess(address, 2u << 20, access, 2);
    cuMemsetD8_v2(address, 0, 512);
    cuMemsetD8_v2(address, 0, 512);
    cuMemsetD8_v2(address, 0, 1024);
    cuMemcpyHtoD_v2(address + 1024, &pitch, 8);
    cuMemUnmap(address, 2u << 20);
    cuMemRelease(handle);
    cuMemAddressFree(address, 4u << 20);
    cuMemAllocAsync(&address, 100, nullptr);
    cuStreamSynchronize(nullptr);
    cuMemFreeAsync(address, nullptr);
    cuStreamSynchronize(reinterpret_cast<CUstream>(0x60));
    cuStreamSynchronize(nullptr);
    cuStreamSynchronize(nullptr);
    CUmemoryPool pool = nullptr;
    CUmemPoolProps pool_properties{};
    pool_properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    pool_properties.maxSize = 1u << 30;
    cuMemPoolCreate(&pool, &pool_properties);
    cuuint64_t threshold = 1u << 20;
    cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    cuDeviceSetMemPool(0, pool);
    cuMemAllocAsync_ptsz(&address, 200, nullptr);
    cuMemPoolTrimTo(pool, 0);
    cuMemPoolDestroy(pool);
    cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    CUDA_MEMCPY2D copy{};
    cuMemcpy2D_v2(&copy);
    cuMemGetInfo_v2(&free_bytes, nullptr);
    cuMemGetInfo_v2(nullptr, nullptr);
    cuDevicePrimaryCtxRelease_v2(0);
    return 0;
}

// Where each door leads. Run without the shim, every line names the driver.
int doors(const Arguments&) {
    void* driver = open_driver();
    for (const char* function :
         {"cuMemAlloc_v2", "cuMemAlloc", "cuGetProcAddress_v2", "cuCtxGetFlags", "cuNoSuchFunction"}) {
        std::printf("handle %s %s\n", function, home(dlsym(driver, function)).c_str());
        std::printf("again %s %s\n", function, home(dlsym(driver, function)).c_str());
        std::printf("default %s %s\n", function, home(dlsym(RTLD_DEFAULT, function)).c_str());
        std::printf("next %s %s\n", function, home(dlsym(RTLD_NEXT, function)).c_str());
    }
    std::printf("malloc %s\n", home(dlsym(RTLD_NEXT, "malloc")).c_str());
    using Resolver = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    auto resolver = reinterpret_cast<Resolver>(dlsym(driver, "cuGetProcAddress_v2"));
    void* address = nullptr;
    CUdriverProcAddressQueryResult status{};
    for (const char* function :
         {"cuMemAlloc", "cuInit", "cuMemAllocAsync", "cuGetProcAddress", "cuCtxGetFlags", "cuNone", ""}) {
        const CUresult result = resolver(function, &address, 12000, 0, nullptr);
        std::printf("resolver %s %d %s\n", function, result, home(address).c_str());
    }
    resolver("cuMemAlloc", &address, 12000, 0, &status);
    std::printf("status %d\n", status);
    std::printf("null %d\n", resolver("cuMemAlloc", nullptr, 12000, 0, nullptr));
    std::printf("self %d\n", cuCtxSynchronize());
    return 0;
}

// Two threads: one frees what the other then gets.
int reuse(const Arguments&) {
    cuInit(0);
    auto work = [] {
        for (int i = 0; i < 20000; ++i) {
            CUdeviceptr address = 0;
            cuMemAlloc_v2(&address, 64);
            cuMemFree_v2(address);
        }
    };
    std::thread other(work);
    work();
    other.join();
    return 0;
}

// Calls that fail, and what the program sees of it.
int failing(const Arguments& arguments) {
    cuInit(0);
    fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
    CUmemoryPool pool = nullptr;
    CUmemPoolProps properties{};
    properties.maxSize = 3u << 20;
    cuMemPoolCreate(&pool, &properties);
    CUmemoryPool own = nullptr;
    cuDeviceGetMemPool(&own, 0);
    const int times = arguments.empty() ? 32 : std::atoi(arguments[0].c_str());
    dlopen("no such library", RTLD_LAZY);  // leaves a message for dlerror()
    for (int i = 0; i < times; ++i) {
        CUdeviceptr address = 5;
        errno = 3;
        const CUresult result = cuMemAlloc_v2(&address, 1u << 20);
        std::printf("%d %llx %d\n", result, address, errno);
    }
    const char* message = dlerror();
    std::printf("dlerror %s\n", message != nullptr ? message : "none");
    return 0;
}

int forking(const Arguments&) {
    linear({"3"});
    const pid_t child = fork();
    if (child == 0) {
        linear({"2"});
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    const pid_t idle = fork();
    if (idle == 0) _exit(0);
    waitpid(idle, nullptr, 0);
    const pid_t quick = vfork();
    if (quick == 0) _exit(0);
    waitpid(quick, nullptr, 0);
    linear({"1"});
    return 0;
}

// More threads in turn than there are rings.
int threads(const Arguments& arguments) {
    cuInit(0);
    for (int i = 0; i < std::atoi(arguments[0].c_str()); ++i) {
        std::thread worker([] { linear({"1"}); });
        worker.join();
    }
    return 0;
}

int closed(const Arguments&) {
    for (int file = 3; file < 1024; ++file) close(file);
    cuInit(0);
    for (int file = 3; file < 1024; ++file) close(file);
    return linear({"5"});
}

int capturing(const Arguments&) {
    cuInit(0);
    fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
    const auto stream = reinterpret_cast<CUstream>(0x50);
    CUdeviceptr address = 0;
    CUgraph graph = nullptr;
    cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuMemAllocAsync(&address, 100, stream);
    cuMemFreeAsync(address, stream);
    cuMemAllocAsync(&address, 100, nullptr);
    cuMemAlloc_v2(&address, 100);
    std::printf("unsafe %d\n", fake_unsafe_calls());
    cuStreamEndCapture(stream, &graph);
    return 0;
}

int exec_self(const Arguments& arguments) {
    linear({"2"});
    if (!arguments.empty()) return 0;
    execl("/proc/self/exe", "victim", "exec", "again", nullptr);
    return 1;
}

// Allocates by each door and frees directly; says what another preloaded library saw of it, if there is one.
int rivalled(const Arguments&) {
    cuInit(0);
    fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
    void* handle = open_driver();
    using Allocate = CUresult (*)(CUdeviceptr*, std::size_t);
    using Resolver = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    auto by_handle = reinterpret_cast<Allocate>(dlsym(handle, "cuMemAlloc_v2"));
    auto resolver = reinterpret_cast<Resolver>(dlsym(handle, "cuGetProcAddress_v2"));
    void* resolved = nullptr;
    resolver("cuMemAlloc", &resolved, 12000, 0, nullptr);
    const Allocate doors[] = {cuMemAlloc_v2, by_handle, reinterpret_cast<Allocate>(resolved)};
    auto calls = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "rival_calls"));
    for (const Allocate allocate : doors)
        for (int i = 0; i < 3; ++i) {
            CUdeviceptr address = 0;
            const CUresult taken = allocate(&address, 1000);
            const CUresult freed = cuMemFree_v2(address);
            std::printf("%d %d %d\n", taken, freed, calls != nullptr ? calls() : 0);
        }
    std::size_t free_bytes = 0, total_bytes = 0;
    cuMemGetInfo_v2(&free_bytes, &total_bytes);
    std::printf("total %zu, calls %d\n", total_bytes, calls != nullptr ? calls() : 0);
    return 0;
}

// Calls without an initialised shim or after the end of main().
struct Early {
    Early() { call(); }
    ~Early() { call(); }
    static void call() {
        if (std::getenv("VICTIM_EARLY") == nullptr) return;
        CUdeviceptr address = 0;
        cuMemAlloc_v2(&address, 10);
        cuMemFree_v2(address);
    }
};
Early early;

int nothing(const Arguments&) { return 0; }

// The cost of a pair of calls, in nanoseconds, by the fastest of some rounds: "pair <ns>".
int timing(const Arguments& arguments) {
    cuInit(0);
    fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
    const int workers = arguments.empty() ? 1 : std::atoi(arguments[0].c_str());
    std::atomic<long> best{1000000};
    auto work = [&best] {
        fake_set_current(reinterpret_cast<CUcontext>(0xc0000));
        for (int round = 0; round < 200; ++round) {
            timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            for (int i = 0; i < 1000; ++i) {
                CUdeviceptr address = 0;
                cuMemAlloc_v2(&address, 64);
                cuMemFree_v2(address);
            }
            clock_gettime(CLOCK_MONOTONIC, &b);
            const long ns = (b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec;
            long seen = best.load();
            while (ns < seen && !best.compare_exchange_weak(seen, ns)) {
            }
        }
    };
    std::vector<std::thread> team;
    for (int i = 1; i < workers; ++i) team.emplace_back(work);
    work();
    for (std::thread& each : team) each.join();
    std::printf("pair %.1f\n", static_cast<double>(best.load()) / 1000);
    return 0;
}

struct Scenario {
    const char* name;
    int (*run)(const Arguments& arguments);
};
const Scenario kScenarios[] = {
    {"linear", linear},     {"kinds", kinds},    {"doors", doors},       {"reuse", reuse},
    {"failing", failing},   {"fork", forking},   {"threads", threads},   {"closed", closed},
    {"capture", capturing}, {"exec", exec_self}, {"rivalled", rivalled}, {"nothing", nothing},
    {"timing", timing},
};

}  // namespace

int main(int count, char** values) {
    const std::string name = count > 1 ? values[1] : "";
    for (const Scenario& scenario : kScenarios)
        if (name == scenario.name) return scenario.run(std::vector<std::string>(values + 2, values + count));
    std::fprintf(stderr, "no scenario called '%s'\n", name.c_str());
    return 2;
}
