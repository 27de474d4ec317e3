// Batches of copies, prefetches and discards, and advice: argument checks by cuda.h's words, and what was copied.
#include <time.h>

#include "sim_test.h"

using namespace sim_test;

namespace {

CUstream stream() {
    CUstream made = nullptr;
    REQUIRE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return made;
}

CUmemLocation device_location(int device) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    return location;
}

}  // namespace

SIM_TEST("a batch of copies", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream on = stream();
    const CUdeviceptr a = allocate(64), b = allocate(64);
    int first = 11, second = 22, back = 0;
    CUdeviceptr to[] = {a, b}, from[] = {reinterpret_cast<CUdeviceptr>(&first), reinterpret_cast<CUdeviceptr>(&second)};
    size_t sizes[] = {sizeof first, sizeof second}, starts[] = {0};
    CUmemcpyAttributes attributes{};
    CHECK(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, starts, 1, on) == CUDA_ERROR_INVALID_VALUE);
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CHECK(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, starts, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, starts, 1, on) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(&back, a, sizeof back) == CUDA_SUCCESS);
    CHECK(back == 11);
    CHECK(cuMemcpyDtoH(&back, b, sizeof back) == CUDA_SUCCESS);
    CHECK(back == 22);
    starts[0] = 1;
    CHECK(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, starts, 1, on) == CUDA_ERROR_INVALID_VALUE);
    starts[0] = 0;
    sizes[1] = 65;  // more than `b` has
    CHECK(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, starts, 1, on) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("a batch of copies to an array", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream on = stream();
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = 8;
    description.Height = 4;
    description.Format = CU_AD_FORMAT_SIGNED_INT32;
    description.NumChannels = 1;
    CUarray array = nullptr;
    REQUIRE(cuArray3DCreate(&array, &description) == CUDA_SUCCESS);
    int block[2][3] = {{1, 2, 3}, {4, 5, 6}}, back[2][3] = {};
    CUDA_MEMCPY3D_BATCH_OP in{};
    in.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    in.src.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(&block);
    in.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    in.dst.op.array = {array, {5, 2, 0}};
    in.extent = {3, 2, 1};
    in.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    CHECK(cuMemcpy3DBatchAsync(1, &in, 0, on) == CUDA_SUCCESS);
    CUDA_MEMCPY3D_BATCH_OP out = in;
    out.src = in.dst;
    out.dst = in.src;
    out.dst.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(&back);
    CHECK(cuMemcpy3DBatchAsync(1, &out, 0, on) == CUDA_SUCCESS);
    CHECK(std::memcmp(block, back, sizeof block) == 0);
    in.dst.op.array.offset.x = 6;  // beyond the row
    CHECK(cuMemcpy3DBatchAsync(1, &in, 0, on) == CUDA_ERROR_INVALID_VALUE);
    in.dst.op.array.offset.x = 0;
    in.extent.depth = 0;
    CHECK(cuMemcpy3DBatchAsync(1, &in, 0, on) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("prefetches, discards and advice want managed memory", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream on = stream();
    CUdeviceptr managed = 0;
    REQUIRE(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    const CUdeviceptr plain = allocate(8192);
    const std::size_t before = free_bytes();
    CHECK(cuMemPrefetchAsync(managed, 8192, device_location(0), 0, on) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuMemPrefetchAsync(managed, 8192, device_location(7), 0, on) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(cuMemPrefetchAsync(managed, 8193, device_location(0), 0, on) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPrefetchAsync(managed, 8192, device_location(0), 1, on) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemPrefetchAsync(plain, 8192, device_location(0), 0, on) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAdvise(managed, 8192, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device_location(1)) == CUDA_SUCCESS);
    CHECK(cuMemAdvise(managed, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, device_location(7)) == CUDA_SUCCESS);
    CHECK(cuMemAdvise(managed, 8192, CU_MEM_ADVISE_SET_ACCESSED_BY, device_location(7)) == CUDA_ERROR_INVALID_DEVICE);
    CHECK(cuMemAdvise(plain, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, device_location(0)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamAttachMemAsync(on, managed, 0, CU_MEM_ATTACH_SINGLE) == CUDA_SUCCESS);
    CHECK(cuStreamAttachMemAsync(on, managed, 4096, CU_MEM_ATTACH_SINGLE) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamAttachMemAsync(nullptr, managed, 0, CU_MEM_ATTACH_SINGLE) == CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr addresses[] = {managed, managed + 4096};
    size_t sizes[] = {4096, 4096}, starts[] = {0, 1};
    CUmemLocation places[] = {device_location(0), device_location(1)};
    CHECK(cuMemPrefetchBatchAsync(addresses, sizes, 2, places, starts, 2, 0, on) == CUDA_SUCCESS);
    CHECK(cuMemDiscardBatchAsync(addresses, sizes, 2, 0, on) == CUDA_SUCCESS);
    CHECK(cuMemDiscardAndPrefetchBatchAsync(addresses, sizes, 2, places, starts, 2, 0, on) == CUDA_SUCCESS);
    CHECK(cuMemDiscardBatchAsync(addresses, sizes, 2, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
    starts[1] = 0;
    CHECK(cuMemPrefetchBatchAsync(addresses, sizes, 2, places, starts, 2, 0, on) == CUDA_ERROR_INVALID_VALUE);
    starts[1] = 2;
    CHECK(cuMemPrefetchBatchAsync(addresses, sizes, 2, places, starts, 2, 0, on) == CUDA_ERROR_INVALID_VALUE);
    addresses[1] = plain;
    CHECK(cuMemDiscardBatchAsync(addresses, sizes, 2, 0, on) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("what this driver does not do it says", "CONTEXT_OVERHEAD=0") {
    start();
    CUmemDecompressParams params{};
    CHECK(cuMemBatchDecompressAsync(&params, 1, 0, nullptr, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuCheckpointProcessLock(::getpid(), nullptr) == CUDA_ERROR_NOT_SUPPORTED);
    CUgraphicsResource resource = nullptr;
    CHECK(cuGraphicsMapResources(1, &resource, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
}

SIM_TEST("faults and delays reach the newer calls too", "CONTEXT_OVERHEAD=0", "FAULT_cuMulticastCreate=801@1",
         "FAULT_cuMipmappedArrayCreate=2@2", "LATENCY_cuGraphAddMemAllocNode=3ms") {
    start();
    CUmulticastObjectProp properties{};
    properties.numDevices = 1;
    properties.size = 4 * kMiB;
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMulticastCreate(&handle, &properties) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuMulticastCreate(&handle, &properties) == CUDA_SUCCESS);
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = 8;
    description.Format = CU_AD_FORMAT_FLOAT;
    description.NumChannels = 1;
    CUmipmappedArray chain = nullptr;
    CHECK(cuMipmappedArrayCreate(&chain, &description, 1) == CUDA_SUCCESS);
    CHECK(cuMipmappedArrayCreate(&chain, &description, 1) == CUDA_ERROR_OUT_OF_MEMORY);
    timespec from{}, to{};
    ::clock_gettime(CLOCK_MONOTONIC, &from);
    CUgraphNode node = nullptr;
    CHECK(cuGraphAddMemAllocNode(&node, nullptr, nullptr, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
    ::clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK((to.tv_sec - from.tv_sec) * 1'000'000'000 + (to.tv_nsec - from.tv_nsec) >= 3'000'000);
}
