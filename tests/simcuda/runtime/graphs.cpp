// The part of graphs that concerns memory and life cycles; building kernel and copy nodes is not offered.
#include <cuda_runtime_api.h>

#include "state.h"

using namespace fragscope::simrt;

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
