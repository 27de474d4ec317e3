// The other functions of the activity, callback and version API: they exist, and say that they can nothing.
#include "answer.h"

using fragscope::sim_cupti::answer;

#define FRAGSCOPE_NOT_SUPPORTED(name, ...) \
    CUptiResult name(__VA_ARGS__) { return answer(CUPTI_ERROR_NOT_SUPPORTED); }

extern "C" {
FRAGSCOPE_NOT_SUPPORTED(cuptiSupportedDomains, size_t*, CUpti_DomainTable*)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetContextId, CUcontext, uint32_t*)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetStreamId, CUcontext, CUstream, uint32_t*)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetStreamIdEx, CUcontext, CUstream, uint8_t, uint32_t*)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetDeviceId, CUcontext, uint32_t*)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetGraphNodeId, CUgraphNode, uint64_t*)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetGraphId, CUgraph, uint32_t*)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetGraphExecId, CUgraphExec, uint32_t*)
FRAGSCOPE_NOT_SUPPORTED(cuptiActivityEnableContext, CUcontext, CUpti_ActivityKind)
FRAGSCOPE_NOT_SUPPORTED(cuptiActivityDisableContext, CUcontext, CUpti_ActivityKind)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetAutoBoostState, CUcontext, CUpti_ActivityAutoBoostState*)
FRAGSCOPE_NOT_SUPPORTED(cuptiActivityConfigurePCSampling, CUcontext, CUpti_ActivityPCSamplingConfig*)
FRAGSCOPE_NOT_SUPPORTED(cuptiSetThreadIdType, CUpti_ActivityThreadIdType)
FRAGSCOPE_NOT_SUPPORTED(cuptiGetThreadIdType, CUpti_ActivityThreadIdType*)
FRAGSCOPE_NOT_SUPPORTED(cuptiComputeCapabilitySupported, int, int, int*)
FRAGSCOPE_NOT_SUPPORTED(cuptiDeviceSupported, CUdevice, int*)
FRAGSCOPE_NOT_SUPPORTED(cuptiDeviceVirtualizationMode, CUdevice, CUpti_DeviceVirtualizationMode*)
FRAGSCOPE_NOT_SUPPORTED(cuptiActivityEnableLaunchAttributes, uint8_t)
FRAGSCOPE_NOT_SUPPORTED(cuptiActivityEnableDeviceGraph, uint8_t)
FRAGSCOPE_NOT_SUPPORTED(cuptiActivityEnableHWTrace, uint8_t)
FRAGSCOPE_NOT_SUPPORTED(cuptiActivityEnableAllSyncRecords, uint8_t)
}  // extern "C"
