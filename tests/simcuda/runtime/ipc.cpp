// Sharing linear memory and events with other processes. Handles are the driver's own bytes.
#include <cuda_runtime_api.h>

#include <cstring>

#include "state.h"

using namespace fragscope::simrt;

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* devPtr) {
    return call_in_context(&DriverTable::IpcGetMemHandle, reinterpret_cast<CUipcMemHandle*>(handle),
                           to_device(devPtr));
}

cudaError_t cudaIpcOpenMemHandle(void** devPtr, cudaIpcMemHandle_t handle, unsigned int flags) {
    if (devPtr == nullptr) return record(cudaErrorInvalidValue);
    CUipcMemHandle driver_handle;
    std::memcpy(&driver_handle, &handle, sizeof driver_handle);
    CUdeviceptr address = 0;
    const cudaError_t error = call_in_context(&DriverTable::IpcOpenMemHandle, &address, driver_handle, flags);
    if (error == cudaSuccess) *devPtr = to_pointer(address);
    return error;
}

cudaError_t cudaIpcCloseMemHandle(void* devPtr) {
    return call_in_context(&DriverTable::IpcCloseMemHandle, to_device(devPtr));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
    return call_in_context(&DriverTable::IpcGetEventHandle, reinterpret_cast<CUipcEventHandle*>(handle),
                           event);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
    CUipcEventHandle driver_handle;
    std::memcpy(&driver_handle, &handle, sizeof driver_handle);
    return call_in_context(&DriverTable::IpcOpenEventHandle, event, driver_handle);
}
