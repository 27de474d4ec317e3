// Events of graphs whose nodes allocate: such a node has an address and takes no memory before a launch.
#include "interpose/call.h"
#include "interpose/hot.h"

namespace fragscope::interpose {

void Call::graph_allocation_at(std::uint64_t node, CUgraph graph, const CUmemLocation& location,
                               std::size_t bytes, CUdeviceptr address) {
    if (succeeded()) {
        graphs_allocate.store(true, std::memory_order_relaxed);
        renew(address, bytes);
    }
    at_location(location);
    record(Kind::kGraphAllocNode, succeeded() ? address : 0, bytes, number_of(graph), node);
}

void Call::graph_allocation(const CUgraphNode* out, CUgraph graph, const CUDA_MEM_ALLOC_NODE_PARAMS* wanted) {
    const CUDA_MEM_ALLOC_NODE_PARAMS none{};
    const CUDA_MEM_ALLOC_NODE_PARAMS& node = wanted != nullptr ? *wanted : none;
    graph_allocation_at(succeeded() && out != nullptr ? number_of(*out) : 0, graph, node.poolProps.location,
                        node.bytesize, node.dptr);
}

void Call::graph_free(const CUgraphNode* out, CUgraph graph, CUdeviceptr address) {
    unplaced_inline(Kind::kGraphFreeNode, address, 0, number_of(graph),
                    succeeded() && out != nullptr ? number_of(*out) : 0);
}

void Call::graph_node(const CUgraphNode* out, CUgraph graph, const CUgraphNodeParams* wanted) {
    const bool allocates = wanted != nullptr && wanted->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    const bool frees = wanted != nullptr && wanted->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (!allocates && !frees) return asked();
    if (!attach()) return;
    sequence_ = next_sequence();
    const std::uint64_t node = succeeded() && out != nullptr ? number_of(*out) : 0;
    if (allocates)
        graph_allocation_at(node, graph, wanted->alloc.poolProps.location, wanted->alloc.bytesize,
                            wanted->alloc.dptr);
    else
        graph_free(out, graph, wanted->free.dptr);
}

void Call::graph_instantiated(const CUgraphExec* out, CUgraph graph, unsigned long long flags) {
    place();
    record(Kind::kGraphInstantiated, 0, flags, succeeded() && out != nullptr ? number_of(*out) : 0,
           number_of(graph));
}

// A graph that allocates may be given its memory ahead of its launch.
void Call::graph_uploaded() {
    if (!attach() || !graphs_allocate.load(std::memory_order_relaxed)) return asked();
    place();
    sequence_ = next_sequence();
    record(Kind::kCalled, 0, 0, 0, 0);
}

void Call::graph_launched(CUgraphExec executable, CUstream stream) {
    if (!attach()) return;
    if (succeeded()) session.slot->launches.fetch_add(1, std::memory_order_relaxed);
    if (!graphs_allocate.load(std::memory_order_relaxed)) return asked();
    place_of_stream(stream);
    mark_capture(stream);
    sequence_ = next_sequence();
    record(Kind::kGraphLaunched, 0, 0, number_of(executable), number_of(stream));
}

void Call::graph_memory_trimmed(CUdevice device) {
    at_ordinal(device);
    record(Kind::kGraphMemoryTrimmed, 0, 0, 0, 0);
}

}  // namespace fragscope::interpose
