// Linear memory: packing, rounding, capacity, alignment, frees.
#include "sim_test.h"

#include <algorithm>
#include <set>

using namespace sim_test;

SIM_TEST("small allocations share one block", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CHECK(before == 8 * kGiB);
    std::vector<CUdeviceptr> all;
    for (int i = 0; i < 4096; ++i) all.push_back(allocate(1));
    // 4096 units of 512 bytes fill 2 MiB exactly.
    CHECK(before - free_bytes() == 2 * kMiB);
    CHECK(std::set<CUdeviceptr>(all.begin(), all.end()).size() == 4096);
    CHECK(std::all_of(all.begin(), all.end(), [](CUdeviceptr p) { return p % 512 == 0; }));
    CHECK(*std::max_element(all.begin(), all.end()) - *std::min_element(all.begin(), all.end()) == 2 * kMiB - 512);
    const CUdeviceptr other = allocate(1);
    CHECK(before - free_bytes() == 4 * kMiB);
    CHECK(cuMemFree(other) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    for (const CUdeviceptr p : all) CHECK(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}

SIM_TEST("the largest small allocation and the smallest large one", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    allocate(kMiB);
    allocate(kMiB);
    CHECK(before - free_bytes() == 2 * kMiB);
    allocate(kMiB + 1);
    CHECK(before - free_bytes() == 4 * kMiB);
    allocate(2 * kMiB + 1);
    CHECK(before - free_bytes() == 8 * kMiB);
}

SIM_TEST("a freed hole is used again, and a hole too small is not", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr a = allocate(1000);
    const CUdeviceptr b = allocate(1000);
    allocate(1000);
    CHECK(b == a + 1024);
    CHECK(cuMemFree(b) == CUDA_SUCCESS);
    CHECK(allocate(1025) != b);
    CHECK(allocate(1024) == b);
}

SIM_TEST("memory ends exactly at the capacity", "CONTEXT_OVERHEAD=4MiB", "CAPACITY=64MiB") {
    start();
    CHECK(free_bytes() == 60 * kMiB);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, 60 * kMiB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(free_bytes() == 60 * kMiB);
    CHECK(cuMemAlloc(&address, 60 * kMiB) == CUDA_SUCCESS);
    CHECK(free_bytes() == 0);
    CUdeviceptr more = 0;
    CHECK(cuMemAlloc(&more, 1) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemFree(address) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&more, 1) == CUDA_SUCCESS);
    CHECK(free_bytes() == 58 * kMiB);
}

SIM_TEST("a driver reserve is nobody's", "CONTEXT_OVERHEAD=0", "CAPACITY=64MiB", "DRIVER_RESERVE=3MiB") {
    start();
    CHECK(free_bytes() == 60 * kMiB);
    std::size_t total = 0;
    CHECK(cuMemGetInfo(nullptr, &total) == CUDA_SUCCESS);
    CHECK(total == 64 * kMiB);
}

SIM_TEST("without a contiguity rule scattered pages will do", "CONTEXT_OVERHEAD=0", "CAPACITY=8MiB") {
    start();
    CUdeviceptr page[4], big = 0;
    for (CUdeviceptr& each : page) each = allocate(2 * kMiB);
    CHECK(cuMemFree(page[0]) == CUDA_SUCCESS);
    CHECK(cuMemFree(page[2]) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&big, 4 * kMiB) == CUDA_SUCCESS);
}

SIM_TEST("with a contiguity rule scattered pages fail linear memory only", "CONTEXT_OVERHEAD=0", "CAPACITY=8MiB",
         "CONTIGUITY=linear") {
    start();
    CUdeviceptr page[4], big = 0;
    for (CUdeviceptr& each : page) each = allocate(2 * kMiB);
    CHECK(cuMemFree(page[0]) == CUDA_SUCCESS);
    CHECK(cuMemFree(page[2]) == CUDA_SUCCESS);
    CHECK(free_bytes() == 4 * kMiB);
    CHECK(cuMemAlloc(&big, 4 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemRelease(create(4 * kMiB)) == CUDA_SUCCESS);
    CHECK(cuMemFree(page[1]) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&big, 6 * kMiB) == CUDA_SUCCESS);
}

SIM_TEST("pages of another size", "CONTEXT_OVERHEAD=0", "PAGE_SIZE=64KiB", "CAPACITY=8MiB") {
    start();
    allocate(kMiB + 1);
    CHECK(free_bytes() == 8 * kMiB - (kMiB + 64 * kKiB));
    std::size_t granularity = 0;
    const CUmemAllocationProp properties = device_memory();
    CHECK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    CHECK(granularity == 64 * kKiB);
}

SIM_TEST("wrong frees are refused", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr small = allocate(2000), large = allocate(4 * kMiB);
    CHECK(cuMemFree(small + 512) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(small + 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large + 512) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(0x1234) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(small) == CUDA_SUCCESS);
    CHECK(cuMemFree(small) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large) == CUDA_SUCCESS);
    CHECK(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc(nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc(&address, std::size_t{1} << 62) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&address, ~std::size_t{0}) == CUDA_ERROR_OUT_OF_MEMORY);
}

SIM_TEST("pitch", "CONTEXT_OVERHEAD=0") {
    start();
    CUdeviceptr address = 0;
    std::size_t pitch = 0;
    CHECK(cuMemAllocPitch(&address, &pitch, 1000, 4096, 4) == CUDA_SUCCESS);
    CHECK(pitch == 1024);
    CHECK(free_bytes() == 8 * kGiB - 4 * kMiB);
    CHECK(cuMemAllocPitch(&address, &pitch, 1000, 1, 5) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocPitch(&address, &pitch, ~std::size_t{0}, 2, 4) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("what an address is", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr small = allocate(2000), large = allocate(4 * kMiB);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CHECK(cuMemGetAddressRange(&base, &bytes, small + 1999) == CUDA_SUCCESS);
    CHECK(base == small);
    CHECK(bytes == 2000);
    CHECK(cuMemGetAddressRange(&base, &bytes, large + 1) == CUDA_SUCCESS);
    CHECK(base == large);
    CHECK(bytes == 4 * kMiB);
    CHECK(cuMemGetAddressRange(&base, &bytes, 0x1000) == CUDA_ERROR_NOT_FOUND);
    unsigned type = 0;
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, large) == CUDA_SUCCESS);
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1000) == CUDA_ERROR_INVALID_VALUE);
}
