// cuStreamBeginCapture to cuGraphLaunch, and the count of calls that a capture forbids.
#include "capture.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "call.h"

namespace fragscope::sim {

struct Graph {
    struct Node {
        bool allocates;
        std::uint64_t address;
    };
    std::vector<Node> nodes;
    bool executable = false;  // made by an instantiation
};

struct Capture {
    std::uint64_t id = 0;
    Stream* origin = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    long thread = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    std::unique_ptr<Graph> graph;
};

namespace {

struct Graphs {
    std::unordered_map<void*, std::unique_ptr<Graph>> all;  // CUgraph and CUgraphExec alike
    std::set<std::shared_ptr<Capture>> captures;            // under way, or invalid and not ended
    std::set<std::uint64_t> in_use;                         // graph allocations launched and not freed
    std::uint64_t reserved[kMaxDevices] = {}, reserved_high[kMaxDevices] = {};
    std::uint64_t used[kMaxDevices] = {}, used_high[kMaxDevices] = {};
};

Graphs& graphs() {
    static Graphs* const state = new Graphs;
    return *state;
}

std::atomic<unsigned> captures_under_way{0};
std::atomic<std::uint64_t> unsafe_calls{0};
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

long this_thread() { return ::syscall(SYS_gettid); }

Graph* find_graph(void* handle, bool executable) {
    const auto found = graphs().all.find(handle);
    return found == graphs().all.end() || found->second->executable != executable ? nullptr : found->second.get();
}

std::uint64_t free_now(int device) { return ledger_open() ? driver().physical.free_bytes_now(device) : 0; }

void no_longer_in_use(Region& region) {
    if (graphs().in_use.erase(region.base) == 0) return;
    graphs().used[region.device] -= region.size;
    ledger({"graph_free", region.base, region.requested, 0, region.device, free_now(region.device)});
}

CUresult bind(Region& region) {
    Graphs& g = graphs();
    if (g.in_use.contains(region.base)) return CUDA_ERROR_INVALID_VALUE;  // launched again before it was freed
    std::uint64_t free_after = free_now(region.device);
    std::int64_t charged = 0;
    if (region.pages.empty()) {
        if (!take_pages_locked(region.device, driver().pages_for(region.size), false, region.pages, free_after)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        charged = static_cast<std::int64_t>(region.size);
        g.reserved[region.device] += region.size;
        g.reserved_high[region.device] = std::max(g.reserved_high[region.device], g.reserved[region.device]);
    }
    g.in_use.insert(region.base);
    g.used[region.device] += region.size;
    g.used_high[region.device] = std::max(g.used_high[region.device], g.used[region.device]);
    ledger({"graph_alloc", region.base, region.requested, charged, region.device, free_after});
    return CUDA_SUCCESS;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (handle == nullptr || handle == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(handle, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<Capture>();
    capture->id = driver().next_id++;
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = this_thread();
    capture->graph = std::make_unique<Graph>();
    stream->capture = capture;
    graphs().captures.insert(std::move(capture));
    ++captures_under_way;
    return CUDA_SUCCESS;
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Stream* stream = find_stream_locked(handle, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *status = stream->capture ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream->capture && id != nullptr) *id = stream->capture->id;
    if (graph != nullptr) *graph = stream->capture ? reinterpret_cast<CUgraph>(stream->capture->graph.get()) : nullptr;
    return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* exec, CUgraph handle) {
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Graph* graph = find_graph(handle, false);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_unique<Graph>(*graph);
    made->executable = true;
    *exec = reinterpret_cast<CUgraphExec>(made.get());
    graphs().all.emplace(made.get(), std::move(made));
    return CUDA_SUCCESS;
}

}  // namespace

bool capture_active(const Capture& capture) { return capture.status == CU_STREAM_CAPTURE_STATUS_ACTIVE; }

CUresult check_unsafe(Function function) {
    if (captures_under_way.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    Locked guard(driver().lock);
    const long thread = this_thread();
    bool forbidden = false;
    for (const auto& capture : graphs().captures) {
        const bool own = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        const bool others = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!own && !others) continue;
        forbidden = true;
        capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    }
    if (!forbidden) return CUDA_SUCCESS;
    ++unsafe_calls;
    log_unsafe(kFunctionNames[static_cast<unsigned>(function)]);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_unsupported_locked(Stream& stream) {
    stream.capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_allocate_locked(Stream& stream, std::uint64_t bytes, CUdeviceptr* dptr) {
    if (!capture_active(*stream.capture)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Region* region = nullptr;
    std::uint64_t free_after = 0;
    const CUresult result = make_region_locked(Region::Kind::Graph, stream.context->device, bytes, false, false,
                                               region, free_after);
    if (result != CUDA_SUCCESS) return result;
    stream.capture->graph->nodes.push_back({true, region->base});
    *dptr = region->base;
    ledger({"graph_node_alloc", region->base, bytes, 0, region->device, free_after});
    return CUDA_SUCCESS;
}

CUresult graph_free_async_locked(Stream& stream, Region& region, std::uint64_t address) {
    if (address != region.base) return CUDA_ERROR_INVALID_VALUE;
    if (stream.capture) {
        if (!capture_active(*stream.capture)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        stream.capture->graph->nodes.push_back({false, address});
        ledger({"graph_node_free", address, region.requested, 0, region.device, free_now(region.device)});
        return CUDA_SUCCESS;
    }
    return graph_free_now_locked(region, address);
}

CUresult graph_free_now_locked(Region& region, std::uint64_t address) {
    if (address != region.base || !graphs().in_use.contains(address)) return CUDA_ERROR_INVALID_VALUE;
    no_longer_in_use(region);
    return CUDA_SUCCESS;
}

namespace impl {

CUresult cuStreamBeginCapture(CUstream hStream) { return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL); }
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) { return begin(hStream, mode); }

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    graphs().captures.erase(capture);
    --captures_under_way;
    leave_capture_locked(*capture);
    if (!capture_active(*capture)) {
        *phGraph = nullptr;
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *phGraph = reinterpret_cast<CUgraph>(capture->graph.get());
    graphs().all.emplace(capture->graph.get(), std::move(capture->graph));
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
    return capture_info(hStream, captureStatus, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out) {
    return capture_info(hStream, captureStatus_out, id_out, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
    if (dependencies_out != nullptr) *dependencies_out = nullptr;
    if (numDependencies_out != nullptr) *numDependencies_out = 0;
    return capture_info(hStream, captureStatus_out, id_out, graph_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) {
    if (edgeData_out != nullptr) *edgeData_out = nullptr;
    return impl::cuStreamGetCaptureInfo_v2(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                                     numDependencies_out);
}

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
    if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    auto graph = std::make_unique<Graph>();
    *phGraph = reinterpret_cast<CUgraph>(graph.get());
    graphs().all.emplace(graph.get(), std::move(graph));
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    Locked guard(driver().lock);
    if (find_graph(hGraph, false) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    graphs().all.erase(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    Locked guard(driver().lock);
    if (find_graph(hGraphExec, true) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    graphs().all.erase(hGraphExec);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long) {
    return instantiate(phGraphExec, hGraph);
}
CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode*, char*, size_t) {
    return instantiate(phGraphExec, hGraph);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode*, char*, size_t) {
    return instantiate(phGraphExec, hGraph);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    p->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate(phGraphExec, hGraph);
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
    if (numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Graph* graph = find_graph(hGraph, false);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (nodes != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // only their number is kept for the program
    *numNodes = graph->nodes.size();
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream) {
    Locked guard(driver().lock);
    return find_graph(hGraph, true) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Graph* graph = find_graph(hGraph, true);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (const Graph::Node& node : graph->nodes) {
        Region* region = find_region_locked(node.address);
        if (region == nullptr || region->kind != Region::Kind::Graph) continue;
        if (!node.allocates) {
            no_longer_in_use(*region);
        } else if (const CUresult error = bind(*region); error != CUDA_SUCCESS) {
            return error;
        }
    }
    ++stream->issued;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    for (auto& [base, region] : driver().regions) {
        if (region.kind != Region::Kind::Graph || region.device != device || region.pages.empty()) continue;
        if (graphs().in_use.contains(base)) continue;
        const std::uint64_t free_after = driver().physical.release(device, region.pages);
        region.pages.clear();
        graphs().reserved[device] -= region.size;
        ledger({"graph_trim", base, region.requested, -static_cast<std::int64_t>(region.size), device, free_after});
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    const Graphs& g = graphs();
    const auto bytes = [&](std::uint64_t v) { return *static_cast<cuuint64_t*>(value) = v, CUDA_SUCCESS; };
    switch (attr) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: return bytes(g.used[device]);
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: return bytes(g.used_high[device]);
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: return bytes(g.reserved[device]);
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: return bytes(g.reserved_high[device]);
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
    if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    Graphs& g = graphs();
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) return g.used_high[device] = g.used[device], CUDA_SUCCESS;
    if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return g.reserved_high[device] = g.reserved[device], CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace impl
}  // namespace fragscope::sim

extern "C" [[gnu::visibility("default")]] unsigned long long fragscope_sim_unsafe_calls() {
    return fragscope::sim::unsafe_calls.load();
}
