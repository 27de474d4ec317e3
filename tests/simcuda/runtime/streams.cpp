// Making and destroying streams and events, and asking events. What is done on a stream is in
// stream_ordered.cpp.
#include <cuda_runtime_api.h>

#include "state.h"

using namespace fragscope::simrt;

cudaError_t cudaStreamCreate(cudaStream_t* pStream) { return cudaStreamCreateWithFlags(pStream, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
    return call_in_context(&DriverTable::StreamCreate, pStream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
    return call_in_context(&DriverTable::StreamCreateWithPriority, pStream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return call_in_context(&DriverTable::StreamDestroy, stream);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return call_in_context(&DriverTable::ThreadExchangeStreamCaptureMode,
                           reinterpret_cast<CUstreamCaptureMode*>(mode));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    return call_in_context(&DriverTable::EventCreate, event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) { return call_in_context(&DriverTable::EventDestroy, event); }

cudaError_t cudaEventQuery(cudaEvent_t event) { return call_in_context(&DriverTable::EventQuery, event); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return call_in_context(&DriverTable::EventSynchronize, event);
}

cudaError_t SINCE_13(cudaEventElapsedTime, cudaEventElapsedTime_v2)(float* ms, cudaEvent_t start,
                                                                    cudaEvent_t end) {
    return call_in_context(&DriverTable::EventElapsedTime, ms, start, end);
}
