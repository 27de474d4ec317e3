// The memory behind allocation nodes: one record for each address, from the making of the node until the address
// is given up. graphs.h says when that is.
#pragma once

#include "graphs.h"

namespace fragscope::sim {

// Something that a launch does, in order.
struct GraphStep {
    CUgraphNodeType type;
    std::uint64_t address;
};

bool has_memory_nodes(const Graph& graph);

// An address for a node of `graph`; refers to it once.
CUresult new_allocation_locked(Graph& graph, int device, std::uint64_t bytes, std::uint64_t& address);
// Whether `graph` may have a free node for the address; when it may, it now has.
bool note_free_node_locked(Graph& graph, std::uint64_t address);
// One more thing refers to the address: an instantiation.
void retain_allocation_locked(std::uint64_t address);
// `owner`: the graph that made it, when that is what goes; otherwise null.
void release_allocation_locked(std::uint64_t address, const Graph* owner);

// Does all steps or, when one of them cannot be done, none. `auto_free`: what the steps allocate and is still in
// use is freed first. `exec` names the executable graph in the ledger.
CUresult run_memory_steps_locked(const std::vector<GraphStep>& steps, bool auto_free, std::uint64_t exec);

}  // namespace fragscope::sim
