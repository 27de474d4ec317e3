// What the compiler registered: fat binaries, kernels and variables, each known by an address in the host
// program. Code is handed to the driver when a kernel or variable of its binary is first used, as with lazy
// module loading.
#pragma once

#include <cuda_runtime_api.h>

#include "state.h"

namespace fragscope::simrt {

// A kernel as the driver knows it. `kernel` is null when the program registered the function but the driver
// offers no handle for it (a simulated driver without code loading): a launch is then a no-op.
struct KernelLookup {
    bool registered = false;
    CUkernel kernel = nullptr;
};

// Needs a current context. Does not record failures; a failure to load the code is reported in `error`.
KernelLookup find_kernel(const void* host_function, cudaError_t* error);

// Same, for callers that got a handle from cudaGetKernel instead of an address. Handles that are no driver
// kernel (see unloadable_kernel) count as registered without a kernel.
KernelLookup find_kernel_handle(cudaKernel_t handle);

// The handle that stands for "registered, but the driver has no kernel".
cudaKernel_t unloadable_kernel();

// The driver's function for the kernel, for attribute and occupancy questions. Records its failure.
cudaError_t function_of(const void* host_function, CUfunction* function);

// The device address of `offset` in a registered variable, which must have `count` bytes from there on. Does
// not record its failure.
cudaError_t symbol_place(const void* symbol, size_t offset, size_t count, char** address);

}  // namespace fragscope::simrt
