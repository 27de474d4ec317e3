// What is done on a stream: stream-ordered allocation, prefetch, waiting, events, callbacks, capture.
// Compiled twice (see stream_mode.h).
#include "stream_mode.h"

using namespace fragscope::simrt;

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
static_assert(sizeof(cudaLaunchAttributeValue) == sizeof(CUlaunchAttributeValue));

cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
    if (devPtr == nullptr) return record(cudaErrorInvalidValue);
    if (size == 0) {
        *devPtr = nullptr;
        return cudaSuccess;
    }
    CUdeviceptr address = 0;
    const cudaError_t error = call_on_stream(&StreamFunctions::MemAllocAsync, &address, size, hStream);
    if (error == cudaSuccess) *devPtr = to_pointer(address);
    return error;
}

cudaError_t cudaMallocFromPoolAsync(void** ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream) {
    if (ptr == nullptr) return record(cudaErrorInvalidValue);
    CUdeviceptr address = 0;
    const cudaError_t error =
        call_on_stream(&StreamFunctions::MemAllocFromPoolAsync, &address, size, memPool, stream);
    if (error == cudaSuccess) *ptr = to_pointer(address);
    return error;
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
    if (devPtr == nullptr) return cudaSuccess;
    return call_on_stream(&StreamFunctions::MemFreeAsync, to_device(devPtr), hStream);
}

cudaError_t SINCE_13(cudaMemPrefetchAsync, cudaMemPrefetchAsync_v2)(const void* devPtr, size_t count,
                                                                    cudaMemLocation location,
                                                                    unsigned int flags, cudaStream_t stream) {
    const CUmemLocation place = {static_cast<CUmemLocationType>(location.type), {location.id}};
    return call_on_stream(&StreamFunctions::MemPrefetchAsync, to_device(devPtr), count, place, flags, stream);
}

#if CUDA_VERSION >= 13000
cudaError_t cudaMemPrefetchBatchAsync(void** dptrs, size_t* sizes, size_t count,
                                      cudaMemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                      size_t numPrefetchLocs, unsigned long long flags, cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::MemPrefetchBatchAsync, reinterpret_cast<CUdeviceptr*>(dptrs),
                          sizes, count, reinterpret_cast<CUmemLocation*>(prefetchLocs), prefetchLocIdxs,
                          numPrefetchLocs, flags, stream);
}

cudaError_t cudaMemDiscardBatchAsync(void** dptrs, size_t* sizes, size_t count, unsigned long long flags,
                                     cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::MemDiscardBatchAsync, reinterpret_cast<CUdeviceptr*>(dptrs),
                          sizes, count, flags, stream);
}

cudaError_t cudaMemDiscardAndPrefetchBatchAsync(void** dptrs, size_t* sizes, size_t count,
                                                cudaMemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                                size_t numPrefetchLocs, unsigned long long flags,
                                                cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::MemDiscardAndPrefetchBatchAsync,
                          reinterpret_cast<CUdeviceptr*>(dptrs), sizes, count,
                          reinterpret_cast<CUmemLocation*>(prefetchLocs), prefetchLocIdxs, numPrefetchLocs,
                          flags, stream);
}
#endif

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* devPtr, size_t length, unsigned int flags) {
    return call_on_stream(&StreamFunctions::StreamAttachMemAsync, stream, to_device(devPtr), length, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::StreamSynchronize, stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::StreamQuery, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    return call_on_stream(&StreamFunctions::StreamWaitEvent, stream, event, flags);
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int* flags) {
    return call_on_stream(&StreamFunctions::StreamGetFlags, hStream, flags);
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int* priority) {
    return call_on_stream(&StreamFunctions::StreamGetPriority, hStream, priority);
}

cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long* streamId) {
    return call_on_stream(&StreamFunctions::StreamGetId, hStream, streamId);
}

cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int* device) {
    return call_on_stream(&StreamFunctions::StreamGetDevice, hStream, static_cast<CUdevice*>(device));
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t dstStream, cudaStream_t srcStream) {
    return call_on_stream(&StreamFunctions::StreamCopyAttributes, dstStream, srcStream);
}

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attr, cudaStreamAttrValue* value) {
    return call_on_stream(&StreamFunctions::StreamGetAttribute, stream, static_cast<CUstreamAttrID>(attr),
                          reinterpret_cast<CUstreamAttrValue*>(value));
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attr,
                                   const cudaStreamAttrValue* param) {
    return call_on_stream(&StreamFunctions::StreamSetAttribute, stream, static_cast<CUstreamAttrID>(attr),
                          reinterpret_cast<const CUstreamAttrValue*>(param));
}

// cudaError_t and CUresult have the same numbers, so the driver may call a runtime callback directly.
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* userData,
                                  unsigned int flags) {
    return call_on_stream(&StreamFunctions::StreamAddCallback, stream,
                          reinterpret_cast<CUstreamCallback>(callback), userData, flags);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
    return call_on_stream(&StreamFunctions::LaunchHostFunc, stream, fn, userData);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::EventRecord, event, stream);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    return call_on_stream(&StreamFunctions::EventRecordWithFlags, event, stream, flags);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return call_on_stream(&StreamFunctions::StreamBeginCapture, stream,
                          static_cast<CUstreamCaptureMode>(mode));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* dependencyData, size_t numDependencies,
                                          cudaStreamCaptureMode mode) {
    return call_on_stream(&StreamFunctions::StreamBeginCaptureToGraph, stream, graph, dependencies,
                          reinterpret_cast<const CUgraphEdgeData*>(dependencyData), numDependencies,
                          static_cast<CUstreamCaptureMode>(mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
    return call_on_stream(&StreamFunctions::StreamEndCapture, stream, pGraph);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
    return call_on_stream(&StreamFunctions::StreamIsCapturing, stream,
                          reinterpret_cast<CUstreamCaptureStatus*>(pCaptureStatus));
}

cudaError_t SINCE_13(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_v3)(
    cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out, unsigned long long* id_out,
    cudaGraph_t* graph_out, const cudaGraphNode_t** dependencies_out, const cudaGraphEdgeData** edgeData_out,
    size_t* numDependencies_out) {
    static_assert(sizeof(unsigned long long) == sizeof(cuuint64_t));
    return call_on_stream(&StreamFunctions::StreamGetCaptureInfo, stream,
                          reinterpret_cast<CUstreamCaptureStatus*>(captureStatus_out),
                          reinterpret_cast<cuuint64_t*>(id_out), graph_out, dependencies_out,
                          reinterpret_cast<const CUgraphEdgeData**>(edgeData_out), numDependencies_out);
}

cudaError_t SINCE_13(cudaStreamUpdateCaptureDependencies,
                     cudaStreamUpdateCaptureDependencies_v2)(cudaStream_t stream,
                                                             cudaGraphNode_t* dependencies,
                                                             const cudaGraphEdgeData* dependencyData,
                                                             size_t numDependencies, unsigned int flags) {
    return call_on_stream(&StreamFunctions::StreamUpdateCaptureDependencies, stream, dependencies,
                          reinterpret_cast<const CUgraphEdgeData*>(dependencyData), numDependencies, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* instantiateParams) {
    static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
    return call_on_stream(&StreamFunctions::GraphInstantiateWithParams, pGraphExec, graph,
                          reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(instantiateParams));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::GraphUpload, graphExec, stream);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
    return call_on_stream(&StreamFunctions::GraphLaunch, graphExec, stream);
}
