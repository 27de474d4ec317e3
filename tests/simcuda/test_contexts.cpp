// Contexts: overhead, what their end frees, the per-thread stack, error codes.
#include <thread>

#include "sim_test.h"

using namespace sim_test;

SIM_TEST("before cuInit nothing can be done", "CONTEXT_OVERHEAD=0") {
    int number = 0;
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHECK(cuDeviceGetCount(&number) == CUDA_ERROR_NOT_INITIALIZED);
    CHECK(cuMemAlloc(&address, 1) == CUDA_ERROR_NOT_INITIALIZED);
    CHECK(cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_INITIALIZED);
    CHECK(cuDriverGetVersion(&number) == CUDA_SUCCESS);
    CHECK(number == 13000);
    const char* text = nullptr;
    CHECK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS);
    CHECK(std::string(text) == "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS);
    CHECK(std::string(text) == "out of memory");
    CHECK(cuGetErrorString(static_cast<CUresult>(998), &text) == CUDA_ERROR_INVALID_VALUE);
    CHECK(text == nullptr);
    CHECK(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuInit(0) == CUDA_SUCCESS);
    CHECK(cuInit(0) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&address, 1) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuMemFree(0x1000) == CUDA_ERROR_INVALID_CONTEXT);
    std::size_t free = 0;
    CHECK(cuMemGetInfo(&free, nullptr) == CUDA_ERROR_INVALID_CONTEXT);
}

SIM_TEST("a primary context costs its overhead while it is retained", "DEVICES=3") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    CUcontext a = nullptr, b = nullptr, watcher = nullptr;
    REQUIRE(cuCtxCreate(&watcher, nullptr, 0, 1) == CUDA_SUCCESS);
    CHECK(free_bytes() == 8 * kGiB - 256 * kMiB);
    CHECK(cuDevicePrimaryCtxRetain(&a, 1) == CUDA_SUCCESS);
    CHECK(cuDevicePrimaryCtxRetain(&b, 1) == CUDA_SUCCESS);
    CHECK(a == b);
    CHECK(free_bytes() == 8 * kGiB - 512 * kMiB);
    int active = -1;
    CHECK(cuDevicePrimaryCtxRelease(1) == CUDA_SUCCESS);
    CHECK(cuDevicePrimaryCtxGetState(1, nullptr, &active) == CUDA_SUCCESS);
    CHECK(active == 1);
    CHECK(cuDevicePrimaryCtxRelease(1) == CUDA_SUCCESS);
    CHECK(cuDevicePrimaryCtxGetState(1, nullptr, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
    CHECK(cuDevicePrimaryCtxRelease(1) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(free_bytes() == 8 * kGiB - 256 * kMiB);
    CHECK(cuDevicePrimaryCtxRetain(&a, 3) == CUDA_ERROR_INVALID_DEVICE);
}

SIM_TEST("a context that does not fit", "CAPACITY=64MiB", "CONTEXT_OVERHEAD=64MiB") {
    start();
    CHECK(free_bytes() == 0);
    CUcontext second = nullptr;
    CHECK(cuCtxCreate(&second, nullptr, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuCtxCreate(&second, nullptr, 0, 1) == CUDA_SUCCESS);
}

SIM_TEST("the end of a context frees linear, host, managed and array memory, not handles or pools",
         "CONTEXT_OVERHEAD=16MiB") {
    start();
    const std::size_t before = free_bytes();
    CUcontext context = nullptr;
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
    CUdeviceptr pool_memory = 0, managed = 0;
    void* host = nullptr;
    CUarray array = nullptr;
    CUstream stream = nullptr;
    const CUdeviceptr small = allocate(100), large = allocate(8 * kMiB);
    CUDA_ARRAY_DESCRIPTOR description{1024, 1024, CU_AD_FORMAT_FLOAT, 1};
    CHECK(cuArrayCreate(&array, &description) == CUDA_SUCCESS);
    CHECK(cuMemHostAlloc(&host, 4096, 0) == CUDA_SUCCESS);
    CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == (16 + 2 + 8 + 4) * kMiB);
    CHECK(cuMemAllocAsync(&pool_memory, 100, stream) == CUDA_SUCCESS);
    const auto handle = create(2 * kMiB);
    CHECK(cuCtxDestroy(context) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == (32 + 2) * kMiB);
    CHECK(cuMemFree(small) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeHost(host) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(managed) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuMemFree(pool_memory) == CUDA_SUCCESS);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuCtxDestroy(context) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuCtxSetCurrent(context) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuCtxSetCurrent(reinterpret_cast<CUcontext>(0x1234)) == CUDA_ERROR_INVALID_CONTEXT);
}

SIM_TEST("a reset frees, and does not release", "CONTEXT_OVERHEAD=16MiB") {
    start();
    const std::size_t before = free_bytes();
    allocate(8 * kMiB);
    CHECK(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, 1) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CUcontext again = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
}

SIM_TEST("each thread has a stack of its own", "CONTEXT_OVERHEAD=0") {
    start();
    CUcontext first = nullptr, second = nullptr, seen = nullptr;
    CHECK(cuCtxGetCurrent(&first) == CUDA_SUCCESS);
    CHECK(cuCtxCreate(&second, nullptr, 0, 1) == CUDA_SUCCESS);
    CHECK(cuCtxGetCurrent(&seen) == CUDA_SUCCESS);
    CHECK(seen == second);
    CUcontext other = first;
    std::thread([&] { cuCtxGetCurrent(&other); }).join();
    CHECK(other == nullptr);
    CUdevice device = -1;
    CHECK(cuCtxGetDevice(&device) == CUDA_SUCCESS);
    CHECK(device == 1);
    CHECK(cuCtxPopCurrent(&seen) == CUDA_SUCCESS);
    CHECK(seen == second);
    CHECK(cuCtxGetCurrent(&seen) == CUDA_SUCCESS);
    CHECK(seen == first);
    CHECK(cuCtxPushCurrent(second) == CUDA_SUCCESS);
    CHECK(cuCtxPopCurrent(&seen) == CUDA_SUCCESS);
    CHECK(cuCtxPopCurrent(&seen) == CUDA_SUCCESS);
    CHECK(cuCtxPopCurrent(&seen) == CUDA_ERROR_INVALID_CONTEXT);
}

SIM_TEST("a sticky error stays until the context ends", "CONTEXT_OVERHEAD=0", "FAULT_cuLaunchKernel=700@1") {
    start();
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CHECK(cuModuleLoadData(&module, "image") == CUDA_SUCCESS);
    CHECK(cuModuleGetFunction(&function, module, "kernel") == CUDA_SUCCESS);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CUcontext context = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&address, 1) == CUDA_SUCCESS);
}

SIM_TEST("a child of fork cannot use CUDA", "CONTEXT_OVERHEAD=0") {
    start();
    const pid_t pid = ::fork();
    if (pid == 0) {
        CUdeviceptr address = 0;
        const bool right = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuMemAlloc(&address, 1) == CUDA_ERROR_NOT_INITIALIZED;
        ::_exit(right ? 7 : 1);
    }
    CHECK(wait_child(pid) == 7);
    CHECK(cuMemFree(allocate(1)) == CUDA_SUCCESS);
}

SIM_TEST("devices say what they are", "DEVICES=2", "CAPACITY=3GiB") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    int count = 0, value = 0;
    CHECK(cuDeviceGetCount(&count) == CUDA_SUCCESS);
    CHECK(count == 2);
    char text[64];
    CHECK(cuDeviceGetName(text, sizeof text, 1) == CUDA_SUCCESS);
    CHECK(std::string(text) == "Simulated GPU 3 GiB");
    CHECK(cuDeviceGetPCIBusId(text, sizeof text, 1) == CUDA_SUCCESS);
    CHECK(std::string(text) == "0000:02:00.0");
    CUdevice device = -1;
    CHECK(cuDeviceGetByPCIBusId(&device, text) == CUDA_SUCCESS);
    CHECK(device == 1);
    CHECK(cuDeviceGetByPCIBusId(&device, "0000:09:00.0") == CUDA_ERROR_INVALID_DEVICE);
    CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0) == CUDA_SUCCESS);
    CHECK(value == 9);
    CUuuid a{}, b{};
    CHECK(cuDeviceGetUuid(&a, 0) == CUDA_SUCCESS);
    CHECK(cuDeviceGetUuid(&b, 1) == CUDA_SUCCESS);
    CHECK(std::memcmp(&a, &b, sizeof a) != 0);
    CHECK(cuDeviceGet(&device, 2) == CUDA_ERROR_INVALID_DEVICE);
}
