// Graphs, as far as memory is concerned: allocation and free nodes, child graphs, launches.
//
// An allocation node has an address for ever and memory only from a launch on. The memory belongs to the device's
// graph pool: a free leaves it there for the next launch, cuDeviceGraphMemTrim gives back what is not in use. An
// address is given up when the graph and its instantiation are gone, the memory is free and the pool has let it go.
#pragma once

#include <memory>

#include "driver.h"

namespace fragscope::sim {

struct Graph;

struct GraphNode {
    Graph* graph = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::uint64_t address = 0;            // of an allocation or free node
    CUDA_MEM_ALLOC_NODE_PARAMS params{};  // of an allocation node
    std::vector<CUmemAccessDesc> access;
    std::unique_ptr<Graph> child;
    std::vector<GraphNode*> dependencies;
};

struct Graph {
    std::vector<std::unique_ptr<GraphNode>> nodes;  // in an order in which they can run
    unsigned instances = 0;                         // executable graphs made of it that exist
};

// Nodes are created in an order in which they can run, so that the last one may depend on all others.
CUresult graph_add_allocation_locked(Graph& graph, const CUDA_MEM_ALLOC_NODE_PARAMS& params,
                                     std::vector<GraphNode*> dependencies, GraphNode*& node);
CUresult graph_add_free_locked(Graph& graph, std::uint64_t address, std::vector<GraphNode*> dependencies,
                               GraphNode*& node);
// Captured work that has nothing to do with memory: what it does is not kept, and launching it does nothing.
GraphNode& graph_add_work_locked(Graph& graph, CUgraphNodeType type, std::vector<GraphNode*> dependencies);
// The graph that the program has; null when there is none.
Graph* find_graph_locked(CUgraph handle);
CUgraph keep_graph_locked(std::unique_ptr<Graph> graph);
// The graph goes: its nodes cannot be found any more and its allocations are referred to by one less.
void forget_nodes_locked(Graph& graph);
// Its executable graphs live on without it (graph_exec.cpp).
void forget_graph_locked(const Graph& graph);
// Nodes behind handles, for dependencies; false when one is not a node of `graph` or is named twice.
bool find_nodes_locked(const Graph& graph, const CUgraphNode* handles, std::size_t count,
                       std::vector<GraphNode*>& nodes);

// cuMemFree or cuMemFreeAsync of a graph's allocation outside of graphs: at once.
CUresult graph_free_now_locked(Region& region, std::uint64_t address);

}  // namespace fragscope::sim
