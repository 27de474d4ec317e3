// CUDA 12 only: functions that CUDA 13 dropped, or gave new parameters under the same name, with the
// parameters that they have in CUDA 12. Each is what its successor does without what the successor added.
// Compiled twice, as stream_mode.h says of its users; what has no per-thread variant stands in the plain
// compilation only. cudaGetDeviceProperties without suffix is not among them: it fills the smaller structure
// of CUDA 11, whose layout no header of CUDA 12 declares.
#include "stream_mode.h"

using namespace fragscope::simrt;

// The header names the newer function cudaStreamGetCaptureInfo; the first one's symbol has the plain name.
#undef cudaStreamGetCaptureInfo
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define FIRST_CAPTURE_INFO cudaStreamGetCaptureInfo_ptsz
#define SECOND_CAPTURE_INFO cudaStreamGetCaptureInfo_v2_ptsz
#else
#define FIRST_CAPTURE_INFO cudaStreamGetCaptureInfo
#define SECOND_CAPTURE_INFO cudaStreamGetCaptureInfo_v2
#endif
extern "C" cudaError_t FIRST_CAPTURE_INFO(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out,
                                          unsigned long long* id_out);

namespace {

// How CUDA 12's older functions name a place: a device's ordinal, or cudaCpuDeviceId.
cudaMemLocation place_of(int device) {
    if (device == cudaCpuDeviceId) return {cudaMemLocationTypeHost, 0};
    return {cudaMemLocationTypeDevice, device};
}

}  // namespace

cudaError_t cudaMemPrefetchAsync(const void* devPtr, size_t count, int dstDevice, cudaStream_t stream) {
    return cudaMemPrefetchAsync_v2(devPtr, count, place_of(dstDevice), 0, stream);
}

cudaError_t FIRST_CAPTURE_INFO(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out,
                               unsigned long long* id_out) {
    return cudaStreamGetCaptureInfo_v3(stream, captureStatus_out, id_out, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t SECOND_CAPTURE_INFO(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out,
                                unsigned long long* id_out, cudaGraph_t* graph_out,
                                const cudaGraphNode_t** dependencies_out, size_t* numDependencies_out) {
    return cudaStreamGetCaptureInfo_v3(stream, captureStatus_out, id_out, graph_out, dependencies_out,
                                       nullptr, numDependencies_out);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                size_t numDependencies, unsigned int flags) {
    return cudaStreamUpdateCaptureDependencies_v2(stream, dependencies, nullptr, numDependencies, flags);
}

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM

cudaError_t cudaMemAdvise(const void* devPtr, size_t count, cudaMemoryAdvise advice, int device) {
    return cudaMemAdvise_v2(devPtr, count, advice, place_of(device));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    return cudaEventElapsedTime_v2(ms, start, end);
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                             const cudaGraphNode_t* pDependencies, size_t numDependencies,
                             cudaGraphNodeParams* nodeParams) {
    return cudaGraphAddNode_v2(pGraphNode, graph, pDependencies, nullptr, numDependencies, nodeParams);
}

cudaError_t cudaThreadExit() { return cudaDeviceReset(); }

cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }

cudaError_t cudaThreadSetLimit(cudaLimit limit, size_t value) { return cudaDeviceSetLimit(limit, value); }

cudaError_t cudaThreadGetLimit(size_t* pValue, cudaLimit limit) { return cudaDeviceGetLimit(pValue, limit); }

cudaError_t cudaThreadSetCacheConfig(cudaFuncCache cacheConfig) {
    return cudaDeviceSetCacheConfig(cacheConfig);
}

cudaError_t cudaThreadGetCacheConfig(cudaFuncCache* pCacheConfig) {
    return cudaDeviceGetCacheConfig(pCacheConfig);
}

#endif
