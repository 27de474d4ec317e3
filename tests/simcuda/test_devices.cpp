// What concerns whole devices: multicast teams and green contexts. Right values are cuda.h's own words.
#include "sim_test.h"

using namespace sim_test;

namespace {

CUmulticastObjectProp team(unsigned devices, std::size_t bytes) {
    CUmulticastObjectProp properties{};
    properties.numDevices = devices;
    properties.size = bytes;
    return properties;
}

CUmemGenericAllocationHandle object(unsigned devices, std::size_t bytes) {
    const CUmulticastObjectProp properties = team(devices, bytes);
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cuMulticastCreate(&handle, &properties) == CUDA_SUCCESS);
    return handle;
}

}  // namespace

SIM_TEST("a multicast object has no memory and keeps what is bound", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUmulticastObjectProp properties = team(2, 8 * kMiB), odd = team(2, 2 * kMiB), many = team(3, 8 * kMiB);
    std::size_t granularity = 0;
    CHECK(cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
    CHECK(granularity == 4 * kMiB);  // twice that of plain memory, as the setting's default says
    CUmemGenericAllocationHandle none = 0;
    CHECK(cuMulticastCreate(&none, &odd) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastCreate(&none, &many) == CUDA_ERROR_INVALID_VALUE);
    const CUmemGenericAllocationHandle handle = object(2, 8 * kMiB);
    CHECK(free_bytes() == before);
    const CUmemGenericAllocationHandle memory = create(8 * kMiB);
    CHECK(cuMulticastAddDevice(handle, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastAddDevice(handle, 0) == CUDA_ERROR_INVALID_VALUE);
    // Not all devices have been added.
    CHECK(cuMulticastBindMem(handle, 0, memory, 0, 4 * kMiB, 0) == CUDA_ERROR_ILLEGAL_STATE);
    CHECK(cuMulticastAddDevice(handle, 1) == CUDA_SUCCESS);
    CHECK(cuMulticastBindMem(handle, 0, memory, 0, 2 * kMiB, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(handle, 8 * kMiB, memory, 0, 4 * kMiB, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(handle, 0, memory, 8 * kMiB, 4 * kMiB, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(handle, 0, handle, 0, 4 * kMiB, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindMem(handle, 0, memory, 4 * kMiB, 4 * kMiB, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastBindMem(handle, 0, memory, 0, 4 * kMiB, 0) == CUDA_ERROR_INVALID_VALUE);  // taken
    CHECK(cuMulticastBindMem(handle, 0, create(4 * kMiB, 1), 0, 4 * kMiB, 0) == CUDA_SUCCESS);
    CHECK(cuMemRelease(memory) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 8 * kMiB);
    CHECK(cuMulticastUnbind(handle, 0, 0, 8 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastUnbind(handle, 0, 0, 4 * kMiB) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}

SIM_TEST("the end of a multicast object unbinds", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUmemGenericAllocationHandle handle = object(1, 4 * kMiB), memory = create(4 * kMiB);
    CUdeviceptr address = 0, shared = 0;
    REQUIRE(cuMemAddressReserve(&address, 4 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemAddressReserve(&shared, 4 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemMap(address, 4 * kMiB, 0, memory, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(shared, 4 * kMiB, 0, handle, 0) == CUDA_ERROR_ILLEGAL_STATE);
    CHECK(cuMulticastAddDevice(handle, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(shared, 4 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(cuMulticastBindAddr(handle, 0, shared + 4 * kMiB, 4 * kMiB, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMulticastBindAddr(handle, 0, address, 4 * kMiB, 0) == CUDA_SUCCESS);
    CHECK(cuMemUnmap(address, 4 * kMiB) == CUDA_SUCCESS);
    CHECK(cuMemRelease(memory) == CUDA_SUCCESS);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 4 * kMiB);  // the object is still mapped
    CHECK(cuMemUnmap(shared, 4 * kMiB) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}

SIM_TEST("a green context retains the primary one", "CONTEXT_OVERHEAD=2MiB", "CAPACITY=64MiB") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    CUdevResource all{}, parts[20], rest{};
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    CHECK(all.sm.smCount == 132);
    unsigned groups = 0;
    CHECK(cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, 10) == CUDA_SUCCESS);
    CHECK(groups == 8);  // 10 is rounded up to 16, by the partition size of 8
    groups = 2;
    CHECK(cuDevSmResourceSplitByCount(parts, &groups, &all, &rest, 0, 10) == CUDA_SUCCESS);
    CHECK(groups == 2);
    CHECK(parts[1].sm.smCount == 16);
    CHECK(rest.sm.smCount == 100);
    CUdevResourceDesc descriptor = nullptr;
    CHECK(cuDevResourceGenerateDesc(&descriptor, parts, 2) == CUDA_SUCCESS);
    CUgreenCtx green = nullptr;
    CHECK(cuGreenCtxCreate(&green, descriptor, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGreenCtxCreate(&green, descriptor, 1, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
    unsigned flags = 0;
    int active = 0;
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 1);
    CUcontext context = nullptr;
    REQUIRE(cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK(free_bytes() == 62 * kMiB);
    allocate(4 * kMiB);
    CHECK(free_bytes() == 58 * kMiB);
    CUdevResource own{};
    CHECK(cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    CHECK(own.sm.smCount == 32);
    CUstream stream = nullptr;
    CHECK(cuGreenCtxStreamCreate(&stream, green, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    CHECK(cuGreenCtxDestroy(green) == CUDA_SUCCESS);
    CHECK(cuGreenCtxDestroy(green) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
    start();
    CHECK(free_bytes() == 62 * kMiB);  // what was allocated went with the primary context
}
