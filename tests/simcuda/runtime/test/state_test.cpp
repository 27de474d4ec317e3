// Contexts, devices and errors: what the runtime keeps between calls. Needs the simulated driver with two
// devices.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <string>
#include <thread>

namespace {

bool is_active(int ordinal) {
    unsigned flags = 0;
    int active = -1;
    CUdevice device = 0;
    REQUIRE(cuDeviceGet(&device, ordinal) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS);
    return active != 0;
}

}  // namespace

TEST_CASE("context: counting devices makes none, the first use of memory makes one") {
    int count = 0;
    REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
    REQUIRE(count >= 2);
    CHECK_FALSE(is_active(0));
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(is_active(0));
    CHECK_FALSE(is_active(1));
    CUcontext current = nullptr;
    REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current != nullptr);
}

TEST_CASE("context: each thread gets the primary context, of the device it chose") {
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    CHECK(is_active(1));
    CHECK_FALSE(is_active(0));
    CUcontext here = nullptr;
    REQUIRE(cuCtxGetCurrent(&here) == CUDA_SUCCESS);
    int device_there = -1;
    CUcontext same_device_there = nullptr;
    std::thread([&] {
        (void)cudaGetDevice(&device_there);
        (void)cudaSetDevice(1);
        (void)cuCtxGetCurrent(&same_device_there);
    }).join();
    CHECK(device_there == 0);
    CHECK(same_device_there == here);
    int device_here = -1;
    CHECK(cudaGetDevice(&device_here) == cudaSuccess);
    CHECK(device_here == 1);
}

TEST_CASE("context: one made through the driver API is used, not replaced") {
    CUcontext own = nullptr;
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
#if CUDA_VERSION >= 13000
    REQUIRE(cuCtxCreate(&own, nullptr, 0, 1) == CUDA_SUCCESS);
#else
    REQUIRE(cuCtxCreate(&own, 0, 1) == CUDA_SUCCESS);
#endif
    void* pointer = nullptr;
    REQUIRE(cudaMalloc(&pointer, 4096) == cudaSuccess);
    CHECK_FALSE(is_active(0));
    CHECK_FALSE(is_active(1));
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 1);
    CUcontext current = nullptr;
    REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == own);
}

TEST_CASE("context: a reset ends it, the next use makes another") {
    size_t before = 0;
    size_t total = 0;
    REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
    void* pointer = nullptr;
    REQUIRE(cudaMalloc(&pointer, size_t{64} << 20) == cudaSuccess);
    std::thread([] { CHECK(cudaFree(nullptr) == cudaSuccess); }).join();
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    CHECK_FALSE(is_active(0));
    size_t after = 0;
    REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
    CHECK(is_active(0));
    CHECK(after == before);
}

TEST_CASE("device: an ordinal out of range is refused and changes nothing") {
    CHECK(cudaSetDevice(99) == cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
}

TEST_CASE("errors: the last one stays until it is taken, and belongs to its thread") {
    void* pointer = nullptr;
    REQUIRE(cudaMalloc(&pointer, size_t{1} << 50) == cudaErrorMemoryAllocation);
    CHECK(pointer == nullptr);
    REQUIRE(cudaMalloc(&pointer, 256) == cudaSuccess);  // success does not clear it
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    cudaError_t elsewhere = cudaErrorUnknown;
    std::thread([&] { elsewhere = cudaGetLastError(); }).join();
    CHECK(elsewhere == cudaSuccess);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("errors: names and words") {
    CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
    CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
    CHECK(std::string(cudaGetErrorString(cudaSuccess)) == "no error");
    CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

TEST_CASE("errors: what the stand-in does not offer says so") {
    CHECK(cudaUserObjectRelease(nullptr, 1) == cudaErrorNotSupported);
    CHECK(cudaGetLastError() == cudaErrorNotSupported);
}

// Run with a fault set in the simulated driver: the first cuCtxSynchronize answers 700, an illegal address.
TEST_CASE("sticky: an error that ruins the context stays for all threads until a reset") {
    REQUIRE(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    cudaError_t elsewhere = cudaSuccess;
    std::thread([&] { elsewhere = cudaPeekAtLastError(); }).join();
    CHECK(elsewhere == cudaErrorIllegalAddress);
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
}

// Run with a fault set in the simulated driver: cuMemAlloc_v2 answers a code that the runtime does not know.
TEST_CASE("unmapped: a driver error without a counterpart is reported as unknown") {
    void* pointer = nullptr;
    CHECK(cudaMalloc(&pointer, 4096) == cudaErrorUnknown);
}

// Run with the last driver version of the major version before, and with the first one of the runtime's own.
// NVIDIA's runtime 12.8 on the simulated driver answers 35 to the first and starts on the second.
TEST_CASE("old driver: the runtime refuses a driver of an older major version") {
    int count = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
    int version = 0;
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
    CHECK(version / 1000 < CUDART_VERSION / 1000);
}

TEST_CASE("first driver: the runtime takes any driver of its own major version") {
    int count = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    int version = 0;
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
    CHECK(version == CUDART_VERSION / 1000 * 1000);
    void* pointer = nullptr;
    REQUIRE(cudaMalloc(&pointer, 4096) == cudaSuccess);
    CHECK(cudaFree(pointer) == cudaSuccess);
}
