// What one process's graphs do with memory. An allocation node has an address from the moment it is made, and
// no bytes before a launch; what graphs hold then is the device's graph memory, of which only the driver's
// own word tells (kGraphMemory).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/event.h"

namespace fragscope::analysis {

class Graphs {
  public:
    struct Node {
        std::uint64_t requested = 0;
        ObjectId graph;  // 0: captured, the graph is not named
        int device = kNoDevice;
    };

    void add_node(const Event& event, ObjectId graph);
    void instantiate(ObjectId executable, ObjectId graph) { executables_[executable] = graph; }
    void release_executable(ObjectId executable);
    void release_graph(ObjectId graph);
    // Something else begins at the address: the driver gave it out anew, so the graph is gone.
    void forget(std::uint64_t address) {
        if (!nodes_.empty()) nodes_.erase(address);
    }

    bool owns(std::uint64_t address) const { return nodes_.contains(address); }
    const std::unordered_map<std::uint64_t, Node>& nodes() const { return nodes_; }
    // Whether graphs of this process may hold memory at all.
    bool used() const { return used_; }
    void note_use() { used_ = true; }

  private:
    void drop_if_unused(ObjectId graph);

    std::unordered_map<std::uint64_t, Node> nodes_;  // by address
    std::unordered_map<ObjectId, std::vector<std::uint64_t>> of_graph_;
    std::unordered_map<ObjectId, ObjectId> executables_;  // each with the graph that it was made from
    std::unordered_set<ObjectId> released_;               // graphs with an executable left
    bool used_ = false;
};

}  // namespace fragscope::analysis
