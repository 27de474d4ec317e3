// Virtual memory management: reference counts, order of ends, address space.
#include "sim_test.h"

using namespace sim_test;

namespace {

CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAddressReserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
    return address;
}

}  // namespace

SIM_TEST("a mapping keeps memory whose handle was released", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUdeviceptr at = reserve(8 * kMiB);
    CHECK(free_bytes() == before);
    const auto handle = create(4 * kMiB);
    CHECK(before - free_bytes() == 4 * kMiB);
    CHECK(cuMemMap(at, 4 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 4 * kMiB);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 4 * kMiB);
    CHECK(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemUnmap(at, 4 * kMiB) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuMemAddressFree(at, 8 * kMiB) == CUDA_SUCCESS);
}

SIM_TEST("a handle keeps memory that was unmapped", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUdeviceptr at = reserve(4 * kMiB);
    const auto handle = create(2 * kMiB);
    CHECK(cuMemMap(at, 2 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(at + 2 * kMiB, 2 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    CHECK(cuMemUnmap(at, 4 * kMiB) == CUDA_SUCCESS);  // two whole mappings at once
    CHECK(before - free_bytes() == 2 * kMiB);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}

SIM_TEST("a retained handle is the same and counts", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUdeviceptr at = reserve(2 * kMiB);
    const auto handle = create(2 * kMiB);
    CHECK(cuMemMap(at, 2 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CUmemGenericAllocationHandle again = 0;
    CHECK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at + kMiB)) == CUDA_SUCCESS);
    CHECK(again == handle);
    CHECK(cuMemUnmap(at, 2 * kMiB) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    CHECK(cuMemRelease(again) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("sizes, offsets and ranges are checked", "CONTEXT_OVERHEAD=0") {
    start();
    const CUmemAllocationProp properties = device_memory();
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemCreate(&handle, kMiB, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemCreate(&handle, 0, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
    const CUmemAllocationProp nowhere = device_memory(9);
    CHECK(cuMemCreate(&handle, 2 * kMiB, &nowhere, 0) == CUDA_ERROR_INVALID_DEVICE);
    const CUdeviceptr at = reserve(8 * kMiB);
    handle = create(4 * kMiB);
    CHECK(cuMemMap(at + kMiB, 2 * kMiB, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemMap(at, 6 * kMiB, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemMap(at, 2 * kMiB, 2 * kMiB, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemMap(at + 6 * kMiB, 4 * kMiB, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemMap(at, 4 * kMiB, 0, handle + 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemMap(at, 4 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(at + 2 * kMiB, 4 * kMiB, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemUnmap(at, 2 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemUnmap(at + 2 * kMiB, 2 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemUnmap(at, 8 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAddressFree(at, 8 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemUnmap(at, 4 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemAddressFree(at, 4 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAddressFree(at, 8 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemFree(at) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("an offset where a setting allows it", "MAP_OFFSET=on", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr at = reserve(4 * kMiB);
    const auto handle = create(4 * kMiB);
    CHECK(cuMemMap(at, 2 * kMiB, 2 * kMiB, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(at + 2 * kMiB, 2 * kMiB, 4 * kMiB, handle, 0) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("access begins with none", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr at = reserve(4 * kMiB);
    const auto handle = create(4 * kMiB);
    CUmemAccessDesc access{};
    access.location = device_memory().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(at, 4 * kMiB, &access, 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemMap(at, 4 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    unsigned long long flags = 9;
    CHECK(cuMemGetAccess(&flags, &access.location, at) == CUDA_SUCCESS);
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    int value = 42, back = 0;
    CHECK(cuMemcpyHtoD(at, &value, sizeof value) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemSetAccess(at, 4 * kMiB, &access, 1) == CUDA_SUCCESS);
    CHECK(cuMemGetAccess(&flags, &access.location, at) == CUDA_SUCCESS);
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(cuMemcpyHtoD(at, &value, sizeof value) == CUDA_SUCCESS);
    // The bytes belong to the memory, not to the address.
    CHECK(cuMemUnmap(at, 4 * kMiB) == CUDA_SUCCESS);
    const CUdeviceptr other = reserve(4 * kMiB);
    CHECK(cuMemMap(other, 4 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemSetAccess(other, 4 * kMiB, &access, 1) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(&back, other, sizeof back) == CUDA_SUCCESS);
    CHECK(back == 42);
}

SIM_TEST("address space ends before memory does", "VA_BYTES=16MiB", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr a = reserve(8 * kMiB);
    const CUdeviceptr b = reserve(8 * kMiB);
    CHECK(b == a + 8 * kMiB);
    CUdeviceptr c = 0;
    CHECK(cuMemAddressReserve(&c, 2 * kMiB, 0, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&c, 1) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(free_bytes() == 8 * kGiB);
    CHECK(cuMemAddressFree(a, 8 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&c, 1) == CUDA_SUCCESS);
}

SIM_TEST("free address space in pieces fails a larger reservation", "VA_BYTES=16MiB", "CONTEXT_OVERHEAD=0") {
    start();
    CUdeviceptr piece[8], whole = 0;
    for (CUdeviceptr& each : piece) each = reserve(2 * kMiB);
    for (int i = 0; i < 8; i += 2) CHECK(cuMemAddressFree(piece[i], 2 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemAddressReserve(&whole, 4 * kMiB, 0, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAddressFree(piece[1], 2 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemAddressReserve(&whole, 6 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(whole == piece[0]);
}

SIM_TEST("an address hint is kept where it is free", "VA_BASE=0x100000000000", "VA_BYTES=64MiB") {
    start();
    CUdeviceptr address = 0, again = 0;
    const CUdeviceptr wanted = 0x100000000000 + 32 * kMiB;
    CHECK(cuMemAddressReserve(&address, 4 * kMiB, 0, wanted, 0) == CUDA_SUCCESS);
    CHECK(address == wanted);
    CHECK(cuMemAddressReserve(&again, 4 * kMiB, 0, wanted, 0) == CUDA_SUCCESS);
    CHECK(again != wanted);
    CHECK(cuMemAddressReserve(&again, 4 * kMiB, 0, 0x1000, 0) == CUDA_SUCCESS);
    CHECK(again >= 0x100000000000);
    CHECK(cuMemAddressReserve(&again, 4 * kMiB, 16 * kMiB, 0, 0) == CUDA_SUCCESS);
    CHECK(again % (16 * kMiB) == 0);
    CHECK(cuMemAddressReserve(&again, 4 * kMiB, 3 * kMiB, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAddressReserve(&again, kMiB, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("granularity settings", "GRANULARITY_MINIMUM=4MiB", "GRANULARITY_RECOMMENDED=8MiB") {
    start();
    const CUmemAllocationProp properties = device_memory();
    std::size_t bytes = 0;
    CHECK(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    CHECK(bytes == 4 * kMiB);
    CHECK(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS);
    CHECK(bytes == 8 * kMiB);
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemCreate(&handle, 2 * kMiB, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemCreate(&handle, 4 * kMiB, &properties, 0) == CUDA_SUCCESS);
}

SIM_TEST("host memory charges no device", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CUmemAllocationProp properties = device_memory();
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemCreate(&handle, 2 * kMiB, &properties, 0) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
}

SIM_TEST("an exported descriptor keeps memory", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    CUmemAllocationProp properties = device_memory();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0, imported = 0;
    REQUIRE(cuMemCreate(&handle, 2 * kMiB, &properties, 0) == CUDA_SUCCESS);
    int fd = -1, second = -1;
    CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHECK(cuMemExportToShareableHandle(&second, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHECK(fd != second);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    ::close(fd);
    CHECK(before - free_bytes() == 2 * kMiB);
    CHECK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{second}),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
    CHECK(imported != handle);
    ::close(second);
    CHECK(before - free_bytes() == 2 * kMiB);
    // Exported once more after all descriptors were closed.
    CHECK(cuMemExportToShareableHandle(&fd, imported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHECK(cuMemRelease(imported) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 2 * kMiB);
    ::close(fd);
    CHECK(free_bytes() == before);
    CHECK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{0}),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_ERROR_INVALID_VALUE);
    // Memory that was not made for it cannot be exported.
    CHECK(cuMemExportToShareableHandle(&fd, create(2 * kMiB), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_ERROR_INVALID_VALUE);
}
