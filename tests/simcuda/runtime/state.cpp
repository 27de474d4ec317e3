// Per-thread error and device, and the life of primary contexts (see state.h).
#include "state.h"

#include <array>
#include <atomic>
#include <mutex>

namespace fragscope::simrt {
namespace {

constexpr int kMaxDevices = 64;

struct Primary {
    CUcontext context = nullptr;
    unsigned generation = 0;  // counts resets: a context of an older generation is dead
};

std::mutex g_primary_mutex;
std::array<Primary, kMaxDevices> g_primary;

// A sticky error belongs to a context, not to a thread: every thread of the process keeps seeing it.
std::atomic<int> g_sticky_error{cudaSuccess};

struct ThreadState {
    cudaError_t last_error = cudaSuccess;
    int device = 0;
    CUcontext bound = nullptr;  // what choose_device last made current on this thread
    unsigned bound_generation = 0;
};

thread_local ThreadState t_state;

// True when the current context is a primary one that cudaDeviceReset on some thread has destroyed since this
// thread made it current. The handle cannot tell: the driver may use it again for the next primary context.
bool was_reset(CUcontext current) {
    if (current != t_state.bound) return false;
    const std::lock_guard lock(g_primary_mutex);
    return g_primary[static_cast<std::size_t>(t_state.device)].generation != t_state.bound_generation;
}

}  // namespace

bool is_sticky(cudaError_t error) {
    switch (error) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorTensorMemoryLeak:
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorContained:
            return true;
        default:
            return false;
    }
}

cudaError_t record(cudaError_t error) {
    if (error == cudaSuccess) return error;
    t_state.last_error = error;
    if (is_sticky(error)) g_sticky_error.store(error, std::memory_order_relaxed);
    return error;
}

cudaError_t peek_last_error() {
    const auto sticky = static_cast<cudaError_t>(g_sticky_error.load(std::memory_order_relaxed));
    return sticky != cudaSuccess ? sticky : t_state.last_error;
}

cudaError_t take_last_error() {
    const cudaError_t error = peek_last_error();
    t_state.last_error = cudaSuccess;
    return error;
}

cudaError_t device_handle(int ordinal, CUdevice* handle) {
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return error;
    int count = 0;
    if (driver().DeviceGetCount == nullptr || driver().DeviceGet == nullptr) return cudaErrorNotSupported;
    if (const CUresult result = driver().DeviceGetCount(&count); result != CUDA_SUCCESS)
        return to_runtime_error(result);
    if (count == 0) return cudaErrorNoDevice;
    if (ordinal < 0 || ordinal >= count || ordinal >= kMaxDevices) return cudaErrorInvalidDevice;
    return to_runtime_error(driver().DeviceGet(handle, ordinal));
}

cudaError_t primary_context(int ordinal, CUcontext* context) {
    CUdevice device = 0;
    if (const cudaError_t error = device_handle(ordinal, &device); error != cudaSuccess) return error;
    if (driver().DevicePrimaryCtxRetain == nullptr) return cudaErrorNotSupported;
    const std::lock_guard lock(g_primary_mutex);
    Primary& primary = g_primary[static_cast<std::size_t>(ordinal)];
    if (primary.context == nullptr) {
        const CUresult result = driver().DevicePrimaryCtxRetain(&primary.context, device);
        if (result != CUDA_SUCCESS) {
            primary.context = nullptr;
            return to_runtime_error(result);
        }
    }
    *context = primary.context;
    return cudaSuccess;
}

cudaError_t choose_device(int ordinal) {
    CUcontext context = nullptr;
    if (const cudaError_t error = primary_context(ordinal, &context); error != cudaSuccess) return error;
    if (driver().CtxSetCurrent == nullptr) return cudaErrorNotSupported;
    const cudaError_t error = to_runtime_error(driver().CtxSetCurrent(context));
    if (error != cudaSuccess) return error;
    t_state.device = ordinal;
    t_state.bound = context;
    const std::lock_guard lock(g_primary_mutex);
    t_state.bound_generation = g_primary[static_cast<std::size_t>(ordinal)].generation;
    return cudaSuccess;
}

cudaError_t ensure_context() {
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return error;
    if (driver().CtxGetCurrent == nullptr) return cudaErrorNotSupported;
    CUcontext current = nullptr;
    if (const CUresult result = driver().CtxGetCurrent(&current); result != CUDA_SUCCESS)
        return to_runtime_error(result);
    if (current != nullptr && !was_reset(current)) return cudaSuccess;
    return choose_device(t_state.device);
}

cudaError_t current_device(int* ordinal) {
    *ordinal = t_state.device;
    if (driver().CtxGetCurrent == nullptr || driver().CtxGetDevice == nullptr) return cudaSuccess;
    CUcontext current = nullptr;
    if (driver().CtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr || current == t_state.bound)
        return cudaSuccess;
    // A context made through the driver API is current. A device handle is its ordinal (cuda.h, CUdevice).
    CUdevice device = 0;
    if (const CUresult result = driver().CtxGetDevice(&device); result != CUDA_SUCCESS)
        return to_runtime_error(result);
    *ordinal = device;
    return cudaSuccess;
}

cudaError_t reset_current_device() {
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return error;
    int ordinal = 0;
    if (const cudaError_t error = current_device(&ordinal); error != cudaSuccess) return error;
    CUdevice device = 0;
    if (const cudaError_t error = device_handle(ordinal, &device); error != cudaSuccess) return error;
    if (driver().DevicePrimaryCtxReset == nullptr) return cudaErrorNotSupported;
    const std::lock_guard lock(g_primary_mutex);
    const cudaError_t error = to_runtime_error(driver().DevicePrimaryCtxReset(device));
    if (error != cudaSuccess) return error;
    Primary& primary = g_primary[static_cast<std::size_t>(ordinal)];
    primary.context = nullptr;
    ++primary.generation;
    g_sticky_error.store(cudaSuccess, std::memory_order_relaxed);
    t_state.last_error = cudaSuccess;
    return cudaSuccess;
}

}  // namespace fragscope::simrt
