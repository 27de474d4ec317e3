#include "graph_memory.h"

#include <algorithm>
#include <set>

namespace fragscope::sim {
namespace {

struct Allocation {
    const Graph* owner = nullptr;  // null once destroyed
    unsigned references = 1;       // the owner and instantiations
    bool freed_in_owner = false;   // by a free node
    bool freed_elsewhere = false;
    bool in_use = false;           // launched and not freed
};

struct GraphMemory {
    std::map<std::uint64_t, Allocation> allocations;
    std::uint64_t reserved[kMaxDevices] = {}, reserved_high[kMaxDevices] = {};
    std::uint64_t used[kMaxDevices] = {}, used_high[kMaxDevices] = {};
};

GraphMemory& memory() {
    static auto* const state = new GraphMemory;
    return *state;
}

std::uint64_t free_now(int device) { return ledger_open() ? driver().physical.free_bytes_now(device) : 0; }

Region& region_of(std::uint64_t address) { return driver().regions.find(address)->second; }

Allocation* find_allocation(std::uint64_t address) {
    const auto found = memory().allocations.find(address);
    return found == memory().allocations.end() ? nullptr : &found->second;
}

// Gives the address up when nothing refers to it and no memory is left behind it.
void settle(std::uint64_t address) {
    const Allocation& allocation = *find_allocation(address);
    Region& region = region_of(address);
    if (allocation.references != 0 || allocation.in_use || !region.pages.empty()) return;
    const std::uint64_t bytes = region.requested;
    const int device = region.device;
    memory().allocations.erase(address);
    const std::uint64_t free_after = drop_region_locked(region);
    ledger({"graph_gone", address, bytes, 0, device, free_after});
}

void end_use(std::uint64_t address, std::uint64_t exec) {
    const Region& region = region_of(address);
    find_allocation(address)->in_use = false;
    memory().used[region.device] -= region.size;
    ledger({"graph_free", address, region.requested, 0, region.device, free_now(region.device), exec});
    settle(address);
}

}  // namespace

bool has_memory_nodes(const Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
        return node->address != 0 || (node->child && has_memory_nodes(*node->child));
    });
}

CUresult new_allocation_locked(Graph& graph, int device, std::uint64_t bytes, std::uint64_t& address) {
    Region* region = nullptr;
    std::uint64_t free_after = 0;
    const CUresult result = make_region_locked(Region::Kind::Graph, device, bytes, false, false, region, free_after);
    if (result != CUDA_SUCCESS) return result;
    address = region->base;
    memory().allocations[address].owner = &graph;
    ledger({"graph_node_alloc", address, bytes, 0, device, free_after, reinterpret_cast<std::uint64_t>(&graph)});
    return CUDA_SUCCESS;
}

bool note_free_node_locked(Graph& graph, std::uint64_t address) {
    Allocation* allocation = find_allocation(address);
    if (allocation == nullptr || allocation->freed_in_owner) return false;
    const bool own = allocation->owner == &graph;
    if (own && allocation->freed_elsewhere) return false;
    (own ? allocation->freed_in_owner : allocation->freed_elsewhere) = true;
    const Region& region = region_of(address);
    ledger({"graph_node_free", address, region.requested, 0, region.device, free_now(region.device),
            reinterpret_cast<std::uint64_t>(&graph)});
    return true;
}

void retain_allocation_locked(std::uint64_t address) {
    if (Allocation* allocation = find_allocation(address); allocation != nullptr) ++allocation->references;
}

void release_allocation_locked(std::uint64_t address, const Graph* owner) {
    Allocation* allocation = find_allocation(address);
    if (allocation == nullptr) return;
    if (owner != nullptr && allocation->owner == owner) allocation->owner = nullptr;
    --allocation->references;
    settle(address);
}

CUresult run_memory_steps_locked(const std::vector<GraphStep>& steps, bool auto_free, std::uint64_t exec) {
    GraphMemory& m = memory();
    // What would be in use, step by step.
    std::map<std::uint64_t, bool> in_use;
    const auto used = [&](std::uint64_t address) {
        const auto found = in_use.find(address);
        return found != in_use.end() ? found->second : find_allocation(address)->in_use;
    };
    std::vector<std::uint64_t> freed_first;
    for (const GraphStep& step : steps) {
        const Allocation* allocation = find_allocation(step.address);
        if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (auto_free && step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && allocation->in_use) {
            freed_first.push_back(step.address);
            in_use[step.address] = false;
        }
    }
    for (const GraphStep& step : steps) {
        const bool allocates = step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        if (used(step.address) == allocates) return CUDA_ERROR_INVALID_VALUE;
        in_use[step.address] = allocates;
    }
    // Memory for all that has none yet.
    std::vector<std::uint64_t> charged;
    std::map<std::uint64_t, std::uint64_t> free_after;
    for (const GraphStep& step : steps) {
        Region& region = region_of(step.address);
        if (step.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !region.pages.empty()) continue;
        if (take_pages_locked(region.device, driver().pages_for(region.size), false, region.pages,
                              free_after[region.base])) {
            charged.push_back(region.base);
            continue;
        }
        for (const std::uint64_t address : charged) {
            Region& taken = region_of(address);
            driver().physical.release(taken.device, taken.pages);
            taken.pages.clear();
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (const std::uint64_t address : freed_first) end_use(address, exec);
    for (const GraphStep& step : steps) {
        if (step.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            end_use(step.address, exec);
            continue;
        }
        const Region& region = region_of(step.address);
        const bool fresh = free_after.contains(step.address);
        find_allocation(step.address)->in_use = true;
        m.used[region.device] += region.size;
        m.used_high[region.device] = std::max(m.used_high[region.device], m.used[region.device]);
        if (fresh) m.reserved[region.device] += region.size;
        m.reserved_high[region.device] = std::max(m.reserved_high[region.device], m.reserved[region.device]);
        ledger({"graph_alloc", step.address, region.requested, fresh ? static_cast<std::int64_t>(region.size) : 0,
                region.device, fresh ? free_after[step.address] : free_now(region.device), exec});
        free_after.erase(step.address);
    }
    return CUDA_SUCCESS;
}

CUresult graph_free_now_locked(Region& region, std::uint64_t address) {
    const Allocation* allocation = find_allocation(address);
    // "These allocations cannot be freed outside the owning graph" when that frees them itself.
    if (address != region.base || allocation == nullptr || !allocation->in_use || allocation->freed_in_owner) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    end_use(address, 0);
    return CUDA_SUCCESS;
}

namespace impl {

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    std::vector<std::uint64_t> unused;
    for (const auto& [address, allocation] : memory().allocations) {
        const Region& region = region_of(address);
        if (region.device == device && !region.pages.empty() && !allocation.in_use) unused.push_back(address);
    }
    for (const std::uint64_t address : unused) {
        Region& region = region_of(address);
        const std::uint64_t free_after = driver().physical.release(device, region.pages);
        region.pages.clear();
        memory().reserved[device] -= region.size;
        ledger({"graph_trim", address, region.requested, -static_cast<std::int64_t>(region.size), device,
                free_after});
        settle(address);
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    const GraphMemory& m = memory();
    const auto bytes = [&](std::uint64_t v) { return *static_cast<cuuint64_t*>(value) = v, CUDA_SUCCESS; };
    switch (attr) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: return bytes(m.used[device]);
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: return bytes(m.used_high[device]);
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: return bytes(m.reserved[device]);
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: return bytes(m.reserved_high[device]);
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
    if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    GraphMemory& m = memory();
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) return m.used_high[device] = m.used[device], CUDA_SUCCESS;
    if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return m.reserved_high[device] = m.reserved[device], CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace impl
}  // namespace fragscope::sim
