// Making graphs out of nodes, and the memory behind their allocation nodes; graph_exec.cpp runs them.
#include "graphs.h"

#include <algorithm>
#include <unordered_set>

#include "graph_memory.h"

namespace fragscope::sim {
namespace {

struct Graphs {
    std::unordered_map<CUgraph, std::unique_ptr<Graph>> all;  // without those moved into others
    std::unordered_set<const GraphNode*> nodes;
};

Graphs& graphs() {
    static auto* const state = new Graphs;
    return *state;
}

GraphNode* find_node(CUgraphNode handle) {
    auto* node = reinterpret_cast<GraphNode*>(handle);
    return graphs().nodes.contains(node) ? node : nullptr;
}

CUgraphNode handle_of_node(const GraphNode* node) {
    return reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(node));
}

GraphNode& add_node(Graph& graph, CUgraphNodeType type, std::vector<GraphNode*> dependencies) {
    graph.nodes.push_back(std::make_unique<GraphNode>());
    GraphNode& node = *graph.nodes.back();
    node.graph = &graph;
    node.type = type;
    node.dependencies = std::move(dependencies);
    graphs().nodes.insert(&node);
    return node;
}

// A copy of a graph without memory nodes.
std::unique_ptr<Graph> copy(const Graph& from) {
    auto made = std::make_unique<Graph>();
    std::unordered_map<const GraphNode*, GraphNode*> counterpart;
    for (const auto& node : from.nodes) {
        std::vector<GraphNode*> dependencies;
        for (const GraphNode* each : node->dependencies) dependencies.push_back(counterpart[each]);
        GraphNode& added = add_node(*made, node->type, std::move(dependencies));
        if (node->child) added.child = copy(*node->child);
        counterpart[node.get()] = &added;
    }
    return made;
}

CUresult child_node(Graph& graph, CUgraph child, bool move, std::vector<GraphNode*> dependencies, GraphNode*& node) {
    Graph* found = find_graph_locked(child);
    if (found == nullptr || found == &graph) return CUDA_ERROR_INVALID_VALUE;
    if (!move && has_memory_nodes(*found)) return CUDA_ERROR_INVALID_VALUE;
    if (move && found->instances != 0) return CUDA_ERROR_INVALID_VALUE;
    std::unique_ptr<Graph> inside;
    if (move) {
        const auto own = graphs().all.find(child);
        inside = std::move(own->second);
        graphs().all.erase(own);
    } else {
        inside = copy(*found);
    }
    node = &add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH, std::move(dependencies));
    node->child = std::move(inside);
    return CUDA_SUCCESS;
}

// Runs `body(graph, dependencies, node)` for a new node and hands its handle out.
template <typename Body>
CUresult add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies, std::size_t count,
             Body body) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Graph* graph = find_graph_locked(graph_handle);
    std::vector<GraphNode*> found;
    if (graph == nullptr || !find_nodes_locked(*graph, dependencies, count, found)) return CUDA_ERROR_INVALID_VALUE;
    GraphNode* node = nullptr;
    const CUresult result = body(*graph, std::move(found), node);
    if (result == CUDA_SUCCESS) *handle = handle_of_node(node);
    return result;
}

CUresult add_any(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                 CUgraphNodeParams* p) {
    if (p == nullptr || p->reserved0[0] != 0 || p->reserved0[1] != 0 || p->reserved0[2] != 0 || p->reserved2 != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(handle, graph, dependencies, count,
               [&](Graph& into, std::vector<GraphNode*> found, GraphNode*& node) -> CUresult {
                   switch (p->type) {
                       case CU_GRAPH_NODE_TYPE_EMPTY:
                           node = &add_node(into, CU_GRAPH_NODE_TYPE_EMPTY, std::move(found));
                           return CUDA_SUCCESS;
                       case CU_GRAPH_NODE_TYPE_GRAPH:
                           return child_node(into, p->graph.graph,
                                             p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE,
                                             std::move(found), node);
                       case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
                           const CUDA_MEM_ALLOC_NODE_PARAMS params{p->alloc.poolProps, p->alloc.accessDescs,
                                                                   p->alloc.accessDescCount, p->alloc.bytesize, 0};
                           const CUresult result = graph_add_allocation_locked(into, params, std::move(found), node);
                           if (result == CUDA_SUCCESS) p->alloc.dptr = node->address;
                           return result;
                       }
                       case CU_GRAPH_NODE_TYPE_MEM_FREE:
                           return graph_add_free_locked(into, p->free.dptr, std::move(found), node);
                       default: return CUDA_ERROR_NOT_SUPPORTED;
                   }
               });
}

// Fills `out` as the queries of cuda.h do: without it only the number is told, entries too many become null.
CUresult list(const std::vector<const GraphNode*>& nodes, CUgraphNode* out, size_t* number) {
    if (out != nullptr) {
        for (size_t i = 0; i < *number; ++i) out[i] = i < nodes.size() ? handle_of_node(nodes[i]) : nullptr;
        *number = std::min(*number, nodes.size());
    } else {
        *number = nodes.size();
    }
    return CUDA_SUCCESS;
}

CUresult list_nodes(CUgraph handle, CUgraphNode* out, size_t* number, bool roots) {
    if (number == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Graph* graph = find_graph_locked(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<const GraphNode*> nodes;
    for (const auto& node : graph->nodes) {
        if (!roots || node->dependencies.empty()) nodes.push_back(node.get());
    }
    return list(nodes, out, number);
}

}  // namespace

Graph* find_graph_locked(CUgraph handle) {
    const auto found = graphs().all.find(handle);
    return found == graphs().all.end() ? nullptr : found->second.get();
}

CUgraph keep_graph_locked(std::unique_ptr<Graph> graph) {
    const auto handle = reinterpret_cast<CUgraph>(graph.get());
    ledger({"graph_create", reinterpret_cast<std::uint64_t>(handle), 0, 0, -1, 0});
    graphs().all.emplace(handle, std::move(graph));
    return handle;
}

void forget_nodes_locked(Graph& graph) {
    for (const auto& node : graph.nodes) {
        if (node->child) forget_nodes_locked(*node->child);
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) release_allocation_locked(node->address, &graph);
        graphs().nodes.erase(node.get());
    }
}

bool find_nodes_locked(const Graph& graph, const CUgraphNode* handles, std::size_t count,
                       std::vector<GraphNode*>& nodes) {
    if (count != 0 && handles == nullptr) return false;
    for (std::size_t i = 0; i < count; ++i) {
        GraphNode* node = find_node(handles[i]);
        if (node == nullptr || node->graph != &graph) return false;
        if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return false;
        nodes.push_back(node);
    }
    return true;
}

CUresult graph_add_allocation_locked(Graph& graph, const CUDA_MEM_ALLOC_NODE_PARAMS& params,
                                     std::vector<GraphNode*> dependencies, GraphNode*& node) {
    const CUmemPoolProps& props = params.poolProps;
    if (params.bytesize == 0 || props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||  // "IPC is not supported"
        params.accessDescCount > driver().settings.devices ||
        (params.accessDescCount != 0 && params.accessDescs == nullptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (props.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!driver().device_ok(props.location.id)) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t address = 0;
    const CUresult result = new_allocation_locked(graph, props.location.id, params.bytesize, address);
    if (result != CUDA_SUCCESS) return result;
    node = &add_node(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, std::move(dependencies));
    node->address = address;
    node->params = params;
    node->params.dptr = address;
    node->access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
    node->params.accessDescs = node->access.data();
    return CUDA_SUCCESS;
}

CUresult graph_add_free_locked(Graph& graph, std::uint64_t address, std::vector<GraphNode*> dependencies,
                               GraphNode*& node) {
    const bool twice = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& each) {
        return each->type == CU_GRAPH_NODE_TYPE_MEM_FREE && each->address == address;
    });
    if (twice || !note_free_node_locked(graph, address)) return CUDA_ERROR_INVALID_VALUE;
    node = &add_node(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, std::move(dependencies));
    node->address = address;
    return CUDA_SUCCESS;
}

GraphNode& graph_add_work_locked(Graph& graph, CUgraphNodeType type, std::vector<GraphNode*> dependencies) {
    return add_node(graph, type, std::move(dependencies));
}

namespace impl {

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
    if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    *phGraph = keep_graph_locked(std::make_unique<Graph>());
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    Locked guard(driver().lock);
    Graph* graph = find_graph_locked(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    forget_nodes_locked(*graph);
    forget_graph_locked(*graph);
    ledger({"graph_destroy", reinterpret_cast<std::uint64_t>(hGraph), 0, 0, -1, 0});
    graphs().all.erase(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
    if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Graph* graph = find_graph_locked(originalGraph);
    // "Cloning is not supported for graphs which contain memory allocation nodes, memory free nodes"
    if (graph == nullptr || has_memory_nodes(*graph)) return CUDA_ERROR_INVALID_VALUE;
    *phGraphClone = keep_graph_locked(copy(*graph));
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
    if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return add(phGraphNode, hGraph, dependencies, numDependencies,
               [&](Graph& graph, std::vector<GraphNode*> found, GraphNode*& node) {
                   const CUresult result = graph_add_allocation_locked(graph, *nodeParams, std::move(found), node);
                   if (result == CUDA_SUCCESS) nodeParams->dptr = node->address;
                   return result;
               });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                               size_t numDependencies, CUdeviceptr dptr) {
    return add(phGraphNode, hGraph, dependencies, numDependencies,
               [&](Graph& graph, std::vector<GraphNode*> found, GraphNode*& node) {
                   return graph_add_free_locked(graph, dptr, std::move(found), node);
               });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                             size_t numDependencies) {
    return add(phGraphNode, hGraph, dependencies, numDependencies,
               [&](Graph& graph, std::vector<GraphNode*> found, GraphNode*& node) {
                   node = &add_node(graph, CU_GRAPH_NODE_TYPE_EMPTY, std::move(found));
                   return CUDA_SUCCESS;
               });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
    return add(phGraphNode, hGraph, dependencies, numDependencies,
               [&](Graph& graph, std::vector<GraphNode*> found, GraphNode*& node) {
                   return child_node(graph, childGraph, false, std::move(found), node);
               });
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData*, size_t numDependencies, CUgraphNodeParams* nodeParams) {
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
    if (params_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const GraphNode* node = find_node(hNode);
    if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return CUDA_ERROR_INVALID_VALUE;
    *params_out = node->params;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
    if (dptr_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const GraphNode* node = find_node(hNode);
    if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE) return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = node->address;
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
    if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const GraphNode* node = find_node(hNode);
    if (node == nullptr || !node->child) return CUDA_ERROR_INVALID_VALUE;
    *phGraph = reinterpret_cast<CUgraph>(node->child.get());
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const GraphNode* node = find_node(hNode);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
    Locked guard(driver().lock);
    GraphNode* node = find_node(hNode);
    // "Nodes which belong to a graph which contains allocation or free nodes cannot be destroyed."
    if (node == nullptr || has_memory_nodes(*node->graph)) return CUDA_ERROR_INVALID_VALUE;
    Graph& graph = *node->graph;
    for (const auto& each : graph.nodes) std::erase(each->dependencies, node);
    if (node->child) forget_nodes_locked(*node->child);
    graphs().nodes.erase(node);
    std::erase_if(graph.nodes, [&](const auto& each) { return each.get() == node; });
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
    return list_nodes(hGraph, nodes, numNodes, false);
}
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
    return list_nodes(hGraph, rootNodes, numRootNodes, true);
}

}  // namespace impl
}  // namespace fragscope::sim
