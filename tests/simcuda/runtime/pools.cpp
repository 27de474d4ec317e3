// Memory pools: making, destroying, trimming, attributes, access, sharing, and which pool is the device's
// current one. The allocations themselves are in stream_ordered.cpp. The two interfaces' structures and
// enumerators have the same layout and values; the assertions below hold that still.
#include <cuda_runtime_api.h>

#include "state.h"

using namespace fragscope::simrt;

static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));
static_assert(sizeof(cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData));
static_assert(int{cudaMemPoolAttrReleaseThreshold} == int{CU_MEMPOOL_ATTR_RELEASE_THRESHOLD});
static_assert(int{cudaMemPoolAttrUsedMemHigh} == int{CU_MEMPOOL_ATTR_USED_MEM_HIGH});
static_assert(int{cudaMemLocationTypeHostNumaCurrent} == int{CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT});

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call_in_context(&DriverTable::DeviceGetDefaultMemPool, memPool, handle);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* memPool, int device) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call_in_context(&DriverTable::DeviceGetMemPool, memPool, handle);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call_in_context(&DriverTable::DeviceSetMemPool, handle, memPool);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* memPool, const cudaMemPoolProps* poolProps) {
    if (memPool == nullptr || poolProps == nullptr) return record(cudaErrorInvalidValue);
    CUmemPoolProps props = {};
    props.allocType = static_cast<CUmemAllocationType>(poolProps->allocType);
    props.handleTypes = static_cast<CUmemAllocationHandleType>(poolProps->handleTypes);
    props.location = {static_cast<CUmemLocationType>(poolProps->location.type), {poolProps->location.id}};
    props.win32SecurityAttributes = poolProps->win32SecurityAttributes;
    props.maxSize = poolProps->maxSize;
    props.usage = poolProps->usage;
    return call_in_context(&DriverTable::MemPoolCreate, memPool, &props);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool) {
    return call_in_context(&DriverTable::MemPoolDestroy, memPool);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep) {
    return call_in_context(&DriverTable::MemPoolTrimTo, memPool, minBytesToKeep);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
    return call_in_context(&DriverTable::MemPoolSetAttribute, memPool, static_cast<CUmemPool_attribute>(attr),
                           value);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
    return call_in_context(&DriverTable::MemPoolGetAttribute, memPool, static_cast<CUmemPool_attribute>(attr),
                           value);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const cudaMemAccessDesc* descList, size_t count) {
    return call_in_context(&DriverTable::MemPoolSetAccess, memPool,
                           reinterpret_cast<const CUmemAccessDesc*>(descList), count);
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t memPool,
                                 cudaMemLocation* location) {
    return call_in_context(&DriverTable::MemPoolGetAccess, reinterpret_cast<CUmemAccess_flags*>(flags),
                           memPool, reinterpret_cast<CUmemLocation*>(location));
}

#if CUDA_VERSION >= 13000
cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* memPool, cudaMemLocation* location,
                                     cudaMemAllocationType type) {
    return call_in_context(&DriverTable::MemGetDefaultMemPool, memPool,
                           reinterpret_cast<CUmemLocation*>(location),
                           static_cast<CUmemAllocationType>(type));
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t* memPool, cudaMemLocation* location, cudaMemAllocationType type) {
    return call_in_context(&DriverTable::MemGetMemPool, memPool, reinterpret_cast<CUmemLocation*>(location),
                           static_cast<CUmemAllocationType>(type));
}

cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t memPool) {
    return call_in_context(&DriverTable::MemSetMemPool, reinterpret_cast<CUmemLocation*>(location),
                           static_cast<CUmemAllocationType>(type), memPool);
}
#endif

cudaError_t cudaMemPoolExportToShareableHandle(void* shareableHandle, cudaMemPool_t memPool,
                                               cudaMemAllocationHandleType handleType, unsigned int flags) {
    return call_in_context(&DriverTable::MemPoolExportToShareableHandle, shareableHandle, memPool,
                           static_cast<CUmemAllocationHandleType>(handleType), cuuint64_t{flags});
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* memPool, void* shareableHandle,
                                                 cudaMemAllocationHandleType handleType, unsigned int flags) {
    return call_in_context(&DriverTable::MemPoolImportFromShareableHandle, memPool, shareableHandle,
                           static_cast<CUmemAllocationHandleType>(handleType), cuuint64_t{flags});
}

cudaError_t cudaMemPoolExportPointer(cudaMemPoolPtrExportData* exportData, void* ptr) {
    return call_in_context(&DriverTable::MemPoolExportPointer,
                           reinterpret_cast<CUmemPoolPtrExportData*>(exportData), to_device(ptr));
}

cudaError_t cudaMemPoolImportPointer(void** ptr, cudaMemPool_t memPool,
                                     cudaMemPoolPtrExportData* exportData) {
    if (ptr == nullptr) return record(cudaErrorInvalidValue);
    CUdeviceptr address = 0;
    const cudaError_t error = call_in_context(&DriverTable::MemPoolImportPointer, &address, memPool,
                                              reinterpret_cast<CUmemPoolPtrExportData*>(exportData));
    if (error == cudaSuccess) *ptr = to_pointer(address);
    return error;
}
