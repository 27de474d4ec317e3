// Memory, copies, pools, properties and entry points, against the simulated driver.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

namespace {

std::vector<unsigned char> pattern(size_t bytes) {
    std::vector<unsigned char> result(bytes);
    std::iota(result.begin(), result.end(), static_cast<unsigned char>(1));
    return result;
}

size_t free_bytes() {
    size_t free = 0;
    size_t total = 0;
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    return free;
}

int attribute(CUdevice_attribute which) {
    int value = -1;
    REQUIRE(cuDeviceGetAttribute(&value, which, 0) == CUDA_SUCCESS);
    return value;
}

}  // namespace

TEST_CASE("memory: bytes survive the round trip in every direction") {
    const std::vector<unsigned char> out = pattern(100000);
    std::vector<unsigned char> in(out.size());
    void* first = nullptr;
    void* second = nullptr;
    REQUIRE(cudaMalloc(&first, out.size()) == cudaSuccess);
    REQUIRE(cudaMalloc(&second, out.size()) == cudaSuccess);
    CHECK(cudaMemcpy(first, out.data(), out.size(), cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaMemcpy(second, first, out.size(), cudaMemcpyDeviceToDevice) == cudaSuccess);
    CHECK(cudaMemcpy(in.data(), second, in.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(in == out);
    CHECK(cudaMemset(first, 0x7e, 1000) == cudaSuccess);
    CHECK(cudaMemcpy(in.data(), first, in.size(), cudaMemcpyDefault) == cudaSuccess);
    CHECK(in[999] == 0x7e);
    CHECK(in[1000] == out[1000]);
    CHECK(cudaMemcpy(in.data(), first, 1, static_cast<cudaMemcpyKind>(7)) == cudaErrorInvalidMemcpyDirection);
    CHECK(cudaFree(first) == cudaSuccess);
    CHECK(cudaFree(second) == cudaSuccess);
    CHECK(cudaFree(second) == cudaErrorInvalidValue);
}

TEST_CASE("memory: rows survive a pitched round trip") {
    constexpr size_t kWidth = 100;
    constexpr size_t kRows = 7;
    const std::vector<unsigned char> out = pattern(kWidth * kRows);
    std::vector<unsigned char> in(out.size());
    void* pointer = nullptr;
    size_t pitch = 0;
    REQUIRE(cudaMallocPitch(&pointer, &pitch, kWidth, kRows) == cudaSuccess);
    CHECK(pitch >= kWidth);
    CHECK(cudaMemcpy2D(pointer, pitch, out.data(), kWidth, kWidth, kRows, cudaMemcpyHostToDevice) ==
          cudaSuccess);
    CHECK(cudaMemcpy2DAsync(in.data(), kWidth, pointer, pitch, kWidth, kRows, cudaMemcpyDeviceToHost,
                            nullptr) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(in == out);
    CHECK(cudaFree(pointer) == cudaSuccess);
}

TEST_CASE("memory: sizes of zero and null pointers keep the runtime's promises") {
    int marker = 0;
    void* pointer = &marker;
    CHECK(cudaMalloc(&pointer, 0) == cudaSuccess);
    CHECK(pointer == nullptr);
    CHECK(cudaMalloc(nullptr, 16) == cudaErrorInvalidValue);
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(cudaFreeHost(nullptr) == cudaSuccess);
    CHECK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDeviceToHost) == cudaSuccess);
}

TEST_CASE("memory: pointers know where they live") {
    void* device = nullptr;
    void* host = nullptr;
    int local = 0;
    REQUIRE(cudaMalloc(&device, 4096) == cudaSuccess);
    REQUIRE(cudaMallocHost(&host, 4096) == cudaSuccess);
    cudaPointerAttributes attributes = {};
    REQUIRE(cudaPointerGetAttributes(&attributes, device) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeDevice);
    CHECK(attributes.device == 0);
    CHECK(attributes.devicePointer == device);
    REQUIRE(cudaPointerGetAttributes(&attributes, host) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeHost);
    CHECK(attributes.hostPointer == host);
    REQUIRE(cudaPointerGetAttributes(&attributes, &local) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(attributes.hostPointer == &local);
    CHECK(cudaFree(device) == cudaSuccess);
    CHECK(cudaFreeHost(host) == cudaSuccess);
}

TEST_CASE("memory: arrays keep their description and give their memory back") {
    const size_t before = free_bytes();
    const cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 32, 0, 0, cudaChannelFormatKindFloat);
    cudaArray_t array = nullptr;
    REQUIRE(cudaMallocArray(&array, &format, 2048, 1024) == cudaSuccess);
    CHECK(free_bytes() + 2048 * 1024 * 8 <= before);
    cudaChannelFormatDesc got = {};
    cudaExtent extent = {};
    REQUIRE(cudaArrayGetInfo(&got, &extent, nullptr, array) == cudaSuccess);
    CHECK(got.x == 32);
    CHECK(got.y == 32);
    CHECK(got.z == 0);
    CHECK(got.f == cudaChannelFormatKindFloat);
    CHECK(extent.width == 2048);
    CHECK(extent.height == 1024);
    CHECK(cudaFreeArray(array) == cudaSuccess);
    CHECK(free_bytes() == before);
    const cudaChannelFormatDesc three = cudaCreateChannelDesc(8, 8, 8, 0, cudaChannelFormatKindUnsigned);
    CHECK(cudaMallocArray(&array, &three, 16, 16) == cudaErrorInvalidValue);
}

TEST_CASE("pools: a pool keeps what its threshold allows, and a trim gives it back") {
    cudaMemPool_t pool = nullptr;
    REQUIRE(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
    unsigned long long threshold = ~0ULL;
    REQUIRE(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) == cudaSuccess);
    const size_t before = free_bytes();
    void* pointer = nullptr;
    REQUIRE(cudaMallocAsync(&pointer, size_t{256} << 20, nullptr) == cudaSuccess);
    REQUIRE(cudaFreeAsync(pointer, nullptr) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    unsigned long long reserved = 0;
    REQUIRE(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess);
    CHECK(reserved >= size_t{256} << 20);
    CHECK(free_bytes() + reserved == before);
    REQUIRE(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
    CHECK(free_bytes() == before);
}

TEST_CASE("properties: every field agrees with the driver's attribute") {
    // 13.0's and 12's layout: a program compiled against the header reads the fields at these places.
    static_assert(offsetof(cudaDeviceProp, totalGlobalMem) == 288);
    static_assert(sizeof(cudaDeviceProp) == (CUDART_VERSION >= 13000 ? 1008 : 1032));
    cudaDeviceProp prop = {};
    std::memset(static_cast<void*>(&prop), 0xff, sizeof prop);
    REQUIRE(cudaGetDeviceProperties(&prop, 0) == cudaSuccess);
    size_t total = 0;
    REQUIRE(cuDeviceTotalMem(&total, 0) == CUDA_SUCCESS);
    char name[256] = {};
    REQUIRE(cuDeviceGetName(name, sizeof name, 0) == CUDA_SUCCESS);
    CHECK(prop.totalGlobalMem == total);
    CHECK(std::string(prop.name) == name);
    CHECK(prop.major == attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    CHECK(prop.multiProcessorCount == attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    CHECK(prop.warpSize == attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
    CHECK(prop.maxThreadsDim[2] == attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z));
    CHECK(prop.memoryPoolsSupported == attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
#if CUDART_VERSION >= 13000
    CHECK(prop.hostNumaMultinodeIpcSupported ==
          attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED));
#else
    CHECK(prop.clockRate == attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
    CHECK(prop.memoryClockRate == attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
    CHECK(prop.cooperativeMultiDeviceLaunch ==
          attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH));
#endif
    CHECK(prop.reserved[std::size(prop.reserved) - 1] == 0);
    CHECK(cudaGetDeviceProperties(&prop, 99) == cudaErrorInvalidDevice);
    int value = 0;
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0) == cudaSuccess);
    CHECK(value == prop.warpSize);
}

TEST_CASE("versions") {
    int version = 0;
    CHECK(cudaRuntimeGetVersion(&version) == cudaSuccess);
    CHECK(version == CUDART_VERSION);
    int driver_version = 0;
    REQUIRE(cuDriverGetVersion(&driver_version) == CUDA_SUCCESS);
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess);
    CHECK(version == driver_version);
}

extern "C" cudaError_t cudaGetDriverEntryPoint_ptsz(const char*, void**, unsigned long long,
                                                    cudaDriverEntryPointQueryResult*);
extern "C" cudaError_t cudaMallocAsync_ptsz(void**, size_t, cudaStream_t);

TEST_CASE("entry points: the plain function gives legacy-stream symbols, the per-thread one the others") {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(driver != nullptr);
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    REQUIRE(cudaGetDriverEntryPoint("cuMemAllocAsync", &found, cudaEnableDefault, &status) == cudaSuccess);
    CHECK(status == cudaDriverEntryPointSuccess);
    CHECK(found == dlsym(driver, "cuMemAllocAsync"));
    REQUIRE(cudaGetDriverEntryPoint_ptsz("cuMemAllocAsync", &found, cudaEnableDefault, &status) ==
            cudaSuccess);
    CHECK(found == dlsym(driver, "cuMemAllocAsync_ptsz"));
    REQUIRE(cudaGetDriverEntryPoint_ptsz("cuMemAllocAsync", &found, cudaEnableLegacyStream, &status) ==
            cudaSuccess);
    CHECK(found == dlsym(driver, "cuMemAllocAsync"));
    REQUIRE(cudaGetDriverEntryPointByVersion("cuMemAlloc", &found, 3020, cudaEnableDefault, &status) ==
            cudaSuccess);
    CHECK(found == dlsym(driver, "cuMemAlloc_v2"));
    REQUIRE(cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 9000, cudaEnableDefault, &status) ==
            cudaSuccess);
    CHECK(found == nullptr);
    CHECK(status == cudaDriverEntryPointVersionNotSufficent);
    REQUIRE(cudaGetDriverEntryPoint("cuNoSuchFunction", &found, cudaEnableDefault, &status) == cudaSuccess);
    CHECK(found == nullptr);
    CHECK(status == cudaDriverEntryPointSymbolNotFound);
    CHECK(cudaGetDriverEntryPoint("cuInit", &found, cudaEnableDefault, nullptr) == cudaSuccess);
    CHECK(found != nullptr);
}

TEST_CASE("entry points: the per-thread runtime function allocates too") {
    void* pointer = nullptr;
    REQUIRE(cudaMallocAsync_ptsz(&pointer, 4096, nullptr) == cudaSuccess);
    CHECK(pointer != nullptr);
    CHECK(cudaFreeAsync(pointer, nullptr) == cudaSuccess);
}
