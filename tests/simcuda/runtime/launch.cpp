// Launching kernels. Compiled twice (see stream_mode.h). The driver does the launch; where the driver has no
// kernel to offer for a registered function, the launch succeeds and does nothing.
#include "stream_mode.h"
#include "symbols.h"

using namespace fragscope::simrt;

namespace {

struct Shape {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
};

// A CUkernel may be passed where the driver's launch functions want a CUfunction (cuda.h, cuLaunchKernel).
CUfunction launchable(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

cudaError_t launch(const KernelLookup& kernel, const Shape& shape, void** args) {
    if (!kernel.registered) return record(cudaErrorInvalidDeviceFunction);
    if (kernel.kernel == nullptr) return cudaSuccess;
    return call_on_stream(&StreamFunctions::LaunchKernel, launchable(kernel.kernel), shape.grid.x,
                          shape.grid.y, shape.grid.z, shape.block.x, shape.block.y, shape.block.z,
                          static_cast<unsigned>(shape.shared_bytes), shape.stream, args,
                          static_cast<void**>(nullptr));
}

cudaError_t look_up(const void* func, KernelLookup* kernel) {
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    cudaError_t load_error = cudaSuccess;
    *kernel = find_kernel(func, &load_error);
    return record(load_error);
}

}  // namespace

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define LAUNCH_BY_HANDLE __cudaLaunchKernel_ptsz
#else
#define LAUNCH_BY_HANDLE __cudaLaunchKernel
#endif
extern "C" cudaError_t LAUNCH_BY_HANDLE(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                                        size_t sharedMem, cudaStream_t stream);

cudaError_t LAUNCH_BY_HANDLE(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
                             cudaStream_t stream) {
    return launch(find_kernel_handle(kernel), {gridDim, blockDim, sharedMem, stream}, args);
}

cudaError_t cudaLaunchKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
                             cudaStream_t stream) {
    KernelLookup kernel;
    if (const cudaError_t error = look_up(func, &kernel); error != cudaSuccess) return error;
    return launch(kernel, {gridDim, blockDim, sharedMem, stream}, args);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
    static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
    if (config == nullptr) return record(cudaErrorInvalidValue);
    KernelLookup kernel;
    if (const cudaError_t error = look_up(func, &kernel); error != cudaSuccess) return error;
    if (!kernel.registered) return record(cudaErrorInvalidDeviceFunction);
    if (kernel.kernel == nullptr) return cudaSuccess;
    CUlaunchConfig shape = {};
    shape.gridDimX = config->gridDim.x;
    shape.gridDimY = config->gridDim.y;
    shape.gridDimZ = config->gridDim.z;
    shape.blockDimX = config->blockDim.x;
    shape.blockDimY = config->blockDim.y;
    shape.blockDimZ = config->blockDim.z;
    shape.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
    shape.hStream = config->stream;
    shape.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
    shape.numAttrs = config->numAttrs;
    return call_on_stream(&StreamFunctions::LaunchKernelEx, &shape, launchable(kernel.kernel), args,
                          static_cast<void**>(nullptr));
}

cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                                        size_t sharedMem, cudaStream_t stream) {
    KernelLookup kernel;
    if (const cudaError_t error = look_up(func, &kernel); error != cudaSuccess) return error;
    if (!kernel.registered) return record(cudaErrorInvalidDeviceFunction);
    if (kernel.kernel == nullptr) return cudaSuccess;
    return call_on_stream(&StreamFunctions::LaunchCooperativeKernel, launchable(kernel.kernel), gridDim.x,
                          gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z,
                          static_cast<unsigned>(sharedMem), stream, args);
}
