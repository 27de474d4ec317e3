// The part of graphs that concerns memory and life cycles; the driver makes no kernel and copy nodes.
#include <cuda_runtime_api.h>

#include <cstddef>

#include "state.h"

using namespace fragscope::simrt;

// The two interfaces' structures have the same layout; only the types of their members differ.
static_assert(sizeof(cudaGraphNodeParams) == sizeof(CUgraphNodeParams));
static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
static_assert(int{cudaGraphNodeTypeMemAlloc} == int{CU_GRAPH_NODE_TYPE_MEM_ALLOC});
static_assert(int{cudaGraphNodeTypeMemFree} == int{CU_GRAPH_NODE_TYPE_MEM_FREE});
static_assert(offsetof(cudaGraphNodeParams, alloc.dptr) == offsetof(CUgraphNodeParams, alloc.dptr));
static_assert(offsetof(cudaMemAllocNodeParams, dptr) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr));
static_assert(offsetof(cudaMemPoolProps, usage) == offsetof(CUmemPoolProps, usage));

cudaError_t cudaGraphCreate(cudaGraph_t* pGraph, unsigned int flags) {
    return call_in_context(&DriverTable::GraphCreate, pGraph, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return call_in_context(&DriverTable::GraphDestroy, graph); }

cudaError_t cudaGraphClone(cudaGraph_t* pGraphClone, cudaGraph_t originalGraph) {
    return call_in_context(&DriverTable::GraphClone, pGraphClone, originalGraph);
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                  const cudaGraphNode_t* pDependencies, size_t numDependencies) {
    return call_in_context(&DriverTable::GraphAddEmptyNode, pGraphNode, graph, pDependencies,
                           numDependencies);
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                       const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                       cudaGraph_t childGraph) {
    return call_in_context(&DriverTable::GraphAddChildGraphNode, pGraphNode, graph, pDependencies,
                           numDependencies, childGraph);
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                     cudaMemAllocNodeParams* nodeParams) {
    return call_in_context(&DriverTable::GraphAddMemAllocNode, pGraphNode, graph, pDependencies,
                           numDependencies, reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(nodeParams));
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* params_out) {
    return call_in_context(&DriverTable::GraphMemAllocNodeGetParams, node,
                           reinterpret_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(params_out));
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* dptr_out) {
    return call_in_context(&DriverTable::GraphMemFreeNodeGetParams, node,
                           static_cast<CUdeviceptr*>(dptr_out));
}

cudaError_t SINCE_13(cudaGraphAddNode, cudaGraphAddNode_v2)(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                                            const cudaGraphNode_t* pDependencies,
                                                            const cudaGraphEdgeData* dependencyData,
                                                            size_t numDependencies,
                                                            cudaGraphNodeParams* nodeParams) {
    return call_in_context(&DriverTable::GraphAddNode, pGraphNode, graph, pDependencies,
                           reinterpret_cast<const CUgraphEdgeData*>(dependencyData), numDependencies,
                           reinterpret_cast<CUgraphNodeParams*>(nodeParams));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo* resultInfo) {
    return call_in_context(&DriverTable::GraphExecUpdate, hGraphExec, hGraph,
                           reinterpret_cast<CUgraphExecUpdateResultInfo*>(resultInfo));
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                    const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                    void* dptr) {
    return call_in_context(&DriverTable::GraphAddMemFreeNode, pGraphNode, graph, pDependencies,
                           numDependencies, to_device(dptr));
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    return call_in_context(&DriverTable::GraphDestroyNode, node);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* numNodes) {
    return call_in_context(&DriverTable::GraphGetNodes, graph, nodes, numNodes);
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* pRootNodes, size_t* pNumRootNodes) {
    return call_in_context(&DriverTable::GraphGetRootNodes, graph, pRootNodes, pNumRootNodes);
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int flags) {
    return call_in_context(&DriverTable::GraphDebugDotPrint, graph, path, flags);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(pGraphExec, graph, flags);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags) {
    return call_in_context(&DriverTable::GraphInstantiateWithFlags, pGraphExec, graph, flags);
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t graphExec, unsigned long long* flags) {
    static_assert(sizeof(unsigned long long) == sizeof(cuuint64_t));
    return call_in_context(&DriverTable::GraphExecGetFlags, graphExec, reinterpret_cast<cuuint64_t*>(flags));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
    return call_in_context(&DriverTable::GraphExecDestroy, graphExec);
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call(driver().DeviceGraphMemTrim, handle);
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attr, void* value) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call(driver().DeviceGetGraphMemAttribute, handle, static_cast<CUgraphMem_attribute>(attr), value);
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attr, void* value) {
    CUdevice handle = 0;
    if (const cudaError_t error = device_handle(device, &handle); error != cudaSuccess) return record(error);
    return call(driver().DeviceSetGraphMemAttribute, handle, static_cast<CUgraphMem_attribute>(attr), value);
}
