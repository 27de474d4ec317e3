// Copies between devices: these name the context of each end. They have no per-thread variant in the runtime.
#include <cuda_runtime_api.h>

#include "state.h"

using namespace fragscope::simrt;

namespace {

cudaError_t both_contexts(int source, int target, CUcontext* from, CUcontext* to) {
    if (const cudaError_t error = primary_context(source, from); error != cudaSuccess) return error;
    if (const cudaError_t error = primary_context(target, to); error != cudaSuccess) return error;
    return ensure_context();
}

}  // namespace

cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, size_t count) {
    CUcontext from = nullptr;
    CUcontext to = nullptr;
    if (const cudaError_t error = both_contexts(srcDevice, dstDevice, &from, &to); error != cudaSuccess)
        return record(error);
    return call(driver().stream[0].MemcpyPeer, to_device(dst), to, to_device(src), from, count);
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                                cudaStream_t stream) {
    CUcontext from = nullptr;
    CUcontext to = nullptr;
    if (const cudaError_t error = both_contexts(srcDevice, dstDevice, &from, &to); error != cudaSuccess)
        return record(error);
    return call(driver().stream[0].MemcpyPeerAsync, to_device(dst), to, to_device(src), from, count, stream);
}
