#include "analysis/graphs.h"

#include <algorithm>

namespace fragscope::analysis {

void Graphs::add_node(const Event& event, ObjectId graph) {
    used_ = true;
    if (event.address.value == 0) return;
    nodes_[event.address.value] = {event.bytes.value, graph, event.device};
    if (graph.value != 0) {
        of_graph_[graph].push_back(event.address.value);
        released_.erase(graph);  // the driver uses its values again
    }
}

void Graphs::release_executable(ObjectId executable) {
    const auto found = executables_.find(executable);
    if (found == executables_.end()) return;
    const ObjectId graph = found->second;
    executables_.erase(found);
    if (released_.contains(graph)) drop_if_unused(graph);
}

void Graphs::release_graph(ObjectId graph) {
    released_.insert(graph);
    drop_if_unused(graph);
}

void Graphs::drop_if_unused(ObjectId graph) {
    const bool left = std::any_of(executables_.begin(), executables_.end(),
                                  [&](const auto& each) { return each.second == graph; });
    if (left) return;
    released_.erase(graph);
    const auto found = of_graph_.find(graph);
    if (found == of_graph_.end()) return;
    for (const std::uint64_t address : found->second) {
        const auto node = nodes_.find(address);
        if (node != nodes_.end() && node->second.graph == graph) nodes_.erase(node);
    }
    of_graph_.erase(found);
}

}  // namespace fragscope::analysis
