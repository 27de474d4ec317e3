// Host, managed and array memory; copies and fills; what an address is.
#include <numeric>

#include "sim_test.h"

using namespace sim_test;

SIM_TEST("pinned memory is real and charges no device", "CONTEXT_OVERHEAD=0", "CAPACITY=8MiB") {
    start();
    const std::size_t before = free_bytes();
    void* pinned = nullptr;
    REQUIRE(cuMemHostAlloc(&pinned, 16 * kMiB, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
    std::memset(pinned, 7, 16 * kMiB);
    CHECK(free_bytes() == before);
    CUdeviceptr mapped = 0;
    unsigned flags = 0, type = 0;
    CHECK(cuMemHostGetDevicePointer(&mapped, pinned, 0) == CUDA_SUCCESS);
    CHECK(mapped == reinterpret_cast<CUdeviceptr>(pinned));
    CHECK(cuMemHostGetFlags(&flags, pinned) == CUDA_SUCCESS);
    CHECK((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, mapped) == CUDA_SUCCESS);
    CHECK(type == CU_MEMORYTYPE_HOST);
    CHECK(cuMemFreeHost(static_cast<char*>(pinned) + 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeHost(pinned) == CUDA_SUCCESS);
    CHECK(cuMemFreeHost(pinned) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("registered memory", "CONTEXT_OVERHEAD=0") {
    start();
    std::vector<char> memory(10000);
    CHECK(cuMemHostRegister(memory.data(), memory.size(), 0) == CUDA_SUCCESS);
    CHECK(cuMemHostRegister(memory.data() + 100, 10, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(cuMemFreeHost(memory.data()) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemHostUnregister(memory.data()) == CUDA_SUCCESS);
    CHECK(cuMemHostUnregister(memory.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

SIM_TEST("managed memory may exceed the device", "CONTEXT_OVERHEAD=0", "CAPACITY=8MiB") {
    start();
    CUdeviceptr managed = 0;
    REQUIRE(cuMemAllocManaged(&managed, 64 * kMiB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CHECK(free_bytes() == 8 * kMiB);
    auto* bytes = reinterpret_cast<unsigned char*>(managed);
    bytes[64 * kMiB - 1] = 3;
    unsigned char back = 0;
    CHECK(cuMemcpyDtoH(&back, managed + 64 * kMiB - 1, 1) == CUDA_SUCCESS);
    CHECK(back == 3);
    unsigned is_managed = 0;
    CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed) == CUDA_SUCCESS);
    CHECK(is_managed == 1);
    CHECK(cuMemAllocManaged(&managed, 1, 77) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(managed) == CUDA_SUCCESS);
    CHECK(cuMemFree(managed) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("bytes come back as they went", "CONTEXT_OVERHEAD=0") {
    start();
    std::vector<unsigned> out(100000), back(100000);
    std::iota(out.begin(), out.end(), 1U);
    const std::size_t bytes = out.size() * sizeof(unsigned);
    const CUdeviceptr a = allocate(bytes), b = allocate(4 * kMiB);
    CHECK(cuMemcpyHtoD(a, out.data(), bytes) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoD(b + 12, a, bytes) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(back.data(), b + 12, bytes) == CUDA_SUCCESS);
    CHECK(back == out);
    CHECK(cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), a + 4, 4) == CUDA_SUCCESS);
    CHECK(back[0] == 2);
    // One byte too many, and not one byte moved.
    CHECK(cuMemcpyHtoD(a + 4, out.data(), bytes) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyDtoH(back.data(), a + 4, 4) == CUDA_SUCCESS);
    CHECK(back[0] == 2);
    CHECK(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(back.data()), out.data(), 4) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(a) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(back.data(), a, 4) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("fills, over whole chunks and parts", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr a = allocate(4 * kMiB);
    CHECK(cuMemsetD8(a, 0x11, 4 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemsetD32(a + 4, 0xaabbccdd, 1) == CUDA_SUCCESS);
    CHECK(cuMemsetD16(a + 2 * kMiB, 0x2233, kMiB / 2) == CUDA_SUCCESS);
    CHECK(cuMemsetD16(a + 1, 0x2233, 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemsetD8(a, 0, 4 * kMiB + 1) == CUDA_ERROR_INVALID_VALUE);
    unsigned words[3];
    CHECK(cuMemcpyDtoH(words, a, sizeof words) == CUDA_SUCCESS);
    CHECK(words[0] == 0x11111111);
    CHECK(words[1] == 0xaabbccdd);
    CHECK(words[2] == 0x11111111);
    CHECK(cuMemcpyDtoH(words, a + 3 * kMiB - 4, 8) == CUDA_SUCCESS);
    CHECK(words[0] == 0x22332233);
    CHECK(words[1] == 0x11111111);
}

SIM_TEST("arrays cost pages and hold what is copied", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR description{300, 200, CU_AD_FORMAT_FLOAT, 4};
    REQUIRE(cuArrayCreate(&array, &description) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    std::vector<float> out(4 * 10), back(4 * 10);
    std::iota(out.begin(), out.end(), 1.0F);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = out.data();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.dstXInBytes = 160;
    copy.dstY = 100;
    copy.WidthInBytes = 80;
    copy.Height = 2;
    CHECK(cuMemcpy2D(&copy) == CUDA_SUCCESS);
    std::swap(copy.srcArray, copy.dstArray);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcXInBytes = 160;
    copy.srcY = 100;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = back.data();
    copy.dstXInBytes = copy.dstY = 0;
    CHECK(cuMemcpy2D(&copy) == CUDA_SUCCESS);
    CHECK(back == out);
    copy.srcY = 199;
    CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuArrayDestroy(array) == CUDA_SUCCESS);
    CHECK(cuArrayDestroy(array) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(free_bytes() == before);
    description.NumChannels = 3;
    CHECK(cuArrayCreate(&array, &description) == CUDA_ERROR_INVALID_VALUE);
}
