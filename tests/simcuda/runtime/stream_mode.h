// Sources that include this header are compiled twice: once plainly, and once with
// CUDA_API_PER_THREAD_DEFAULT_STREAM defined, where cuda_runtime_api.h renames each function that has a
// per-thread variant to that variant (cudaMallocAsync_ptsz, cudaMemcpy_ptds). The only other difference is
// which half of the driver's stream functions they call.
#pragma once

#include <cuda_runtime_api.h>

#include "state.h"

namespace fragscope::simrt {
namespace {

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
constexpr int kStreamMode = 1;
#else
constexpr int kStreamMode = 0;
#endif

// Makes a context current, calls the variant of a stream function that belongs to this compilation, records
// the outcome.
template <class Function, class... Args>
cudaError_t call_on_stream(Function StreamFunctions::*entry, Args... args) {
    if (const cudaError_t error = ensure_context(); error != cudaSuccess) return record(error);
    return call(driver().stream[kStreamMode].*entry, args...);
}

}  // namespace
}  // namespace fragscope::simrt
