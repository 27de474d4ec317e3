// Graph memory nodes made by API calls, by cuda.h's own words: addresses are fixed, memory comes with a launch, who
// may free what, and what is refused.
#include "sim_test.h"

using namespace sim_test;

namespace {

CUgraph new_graph() {
    CUgraph graph = nullptr;
    REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    return graph;
}

CUDA_MEM_ALLOC_NODE_PARAMS allocation(std::size_t bytes, int device = 0) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.poolProps.location.id = device;
    params.bytesize = bytes;
    return params;
}

CUdeviceptr add_allocation(CUgraph graph, std::size_t bytes, CUgraphNode* node_out = nullptr) {
    CUgraphNode node = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params = allocation(bytes);
    REQUIRE(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params) == CUDA_SUCCESS);
    REQUIRE(params.dptr != 0);
    if (node_out != nullptr) *node_out = node;
    return params.dptr;
}

CUresult add_free(CUgraph graph, CUdeviceptr address) {
    CUgraphNode node = nullptr;
    return cuGraphAddMemFreeNode(&node, graph, nullptr, 0, address);
}

CUgraphExec instantiate(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    REQUIRE(cuGraphInstantiate(&exec, graph, flags) == CUDA_SUCCESS);
    return exec;
}

std::size_t graph_bytes(CUgraphMem_attribute which, int device = 0) {
    cuuint64_t value = 0;
    REQUIRE(cuDeviceGetGraphMemAttribute(device, which, &value) == CUDA_SUCCESS);
    return value;
}

}  // namespace

SIM_TEST("nodes have addresses, launches have memory", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUgraph graph = new_graph();
    CUgraphNode node = nullptr;
    const CUdeviceptr kept = add_allocation(graph, 3 * kMiB, &node), freed = add_allocation(graph, 2 * kMiB);
    CHECK(kept != freed);
    CHECK(add_free(graph, freed) == CUDA_SUCCESS);
    CHECK(add_free(graph, freed) == CUDA_ERROR_INVALID_VALUE);
    CHECK(add_free(graph, kept + 512) == CUDA_ERROR_INVALID_VALUE);
    CHECK(add_free(graph, allocate(1)) == CUDA_ERROR_INVALID_VALUE);
    const std::size_t with_block = free_bytes();
    CHECK(before - with_block == 2 * kMiB);
    const CUgraphExec exec = instantiate(graph);
    CHECK(cuGraphUpload(exec, nullptr) == CUDA_SUCCESS);
    CHECK(free_bytes() == with_block);
    CHECK(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    CHECK(with_block - free_bytes() == 6 * kMiB);  // whole pages of 2 MiB
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 4 * kMiB);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 6 * kMiB);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 6 * kMiB);
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    CHECK(cuGraphMemAllocNodeGetParams(node, &params) == CUDA_SUCCESS);
    CHECK(params.dptr == kept);
    CHECK(params.bytesize == 3 * kMiB);
    CHECK(cuGraphLaunch(exec, nullptr) == CUDA_ERROR_INVALID_VALUE);  // `kept` is not freed
    CHECK(cuMemFree(freed) == CUDA_ERROR_INVALID_VALUE);              // its graph frees it
    CHECK(cuMemFreeAsync(kept, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(kept, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(with_block - free_bytes() == 6 * kMiB);
    CHECK(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    CHECK(with_block - free_bytes() == 6 * kMiB);
    CHECK(cuMemFree(kept) == CUDA_SUCCESS);
    CHECK(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
    CHECK(free_bytes() == with_block);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 6 * kMiB);
    cuuint64_t zero = 0, one = 1;
    CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &one) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero) == CUDA_SUCCESS);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 0);
}

SIM_TEST("automatic frees before a launch", "CONTEXT_OVERHEAD=0") {
    start();
    const CUgraph graph = new_graph();
    const CUdeviceptr address = add_allocation(graph, 2 * kMiB);
    const CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; ++i) CHECK(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 2 * kMiB);
    CHECK(cuMemFree(address) == CUDA_SUCCESS);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    cuuint64_t flags = 0;
    CHECK(cuGraphExecGetFlags(exec, &flags) == CUDA_SUCCESS);
    CHECK(flags == CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    CUgraphExec second = nullptr;
    CHECK(cuGraphInstantiate(&second, new_graph(),
                             CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                 CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("another graph may free, but then not the owner", "CONTEXT_OVERHEAD=0") {
    start();
    const CUgraph owner = new_graph(), other = new_graph();
    const CUdeviceptr address = add_allocation(owner, 2 * kMiB), own = add_allocation(owner, 2 * kMiB);
    CHECK(add_free(owner, own) == CUDA_SUCCESS);
    CHECK(add_free(other, own) == CUDA_ERROR_INVALID_VALUE);
    CHECK(add_free(other, address) == CUDA_SUCCESS);
    CHECK(add_free(owner, address) == CUDA_ERROR_INVALID_VALUE);
    const CUgraphExec makes = instantiate(owner), frees = instantiate(other);
    CHECK(cuGraphLaunch(frees, nullptr) == CUDA_ERROR_INVALID_VALUE);  // nothing to free yet
    CHECK(cuGraphLaunch(makes, nullptr) == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(frees, nullptr) == CUDA_SUCCESS);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    CHECK(cuGraphLaunch(makes, nullptr) == CUDA_SUCCESS);
}

SIM_TEST("what graphs with memory nodes do not allow", "CONTEXT_OVERHEAD=0") {
    start();
    const CUgraph graph = new_graph();
    CUgraphNode node = nullptr, child = nullptr;
    add_allocation(graph, 2 * kMiB, &node);
    CUgraph clone = nullptr;
    CHECK(cuGraphClone(&clone, graph) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphDestroyNode(node) == CUDA_ERROR_INVALID_VALUE);
    const CUgraph parent = new_graph();
    CHECK(cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graph) == CUDA_ERROR_INVALID_VALUE);
    const CUgraphExec exec = instantiate(graph);
    CUgraphExec second = nullptr;
    CHECK(cuGraphInstantiate(&second, graph, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHECK(cuGraphInstantiate(&second, graph, 0) == CUDA_SUCCESS);
    CHECK(cuGraphExecDestroy(second) == CUDA_SUCCESS);
    CUDA_MEM_ALLOC_NODE_PARAMS shareable = allocation(2 * kMiB), none = allocation(0), nowhere = allocation(1, 9);
    shareable.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    for (CUDA_MEM_ALLOC_NODE_PARAMS* each : {&shareable, &none, &nowhere}) {
        CHECK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, each) == CUDA_ERROR_INVALID_VALUE);
    }
    // Ownership moved to the parent is allowed.
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = graph;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CHECK(cuGraphAddNode(&child, parent, nullptr, nullptr, 0, &params) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
    const CUgraphExec whole = instantiate(parent);
    CHECK(cuGraphLaunch(whole, nullptr) == CUDA_SUCCESS);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 2 * kMiB);
}

SIM_TEST("the general way to add nodes", "CONTEXT_OVERHEAD=0") {
    start();
    const CUgraph graph = new_graph();
    CUgraphNode first = nullptr, second = nullptr, third = nullptr;
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    params.alloc.poolProps = allocation(0).poolProps;
    params.alloc.bytesize = 2 * kMiB;
    REQUIRE(cuGraphAddNode(&first, graph, nullptr, nullptr, 0, &params) == CUDA_SUCCESS);
    const CUdeviceptr address = params.alloc.dptr;
    CHECK(address != 0);
    CHECK(cuGraphAddEmptyNode(&second, graph, &first, 1) == CUDA_SUCCESS);
    const CUgraphNode twice[] = {first, first};
    CHECK(cuGraphAddEmptyNode(&third, graph, twice, 2) == CUDA_ERROR_INVALID_VALUE);
    params = {};
    params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    params.free.dptr = address;
    params.reserved2 = 1;
    CHECK(cuGraphAddNode(&third, graph, &second, nullptr, 1, &params) == CUDA_ERROR_INVALID_VALUE);
    params.reserved2 = 0;
    CHECK(cuGraphAddNode(&third, graph, &second, nullptr, 1, &params) == CUDA_SUCCESS);
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    CHECK(cuGraphAddNode(&third, graph, nullptr, nullptr, 0, &params) == CUDA_ERROR_NOT_SUPPORTED);
    CUdeviceptr freed = 0;
    CHECK(cuGraphMemFreeNodeGetParams(third, &freed) == CUDA_SUCCESS);
    CHECK(freed == address);
    CHECK(cuGraphMemFreeNodeGetParams(first, &freed) == CUDA_ERROR_INVALID_VALUE);
    CUgraphNode nodes[4] = {};
    size_t count = 4;
    CHECK(cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS);
    CHECK(count == 3);
    CHECK(nodes[0] == first);
    CHECK(nodes[3] == nullptr);
    CHECK(cuGraphGetRootNodes(graph, nullptr, &count) == CUDA_SUCCESS);
    CHECK(count == 1);
    CUgraphNodeType type{};
    CHECK(cuGraphNodeGetType(second, &type) == CUDA_SUCCESS);
    CHECK(type == CU_GRAPH_NODE_TYPE_EMPTY);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(cuGraphNodeGetType(second, &type) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("memory outlives its graph until it is freed, then its address comes back", "CONTEXT_OVERHEAD=0",
         "VA_BYTES=16MiB") {
    start();
    const std::size_t before = free_bytes();
    for (int round = 0; round < 4; ++round) {
        const CUgraph graph = new_graph();
        const CUdeviceptr address = add_allocation(graph, 12 * kMiB);
        const CUgraphExec exec = instantiate(graph);
        CHECK(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
        CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
        CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
        CHECK(before - free_bytes() == 12 * kMiB);
        CHECK(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
        CHECK(before - free_bytes() == 12 * kMiB);
        CHECK(cuMemFree(address) == CUDA_SUCCESS);
        CHECK(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
        CHECK(free_bytes() == before);
    }
}

SIM_TEST("a launch that does not fit changes nothing", "CONTEXT_OVERHEAD=0", "CAPACITY=16MiB") {
    start();
    const CUgraph graph = new_graph();
    add_allocation(graph, 8 * kMiB);
    const CUdeviceptr freed = add_allocation(graph, 8 * kMiB);
    CHECK(add_free(graph, freed) == CUDA_SUCCESS);
    const CUgraphExec exec = instantiate(graph);
    const CUdeviceptr block = allocate(4 * kMiB);
    CHECK(cuGraphLaunch(exec, nullptr) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(free_bytes() == 12 * kMiB);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    CHECK(cuMemFree(block) == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    CHECK(free_bytes() == 0);
}

SIM_TEST("an executable graph takes only the same shape", "CONTEXT_OVERHEAD=0") {
    start();
    const CUgraph graph = new_graph(), other = new_graph();
    CUgraphNode node = nullptr;
    REQUIRE(cuGraphAddEmptyNode(&node, graph, nullptr, 0) == CUDA_SUCCESS);
    const CUgraphExec exec = instantiate(graph);
    CUgraphExecUpdateResultInfo info{};
    CHECK(cuGraphExecUpdate(exec, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CUgraphNode allocates = nullptr;
    add_allocation(other, 2 * kMiB, &allocates);
    CHECK(cuGraphExecUpdate(exec, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    CHECK(info.errorNode == allocates);
    CUgraph clone = nullptr;
    CHECK(cuGraphClone(&clone, graph) == CUDA_SUCCESS);
    CHECK(cuGraphExecUpdate(exec, clone, &info) == CUDA_SUCCESS);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    const CUgraphExec memory = instantiate(other);
    const CUgraph third = new_graph();
    add_allocation(third, 2 * kMiB);
    CHECK(cuGraphExecUpdate(memory, third, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
}

SIM_TEST("a capture into a graph that exists", "CONTEXT_OVERHEAD=0") {
    start();
    const CUgraph graph = new_graph();
    CUgraphNode first = nullptr;
    REQUIRE(cuGraphAddEmptyNode(&first, graph, nullptr, 0) == CUDA_SUCCESS);
    CUstream stream = nullptr;
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    CUdeviceptr address = 0;
    CHECK(cuMemAllocAsync(&address, 1, stream) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    CUgraph captured = nullptr;
    CHECK(cuStreamEndCapture(stream, &captured) == CUDA_SUCCESS);
    CHECK(captured == graph);
    size_t all = 0, roots = 0;
    CHECK(cuGraphGetNodes(graph, nullptr, &all) == CUDA_SUCCESS);
    CHECK(cuGraphGetRootNodes(graph, nullptr, &roots) == CUDA_SUCCESS);
    CHECK(all == 3);
    CHECK(roots == 1);
}
