// Devices, versions, limits, peers and the device that this thread uses. Attributes and limits have the same
// numbers in both interfaces.
#include <cuda_runtime_api.h>

#include "state.h"

using namespace fragscope::simrt;

static_assert(int{cudaDevAttrMemoryPoolsSupported} == int{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED});
static_assert(int{cudaDevAttrHostNumaId} == int{CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID});
static_assert(int{cudaLimitPersistingL2CacheSize} == int{CU_LIMIT_PERSISTING_L2_CACHE_SIZE});

cudaError_t cudaGetDeviceCount(int* count) {
    if (count == nullptr) return record(cudaErrorInvalidValue);
    *count = 0;
    const cudaError_t error = call_driver(&DriverTable::DeviceGetCount, count);
    if (error == cudaSuccess && *count == 0) return record(cudaErrorNoDevice);
    return error;
}

cudaError_t cudaSetDevice(int device) { return record(choose_device(device)); }

cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    if ((flags & cudaInitDeviceFlagsAreValid) != 0) {
        const cudaError_t error = call(driver().DevicePrimaryCtxSetFlags, handle, deviceFlags);
        if (error != cudaSuccess) return error;
    }
    CUcontext context = nullptr;  // initialises the device but, unlike cudaSetDevice, does not choose it
    return record(primary_context(device, &context));
}

cudaError_t cudaGetDevice(int* device) {
    if (device == nullptr) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return record(error);
    return record(current_device(device));
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return record(error);
    int ordinal = 0;
    CUdevice handle = 0;
    if (const cudaError_t error = current_device(&ordinal); error != cudaSuccess) return record(error);
    if (const cudaError_t error = device_handle(ordinal, &handle); error != cudaSuccess) return record(error);
    return call(driver().DevicePrimaryCtxSetFlags, handle, flags);
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
    if (flags == nullptr) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return record(error);
    int ordinal = 0;
    int active = 0;
    CUdevice handle = 0;
    if (const cudaError_t error = current_device(&ordinal); error != cudaSuccess) return record(error);
    if (const cudaError_t error = device_handle(ordinal, &handle); error != cudaSuccess) return record(error);
    return call(driver().DevicePrimaryCtxGetState, handle, flags, &active);
}

cudaError_t cudaDeviceReset() { return record(reset_current_device()); }

cudaError_t cudaDeviceSynchronize() { return call_in_context(&DriverTable::CtxSynchronize); }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call(driver().DeviceGetAttribute, value, static_cast<CUdevice_attribute>(attr), handle);
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attr, int srcDevice, int dstDevice) {
    CUdevice source = 0;
    CUdevice target = 0;
    if (const cudaError_t error = device_handle(srcDevice, &source); error != cudaSuccess)
        return record(error);
    if (const cudaError_t error = device_handle(dstDevice, &target); error != cudaSuccess)
        return record(error);
    return call(driver().DeviceGetP2PAttribute, value, static_cast<CUdevice_P2PAttribute>(attr), source,
                target);
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
    CUdevice self = 0;
    CUdevice peer = 0;
    if (const cudaError_t error = device_handle(device, &self); error != cudaSuccess) return record(error);
    if (const cudaError_t error = device_handle(peerDevice, &peer); error != cudaSuccess)
        return record(error);
    return call(driver().DeviceCanAccessPeer, canAccessPeer, self, peer);
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
    CUcontext peer = nullptr;
    if (const cudaError_t error = primary_context(peerDevice, &peer); error != cudaSuccess)
        return record(error);
    return call_in_context(&DriverTable::CtxEnablePeerAccess, peer, flags);
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
    CUcontext peer = nullptr;
    if (const cudaError_t error = primary_context(peerDevice, &peer); error != cudaSuccess)
        return record(error);
    return call_in_context(&DriverTable::CtxDisablePeerAccess, peer);
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call(driver().DeviceGetPCIBusId, pciBusId, len, handle);
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* pciBusId) {
    return call_driver(&DriverTable::DeviceGetByPCIBusId, device, pciBusId);
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    return call_in_context(&DriverTable::CtxSetLimit, static_cast<CUlimit>(limit), value);
}

cudaError_t cudaDeviceGetLimit(size_t* pValue, cudaLimit limit) {
    return call_in_context(&DriverTable::CtxGetLimit, pValue, static_cast<CUlimit>(limit));
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache cacheConfig) {
    return call_in_context(&DriverTable::CtxSetCacheConfig, static_cast<CUfunc_cache>(cacheConfig));
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* pCacheConfig) {
    return call_in_context(&DriverTable::CtxGetCacheConfig, reinterpret_cast<CUfunc_cache*>(pCacheConfig));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
    return call_in_context(&DriverTable::CtxGetStreamPriorityRange, leastPriority, greatestPriority);
}

cudaError_t cudaCtxResetPersistingL2Cache() {
    return call_in_context(&DriverTable::CtxResetPersistingL2Cache);
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
    if (driverVersion == nullptr) return record(cudaErrorInvalidValue);
    // The runtime answers 0, not an error, where there is no driver; a driver that is too old still has a
    // version.
    *driverVersion = 0;
    (void)load_driver();
    if (driver().DriverGetVersion == nullptr) return cudaSuccess;
    return call(driver().DriverGetVersion, driverVersion);
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
    if (runtimeVersion == nullptr) return record(cudaErrorInvalidValue);
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}
