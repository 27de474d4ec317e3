// Executable graphs: instantiation, update, launch, end.
#include <algorithm>

#include "graph_memory.h"
#include "streams.h"

namespace fragscope::sim {
namespace {

struct GraphExec {
    Graph* graph = nullptr;  // what it was made of; null once that is destroyed
    cuuint64_t flags = 0;
    bool memory = false;     // has allocation or free nodes
    std::vector<CUgraphNodeType> types;
    std::vector<GraphStep> steps;  // the memory nodes, child graphs' included
};

using Execs = std::unordered_map<CUgraphExec, std::unique_ptr<GraphExec>>;

Execs& execs() {
    static auto* const state = new Execs;
    return *state;
}

GraphExec* find_exec(CUgraphExec handle) {
    const auto found = execs().find(handle);
    return found == execs().end() ? nullptr : found->second.get();
}

std::uint64_t value(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }

void flatten(const Graph& graph, GraphExec& exec) {
    for (const auto& node : graph.nodes) {
        exec.types.push_back(node->type);
        if (node->child) flatten(*node->child, exec);
        if (node->address != 0) exec.steps.push_back({node->type, node->address});
    }
}

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, cuuint64_t flags) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    constexpr cuuint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                  CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                  CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    const bool from_device = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
    if (from_device && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (from_device) return CUDA_ERROR_NOT_SUPPORTED;
    Locked guard(driver().lock);
    Graph* graph = find_graph_locked(graph_handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto exec = std::make_unique<GraphExec>();
    exec->graph = graph;
    exec->flags = flags;
    exec->memory = has_memory_nodes(*graph);
    // "there can be at most one executable graph in existence for that graph at a time"
    if (exec->memory && graph->instances != 0) return CUDA_ERROR_INVALID_VALUE;
    flatten(*graph, *exec);
    for (const GraphStep& step : exec->steps) {
        if (step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) retain_allocation_locked(step.address);
    }
    ++graph->instances;
    *handle = reinterpret_cast<CUgraphExec>(exec.get());
    ledger({"graph_instantiate", value(*handle), 0, 0, -1, 0, value(graph_handle)});
    execs().emplace(*handle, std::move(exec));
    return CUDA_SUCCESS;
}

CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo& info) {
    info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
    Locked guard(driver().lock);
    const GraphExec* exec = find_exec(handle);
    const Graph* graph = find_graph_locked(graph_handle);
    if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    GraphExec wanted;
    flatten(*graph, wanted);
    if (wanted.types.size() != exec->types.size()) {
        info.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    const auto node = [&](std::size_t i) {
        return i < graph->nodes.size() ? reinterpret_cast<CUgraphNode>(graph->nodes[i].get()) : nullptr;
    };
    for (std::size_t i = 0; i < wanted.types.size(); ++i) {
        if (wanted.types[i] == exec->types[i]) continue;
        info.result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        info.errorNode = node(i);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    // The steps are equal in number and kind now. An allocation belongs to one graph and keeps its address, so
    // that only a graph with the very same allocations can take the place of another.
    for (std::size_t i = 0; i < wanted.steps.size(); ++i) {
        if (wanted.steps[i].address == exec->steps[i].address) continue;
        info.result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    info.result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return CUDA_SUCCESS;
}

}  // namespace

void forget_graph_locked(const Graph& graph) {
    for (auto& [handle, exec] : execs()) {
        if (exec->graph == &graph) exec->graph = nullptr;
    }
}

namespace impl {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
    return instantiate(phGraphExec, hGraph, flags);
}
CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                            size_t bufferSize) {
    if (phErrorNode != nullptr) *phErrorNode = nullptr;
    if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
    return instantiate(phGraphExec, hGraph, 0);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                               size_t bufferSize) {
    return impl::cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = instantiate(phGraphExec, hGraph, p->flags);
    p->hErrNode_out = nullptr;
    p->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const GraphExec* exec = find_exec(hGraphExec);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
    if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return update(hGraphExec, hGraph, *resultInfo);
}
CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = update(hGraphExec, hGraph, info);
    if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
    if (updateResult_out != nullptr) *updateResult_out = info.result;
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    Locked guard(driver().lock);
    const auto found = execs().find(hGraphExec);
    if (found == execs().end()) return CUDA_ERROR_INVALID_VALUE;
    const std::unique_ptr<GraphExec> exec = std::move(found->second);
    execs().erase(found);
    if (exec->graph != nullptr) --exec->graph->instances;
    ledger({"graph_exec_destroy", value(hGraphExec), 0, 0, -1, 0});
    for (const GraphStep& step : exec->steps) {
        if (step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) release_allocation_locked(step.address, nullptr);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    if (find_exec(hGraph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return find_stream_locked(hStream, *context) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const GraphExec* exec = find_exec(hGraph);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const bool auto_free = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    const CUresult result = run_memory_steps_locked(exec->steps, auto_free, value(hGraph));
    if (result != CUDA_SUCCESS) return result;
    ++stream->issued;
    ledger({"graph_launch", value(hGraph), 0, 0, -1, 0});
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
