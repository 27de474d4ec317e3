// A program on the simulated driver whose memory is looked at in moments of the shim's own: `moments NAME
// ARGS…`. It knows nothing of the shim. What it saw it writes to stdout, one "name number" a line.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

void say(const char* name, unsigned long long value) { std::printf("%s %llu\n", name, value); }

void must(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    std::printf("failed %s %d\n", what, static_cast<int>(result));
    std::exit(1);
}
#define MUST(call) must(call, #call)

CUcontext start(int device = 0) {
    MUST(cuInit(0));
    CUcontext context = nullptr;
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return context;
}

std::size_t free_now() {
    std::size_t free_bytes = 0, total = 0;
    MUST(cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
}

CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

double elapsed_ms() {
    static timespec first{};
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    if (first.tv_sec == 0) first = time;
    return static_cast<double>(time.tv_sec - first.tv_sec) * 1e3 +
           static_cast<double>(time.tv_nsec - first.tv_nsec) / 1e6;
}

void say_unsafe() {
    const auto count =
        reinterpret_cast<unsigned long long (*)()>(dlsym(RTLD_DEFAULT, "fragscope_sim_unsafe_calls"));
    say("unsafe", count != nullptr ? count() : 999);
}

// A context's life: `created`: one of the program's own; else the device's primary one.
int life(bool created) {
    MUST(cuInit(0));
    CUcontext context = nullptr;
    if (created) {
        MUST(cuCtxCreate_v2(&context, 0, 0));
    } else {
        MUST(cuDevicePrimaryCtxRetain(&context, 0));
        MUST(cuCtxSetCurrent(context));
    }
    say("start", free_now());
    allocate(5 * kMiB);
    say("end", free_now());
    if (created)
        MUST(cuCtxDestroy_v2(context));
    else
        MUST(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}

int to_the_end() {
    start();
    allocate(3 * kMiB);
    say("end", free_now());
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    say("child", static_cast<unsigned>(status));
    return 0;
}

int end_in_handler() {
    start();
    signal(SIGUSR1, [](int) { std::exit(0); });
    raise(SIGUSR1);
    return 1;
}

int churn(std::size_t bytes, int milliseconds) {
    start();
    const double begun = elapsed_ms();
    unsigned long long pairs = 0;
    do {
        MUST(cuMemFree_v2(allocate(bytes)));
        ++pairs;
    } while (elapsed_ms() - begun < milliseconds);
    say("pairs", pairs);
    say("milliseconds", static_cast<unsigned long long>(elapsed_ms() - begun) + 1);
    return 0;
}

// Allocations and a failure while a stream is captured.
int in_capture() {
    start();
    CUstream stream = nullptr;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    for (const double begun = elapsed_ms(); elapsed_ms() - begun < 5;) {
        CUmemGenericAllocationHandle handle = 0;
        MUST(cuMemCreate(&handle, 2 * kMiB, &properties, 0));
        MUST(cuMemRelease(handle));
    }
    CUmemGenericAllocationHandle handle = 0;
    say("result", static_cast<unsigned>(cuMemCreate(&handle, std::size_t{1} << 40, &properties, 0)));
    CUgraph graph = nullptr;
    MUST(cuStreamEndCapture(stream, &graph));
    say_unsafe();
    MUST(cuGraphDestroy(graph));
    for (const double begun = elapsed_ms(); elapsed_ms() - begun < 5;) MUST(cuMemFree_v2(allocate(2 * kMiB)));
    return 0;
}

// A failure while contexts of two devices are there, the second one's current.
int two_devices() {
    CUcontext first = start(0), second = nullptr;
    allocate(7 * kMiB);
    say("device0", free_now());
    MUST(cuCtxCreate_v2(&second, 0, 1));
    say("device1", free_now());
    CUdeviceptr address = 0;
    say("result", static_cast<unsigned>(cuMemAlloc_v2(&address, std::size_t{1} << 40)));
    CUcontext current = nullptr;
    MUST(cuCtxPopCurrent_v2(&current));
    say("second current", current == second);
    MUST(cuCtxPopCurrent_v2(&current));
    say("first below", current == first);
    say("nothing below", cuCtxPopCurrent_v2(&current) != CUDA_SUCCESS);
    return 0;
}

// The largest multiple of `step` that `attempt` succeeds with, going up.
std::size_t largest(std::size_t step, std::size_t most, const std::function<bool(std::size_t)>& attempt) {
    std::size_t bytes = step;
    while (bytes <= most && attempt(bytes)) bytes += step;
    return bytes - step;
}

// Leaves holes behind, fails, and finds out by itself what the device still gives. `search`: "no": only
// fails.
int exhausted(const std::string& search) {
    start();
    CUmemoryPool program_pool = nullptr;
    MUST(cuDeviceGetMemPool(&program_pool, 0));
    CUdeviceptr pooled = 0;
    MUST(cuMemAllocFromPoolAsync(&pooled, 5 * kMiB, program_pool, nullptr));
    // Blocks of 2, 4, 6, … MiB until the device is full; every third goes.
    std::vector<CUdeviceptr> blocks;
    for (std::size_t size = 2 * kMiB;; size += 2 * kMiB) {
        CUdeviceptr address = 0;
        if (size + 8 * kMiB > free_now() || cuMemAlloc_v2(&address, size) != CUDA_SUCCESS) break;
        blocks.push_back(address);
    }
    for (std::size_t i = 0; i < blocks.size(); i += 3) MUST(cuMemFree_v2(blocks[i]));
    const std::size_t before = free_now();
    cuuint64_t reserved_high = 0, reserved_high_after = 0;
    MUST(cuMemPoolGetAttribute(program_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reserved_high));
    CUdeviceptr address = 1234;
    say("result", static_cast<unsigned>(cuMemAlloc_v2(&address, std::size_t{1} << 40)));
    say("same out", address == 1234);
    say("free unchanged", before == free_now());
    MUST(cuMemPoolGetAttribute(program_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &reserved_high_after));
    say("pool unchanged", reserved_high == reserved_high_after);
    if (search == "no") return 0;

    const std::size_t most = std::size_t{1} << 31, step = 2 * kMiB;
    say("direct", largest(step, most, [](std::size_t bytes) {
            CUdeviceptr got = 0;
            return cuMemAlloc_v2(&got, bytes) == CUDA_SUCCESS && cuMemFree_v2(got) == CUDA_SUCCESS;
        }));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    const auto handles = [&](std::size_t bytes) {
        CUmemGenericAllocationHandle got = 0;
        return cuMemCreate(&got, bytes, &properties, 0) == CUDA_SUCCESS && cuMemRelease(got) == CUDA_SUCCESS;
    };
    say("minimum", largest(step, most, handles));
    say("recommended", largest(4 * step, most, handles));
    std::vector<CUmemGenericAllocationHandle> all;
    for (CUmemGenericAllocationHandle got = 0; cuMemCreate(&got, step, &properties, 0) == CUDA_SUCCESS;)
        all.push_back(got);
    for (const CUmemGenericAllocationHandle each : all) MUST(cuMemRelease(each));
    say("stitched", all.size() * step);
    say("addresses", largest(step, 2 * most, [](std::size_t bytes) {
            CUdeviceptr got = 0;
            return cuMemAddressReserve(&got, bytes, 0, 0, 0) == CUDA_SUCCESS &&
                   cuMemAddressFree(got, bytes) == CUDA_SUCCESS;
        }));
    CUmemPoolProps pool_properties{};
    pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool_properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    say("pool", largest(step, most, [&](std::size_t bytes) {
            CUmemoryPool pool = nullptr;
            MUST(cuMemPoolCreate(&pool, &pool_properties));
            CUdeviceptr got = 0;
            const bool granted = cuMemAllocFromPoolAsync(&got, bytes, pool, nullptr) == CUDA_SUCCESS;
            if (granted) MUST(cuMemFree_v2(got));
            MUST(cuMemPoolDestroy(pool));
            return granted;
        }));
    say("managed", largest(step, 1024 * kMiB, [](std::size_t bytes) {
            CUdeviceptr got = 0;
            return cuMemAllocManaged(&got, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS &&
                   cuMemFree_v2(got) == CUDA_SUCCESS;
        }));
    return 0;
}

}  // namespace

int main(int count, char** values) {
    const std::string name = count > 1 ? values[1] : "";
    const auto number = [&](int i) { return count > i ? std::atoi(values[i]) : 0; };
    if (name == "life") return life(number(2) != 0);
    if (name == "to-the-end") return to_the_end();
    if (name == "end-in-handler") return end_in_handler();
    if (name == "churn") return churn(static_cast<std::size_t>(number(2)), number(3));
    if (name == "capture") return in_capture();
    if (name == "two-devices") return two_devices();
    if (name == "exhausted") return exhausted(count > 2 ? values[2] : "");
    std::fprintf(stderr, "no scenario called '%s'\n", name.c_str());
    return 2;
}
