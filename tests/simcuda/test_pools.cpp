// Stream-ordered pools: growth, thresholds, trimming, pending frees, reuse.
#include "sim_test.h"

using namespace sim_test;

namespace {

cuuint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t value = 0;
    REQUIRE(cuMemPoolGetAttribute(pool, which, &value) == CUDA_SUCCESS);
    return value;
}
cuuint64_t reserved(CUmemoryPool pool) { return attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
cuuint64_t used(CUmemoryPool pool) { return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

CUmemoryPool default_pool() {
    CUmemoryPool pool = nullptr;
    REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    return pool;
}

void keep(CUmemoryPool pool, cuuint64_t bytes) {
    REQUIRE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes) == CUDA_SUCCESS);
}

CUstream stream() {
    CUstream made = nullptr;
    REQUIRE(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return made;
}

CUdeviceptr allocate_async(std::size_t bytes, CUstream on) {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAllocAsync(&address, bytes, on) == CUDA_SUCCESS);
    return address;
}

CUmemoryPool create_pool(std::size_t most) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.maxSize = most;
    CUmemoryPool pool = nullptr;
    REQUIRE(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    return pool;
}

}  // namespace

SIM_TEST("a pool grows by 32 MiB", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUstream s = stream();
    const CUmemoryPool pool = default_pool();
    CHECK(reserved(pool) == 0);
    allocate_async(12, s);
    CHECK(reserved(pool) == 33554432);
    CHECK(used(pool) == 512);
    CHECK(before - free_bytes() == 32 * kMiB);
    allocate_async(32 * kMiB - 512, s);
    CHECK(reserved(pool) == 32 * kMiB);
    allocate_async(33 * kMiB, s);
    CHECK(reserved(pool) == 96 * kMiB);
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 96 * kMiB);
}

SIM_TEST("a free takes effect in stream order, and a threshold of 0 keeps nothing", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUstream s = stream();
    const CUmemoryPool pool = default_pool();
    const CUdeviceptr a = allocate_async(kMiB, s);
    CHECK(cuMemFreeAsync(a, s) == CUDA_SUCCESS);
    CHECK(used(pool) == kMiB);
    CHECK(before - free_bytes() == 32 * kMiB);
    CHECK(cuMemFreeAsync(a, s) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamSynchronize(s) == CUDA_SUCCESS);
    CHECK(used(pool) == 0);
    CHECK(reserved(pool) == 0);
    CHECK(free_bytes() == before);
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == kMiB);
    cuuint64_t zero = 0;
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero) == CUDA_SUCCESS);
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
}

SIM_TEST("memory kept by a threshold fails cuMemAlloc until it is trimmed", "CONTEXT_OVERHEAD=0", "CAPACITY=128MiB") {
    start();
    const CUstream s = stream();
    const CUmemoryPool pool = default_pool();
    keep(pool, ~cuuint64_t{0});
    const CUdeviceptr a = allocate_async(96 * kMiB, s);
    CHECK(cuMemFreeAsync(a, s) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(used(pool) == 0);
    CHECK(reserved(pool) == 96 * kMiB);
    CUdeviceptr linear = 0;
    CHECK(cuMemAlloc(&linear, 64 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
    CHECK(reserved(pool) == 0);
    CHECK(cuMemAlloc(&linear, 64 * kMiB) == CUDA_SUCCESS);
}

SIM_TEST("trimming keeps what it is asked to and what is in use", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream s = stream();
    const CUmemoryPool pool = default_pool();
    keep(pool, ~cuuint64_t{0});
    CUdeviceptr chunk[4];
    for (CUdeviceptr& each : chunk) each = allocate_async(32 * kMiB, s);
    for (int i = 1; i < 4; ++i) CHECK(cuMemFreeAsync(chunk[i], s) == CUDA_SUCCESS);
    CHECK(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
    CHECK(reserved(pool) == 128 * kMiB);  // the frees are still pending
    CHECK(cuStreamSynchronize(s) == CUDA_SUCCESS);
    CHECK(cuMemPoolTrimTo(pool, 96 * kMiB) == CUDA_SUCCESS);
    CHECK(reserved(pool) == 96 * kMiB);
    CHECK(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
    CHECK(reserved(pool) == 32 * kMiB);
    keep(pool, 0);
    CHECK(cuMemFreeAsync(chunk[0], s) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(s) == CUDA_SUCCESS);
    CHECK(reserved(pool) == 0);
}

SIM_TEST("reuse in stream order, after events, and not before", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream a = stream(), b = stream(), c = stream();
    const CUmemoryPool pool = default_pool();
    keep(pool, ~cuuint64_t{0});
    const CUdeviceptr first = allocate_async(32 * kMiB, a);
    CHECK(cuMemFreeAsync(first, a) == CUDA_SUCCESS);
    CUevent event = nullptr;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(cuEventRecord(event, a) == CUDA_SUCCESS);
    // Another stream may not have it: the pool grows.
    const CUdeviceptr other = allocate_async(32 * kMiB, b);
    CHECK(other != first);
    CHECK(reserved(pool) == 64 * kMiB);
    // A stream that waited for the free may.
    CHECK(cuStreamWaitEvent(c, event, 0) == CUDA_SUCCESS);
    CHECK(allocate_async(32 * kMiB, c) == first);
    CHECK(reserved(pool) == 64 * kMiB);
    // The same stream always may.
    CHECK(cuMemFreeAsync(other, b) == CUDA_SUCCESS);
    CHECK(allocate_async(16 * kMiB, b) == other);
    CHECK(allocate_async(16 * kMiB, b) == other + 16 * kMiB);
    CHECK(used(pool) == 64 * kMiB);
    CHECK(cuEventSynchronize(event) == CUDA_SUCCESS);
}

SIM_TEST("an event completes only what came before it", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream s = stream();
    const CUmemoryPool pool = default_pool();
    const CUdeviceptr a = allocate_async(kMiB, s), b = allocate_async(kMiB, s);
    CUevent event = nullptr;
    CHECK(cuEventCreate(&event, 0) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(a, s) == CUDA_SUCCESS);
    CHECK(cuEventRecord(event, s) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(b, s) == CUDA_SUCCESS);
    CHECK(cuEventSynchronize(event) == CUDA_SUCCESS);
    CHECK(used(pool) == kMiB);
    CHECK(cuStreamSynchronize(s) == CUDA_SUCCESS);
    CHECK(used(pool) == 0);
}

SIM_TEST("a pool's own limit", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream s = stream();
    const CUmemoryPool pool = create_pool(48 * kMiB);
    CUdeviceptr a = 0, b = 0;
    CHECK(cuMemAllocFromPoolAsync(&a, 32 * kMiB, pool, s) == CUDA_SUCCESS);
    CHECK(cuMemAllocFromPoolAsync(&b, 17 * kMiB, pool, s) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAllocFromPoolAsync(&b, 16 * kMiB, pool, s) == CUDA_SUCCESS);
    CHECK(reserved(pool) == 48 * kMiB);
    CHECK(reserved(default_pool()) == 0);
}

SIM_TEST("a destroyed pool lives until its last allocation is freed", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUstream s = stream();
    const CUmemoryPool pool = create_pool(0);
    CHECK(cuDeviceSetMemPool(0, pool) == CUDA_SUCCESS);
    const CUdeviceptr a = allocate_async(kMiB, s);
    CHECK(reserved(pool) == 32 * kMiB);
    CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
    CUdeviceptr b = 0;
    CHECK(cuMemAllocFromPoolAsync(&b, 1, pool, s) == CUDA_ERROR_INVALID_VALUE);
    CUmemoryPool current = nullptr;
    CHECK(cuDeviceGetMemPool(&current, 0) == CUDA_SUCCESS);
    CHECK(current == default_pool());
    CHECK(before - free_bytes() == 32 * kMiB);
    CHECK(cuMemFree(a) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuMemPoolDestroy(default_pool()) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("cuMemFree of pool memory takes effect at once", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream s = stream();
    const CUdeviceptr a = allocate_async(kMiB, s);
    CHECK(cuMemFree(a) == CUDA_SUCCESS);
    CHECK(used(default_pool()) == 0);
    CHECK(cuMemFree(a) == CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr base = 0;
    CHECK(cuMemGetAddressRange(&base, nullptr, a) == CUDA_ERROR_NOT_FOUND);
}

SIM_TEST("where no whole chunk is left a pool takes what the request needs", "CONTEXT_OVERHEAD=0", "CAPACITY=48MiB") {
    start();
    const CUstream s = stream();
    allocate_async(32 * kMiB, s);
    allocate_async(10 * kMiB, s);
    CHECK(reserved(default_pool()) == 42 * kMiB);
    CUdeviceptr address = 0;
    CHECK(cuMemAllocAsync(&address, 7 * kMiB, s) == CUDA_ERROR_OUT_OF_MEMORY);
}
