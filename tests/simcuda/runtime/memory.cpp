// Linear, pitched, managed and pinned memory, and questions about pointers. Each function is one driver call.
#include <cuda_runtime_api.h>

#include "state.h"

using namespace fragscope::simrt;

cudaError_t cudaMalloc(void** devPtr, size_t size) {
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    if (devPtr == nullptr) return record(cudaErrorInvalidValue);
    *devPtr = nullptr;
    if (size == 0) return cudaSuccess;  // the runtime's promise; the driver refuses a size of 0
    CUdeviceptr address = 0;
    const cudaError_t error = call(driver().MemAlloc, &address, size);
    if (error == cudaSuccess) *devPtr = to_pointer(address);
    return error;
}

cudaError_t cudaFree(void* devPtr) {
    // cudaFree(0) is the well-known way to initialise the runtime: a context, but no free.
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    if (devPtr == nullptr) return cudaSuccess;
    return call(driver().MemFree, to_device(devPtr));
}

cudaError_t cudaMallocPitch(void** devPtr, size_t* pitch, size_t width, size_t height) {
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    if (devPtr == nullptr || pitch == nullptr) return record(cudaErrorInvalidValue);
    *devPtr = nullptr;
    *pitch = 0;
    if (width == 0 || height == 0) return cudaSuccess;
    constexpr unsigned kElementBytes =
        4;  // the smallest the driver accepts: coalescing hints are not imitated
    CUdeviceptr address = 0;
    const cudaError_t error = call(driver().MemAllocPitch, &address, pitch, width, height, kElementBytes);
    if (error == cudaSuccess) *devPtr = to_pointer(address);
    return error;
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitchedDevPtr, cudaExtent extent) {
    if (pitchedDevPtr == nullptr) return record(cudaErrorInvalidValue);
    size_t rows = 0;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return record(cudaErrorMemoryAllocation);
    void* pointer = nullptr;
    size_t pitch = 0;
    const cudaError_t error = cudaMallocPitch(&pointer, &pitch, extent.width, rows);
    if (error == cudaSuccess) *pitchedDevPtr = {pointer, pitch, extent.width, extent.height};
    return error;
}

cudaError_t cudaMallocManaged(void** devPtr, size_t size, unsigned int flags) {
    if (devPtr == nullptr || size == 0) return record(cudaErrorInvalidValue);
    CUdeviceptr address = 0;
    const cudaError_t error = call_in_context(&DriverTable::MemAllocManaged, &address, size, flags);
    if (error == cudaSuccess) *devPtr = to_pointer(address);
    return error;
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
    if (pHost == nullptr) return record(cudaErrorInvalidValue);
    *pHost = nullptr;
    if (size == 0) return cudaSuccess;
    return call_in_context(&DriverTable::MemHostAlloc, pHost, size, flags);
}

cudaError_t cudaMallocHost(void** ptr, size_t size) { return cudaHostAlloc(ptr, size, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* ptr) {
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    if (ptr == nullptr) return cudaSuccess;
    return call(driver().MemFreeHost, ptr);
}

cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int flags) {
    return call_in_context(&DriverTable::MemHostRegister, ptr, size, flags);
}

cudaError_t cudaHostUnregister(void* ptr) { return call_in_context(&DriverTable::MemHostUnregister, ptr); }

cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
    if (pDevice == nullptr) return record(cudaErrorInvalidValue);
    CUdeviceptr address = 0;
    const cudaError_t error = call_in_context(&DriverTable::MemHostGetDevicePointer, &address, pHost, flags);
    if (error == cudaSuccess) *pDevice = to_pointer(address);
    return error;
}

cudaError_t cudaHostGetFlags(unsigned int* pFlags, void* pHost) {
    return call_in_context(&DriverTable::MemHostGetFlags, pFlags, pHost);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    return call_in_context(&DriverTable::MemGetInfo, free, total);
}

cudaError_t SINCE_13(cudaMemAdvise, cudaMemAdvise_v2)(const void* devPtr, size_t count,
                                                      cudaMemoryAdvise advice, cudaMemLocation location) {
    const CUmemLocation place = {static_cast<CUmemLocationType>(location.type), {location.id}};
    return call_in_context(&DriverTable::MemAdvise, to_device(devPtr), count,
                           static_cast<CUmem_advise>(advice), place);
}

cudaError_t cudaMemRangeGetAttribute(void* data, size_t dataSize, cudaMemRangeAttribute attribute,
                                     const void* devPtr, size_t count) {
    return call_in_context(&DriverTable::MemRangeGetAttribute, data, dataSize,
                           static_cast<CUmem_range_attribute>(attribute), to_device(devPtr), count);
}

cudaError_t cudaMemRangeGetAttributes(void** data, size_t* dataSizes, cudaMemRangeAttribute* attributes,
                                      size_t numAttributes, const void* devPtr, size_t count) {
    return call_in_context(&DriverTable::MemRangeGetAttributes, data, dataSizes,
                           reinterpret_cast<CUmem_range_attribute*>(attributes), numAttributes,
                           to_device(devPtr), count);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
    if (attributes == nullptr) return record(cudaErrorInvalidValue);
    unsigned memory_type = 0;
    unsigned is_managed = 0;
    int ordinal = -1;
    CUdeviceptr device_address = 0;
    void* host_address = nullptr;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* places[] = {&memory_type, &is_managed, &ordinal, &device_address, &host_address};
    const cudaError_t error =
        call_in_context(&DriverTable::PointerGetAttributes, 5U, wanted, places, to_device(ptr));
    if (error != cudaSuccess) return error;
    *attributes = {};
    attributes->device = -1;
    if (is_managed != 0)
        attributes->type = cudaMemoryTypeManaged;
    else if (memory_type == CU_MEMORYTYPE_DEVICE)
        attributes->type = cudaMemoryTypeDevice;
    else if (memory_type == CU_MEMORYTYPE_HOST)
        attributes->type = cudaMemoryTypeHost;
    else
        attributes->type = cudaMemoryTypeUnregistered;
    if (attributes->type == cudaMemoryTypeUnregistered) {
        // The driver knows nothing of this address; the runtime then says that it is a host pointer.
        attributes->device = -2;
        attributes->hostPointer = const_cast<void*>(ptr);
        return cudaSuccess;
    }
    attributes->device = ordinal;
    attributes->devicePointer = to_pointer(device_address);
    attributes->hostPointer = host_address;
    return cudaSuccess;
}
