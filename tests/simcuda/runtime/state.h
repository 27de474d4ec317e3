// What the runtime remembers between calls: the last error and the chosen device of each thread, and which
// primary contexts it holds. Also the two small functions through which every runtime function calls the
// driver.
#pragma once

#include "driver.h"

// These sources are compiled against the headers of CUDA 13 and once more against those of CUDA 12. Where 13
// gave a function new parameters, 12 has the function with these parameters under a name with a suffix, and
// the old one under the plain name (cuda12.cpp).
#if CUDA_VERSION >= 13000
#define SINCE_13(name, name_in_12) name
#else
#define SINCE_13(name, name_in_12) name_in_12
#endif

namespace fragscope::simrt {

// The runtime error that has the same meaning; cudaErrorUnknown where there is none.
cudaError_t to_runtime_error(CUresult result);

// True for errors after which the device's primary context is unusable until cudaDeviceReset.
bool is_sticky(cudaError_t error);

// Remembers a failure for cudaGetLastError of this thread, and returns its argument. Success is not
// remembered: it does not clear an earlier failure.
cudaError_t record(cudaError_t error);

cudaError_t take_last_error();
cudaError_t peek_last_error();

// Loads the driver, and makes the primary context of this thread's device current unless the thread has a
// current context already (which may be one made through the driver API). Does not record its failure.
cudaError_t ensure_context();

// The ordinal of the device that calls of this thread go to. Needs a loaded driver. Does not record its
// failure.
cudaError_t current_device(int* ordinal);

// Chooses a device for this thread and makes its primary context current. Does not record its failure.
cudaError_t choose_device(int ordinal);

// cudaErrorInvalidDevice unless the driver has a device of this ordinal. Does not record its failure.
cudaError_t device_handle(int ordinal, CUdevice* handle);

// The primary context of a device, retained once per process. Does not record its failure.
cudaError_t primary_context(int ordinal, CUcontext* context);

// Destroys the primary context of this thread's device; the next use makes a new one.
cudaError_t reset_current_device();

// Calls a driver function, records and returns its outcome. Neither loads the driver nor needs a context.
template <class Function, class... Args>
cudaError_t call(Function function, Args... args) {
    if (function == nullptr) return record(cudaErrorNotSupported);
    return record(to_runtime_error(function(args...)));
}

// Loads the driver first: for functions that need a driver but no context. The entry is named by a pointer to
// member, because the table is empty until the driver is loaded.
template <class Function, class... Args>
cudaError_t call_driver(Function DriverTable::*entry, Args... args) {
    if (const cudaError_t error = load_driver(); error != cudaSuccess) return record(error);
    return call(driver().*entry, args...);
}

// Also makes a context current first: for all functions that work on memory, streams, events and code.
template <class Function, class... Args>
cudaError_t call_in_context(Function DriverTable::*entry, Args... args) {
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    return call(driver().*entry, args...);
}

inline CUdeviceptr to_device(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline void* to_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace fragscope::simrt
