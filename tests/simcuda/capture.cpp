// cuStreamBeginCapture to cuStreamEndCapture, and the count of calls that a capture forbids.
#include "capture.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "call.h"

namespace fragscope::sim {

struct Capture {
    std::uint64_t id = 0;
    Stream* origin = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    long thread = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    std::unique_ptr<Graph> own;  // null when the program gave the graph to capture into
    Graph* graph = nullptr;
    GraphNode* last = nullptr;   // what the next node depends on
};

namespace {

// Under way, or invalid and not ended.
using Captures = std::set<std::shared_ptr<Capture>>;

Captures& captures() {
    static auto* const state = new Captures;
    return *state;
}

std::atomic<unsigned> captures_under_way{0};
std::atomic<std::uint64_t> unsafe_calls{0};
std::atomic<std::uint64_t> doubtful_calls{0};
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

long this_thread() { return ::syscall(SYS_gettid); }

// Whether the capture forbids unsafe calls to this thread: cuThreadExchangeStreamCaptureMode in cuda.h.
bool forbids(const Capture& capture) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    const bool own = capture.thread == this_thread() && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return own || (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

// Queries and memory calls that are not enqueued in a stream, so that a capture does not see them, and that no
// document allows or forbids.
bool is_doubtful(Function function) {
    switch (function) {
        case Function::cuMemGetInfo:
        case Function::cuMemGetInfo_v2:
        case Function::cuMemGetAddressRange_v2:
        case Function::cuPointerGetAttribute:
        case Function::cuPointerGetAttributes:
        case Function::cuMemGetAllocationGranularity:
        case Function::cuMemAddressReserve:
        case Function::cuMemAddressFree:
        case Function::cuMemCreate:
        case Function::cuMemRelease:
        case Function::cuMemMap:
        case Function::cuMemUnmap:
        case Function::cuMemSetAccess:
        case Function::cuMemRetainAllocationHandle:
        case Function::cuMemExportToShareableHandle:
        case Function::cuMemImportFromShareableHandle:
        case Function::cuMemHostUnregister:
        case Function::cuMemPoolCreate:
        case Function::cuMemPoolDestroy:
        case Function::cuMemPoolTrimTo:
        case Function::cuMemPoolSetAttribute:
        case Function::cuMemPoolSetAccess:
        case Function::cuMemPoolGetAccess:
        case Function::cuDeviceGetGraphMemAttribute:
        case Function::cuDeviceSetGraphMemAttribute:
        case Function::cuDeviceGraphMemTrim:
        case Function::cuMulticastCreate:
        case Function::cuMulticastBindMem:
        case Function::cuMulticastBindAddr:
        case Function::cuMulticastUnbind:
        case Function::cuCtxGetLimit:
        case Function::cuCtxSetLimit:
        case Function::cuCtxCreate_v2:
        case Function::cuCtxCreate_v3:
        case Function::cuCtxCreate_v4:
        case Function::cuCtxDestroy_v2:
        case Function::cuDevicePrimaryCtxReset_v2:
        case Function::cuModuleLoadData:
        case Function::cuModuleLoadDataEx:
        case Function::cuModuleUnload:
        case Function::cuLibraryLoadData:
        case Function::cuLibraryUnload:
        case Function::cuModuleGetGlobal_v2:
        case Function::cuLibraryGetGlobal:
        case Function::cuFuncLoad: return true;
        default: return false;
    }
}

// Into `into` with nodes that depend on `after`, or into a new graph when it is null.
CUresult begin(CUstream handle, CUstreamCaptureMode mode, CUgraph into = nullptr, const CUgraphNode* after = nullptr,
               std::size_t count = 0) {
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
    if (into == nullptr) {
        capture->own = std::make_unique<Graph>();
        capture->graph = capture->own.get();
    } else {
        capture->graph = find_graph_locked(into);
        std::vector<GraphNode*> nodes;
        if (capture->graph == nullptr || !find_nodes_locked(*capture->graph, after, count, nodes)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!nodes.empty()) capture->last = nodes.back();
    }
    stream->capture = capture;
    captures().insert(std::move(capture));
    if (captures_under_way.fetch_add(1) == 0) driver_state.fetch_or(kCapturing);
    return CUDA_SUCCESS;
}

std::vector<GraphNode*> after(const Capture& capture) {
    return capture.last == nullptr ? std::vector<GraphNode*>{} : std::vector<GraphNode*>{capture.last};
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
    if (graph != nullptr) *graph = stream->capture ? reinterpret_cast<CUgraph>(stream->capture->graph) : nullptr;
    return CUDA_SUCCESS;
}

}  // namespace

bool capture_active(const Capture& capture) { return capture.status == CU_STREAM_CAPTURE_STATUS_ACTIVE; }

CUresult check_unsafe(Function function) {
    if (captures_under_way.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
    Locked guard(driver().lock);
    bool forbidden = false;
    for (const auto& capture : captures()) {
        if (!forbids(*capture)) continue;
        forbidden = true;
        capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    }
    if (!forbidden) return CUDA_SUCCESS;
    ++unsafe_calls;
    log_unsafe("unsafe", kFunctionNames[static_cast<unsigned>(function)]);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void note_doubtful(Function function) {
    if (!is_doubtful(function) || captures_under_way.load(std::memory_order_acquire) == 0) return;
    Locked guard(driver().lock);
    const bool forbidden = std::any_of(captures().begin(), captures().end(),
                                       [](const auto& capture) { return forbids(*capture); });
    if (!forbidden) return;
    ++doubtful_calls;
    log_unsafe("doubtful", kFunctionNames[static_cast<unsigned>(function)]);
}

CUresult capture_unsupported_locked(Stream& stream) {
    stream.capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_allocate_locked(Stream& stream, std::uint64_t bytes, CUdeviceptr* dptr) {
    if (!capture_active(*stream.capture)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Capture& capture = *stream.capture;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.poolProps.location.id = stream.context->device;
    params.bytesize = bytes;
    const CUresult result = graph_add_allocation_locked(*capture.graph, params, after(capture), capture.last);
    if (result == CUDA_SUCCESS) *dptr = capture.last->address;
    return result;
}

CUresult capture_work_locked(Stream& stream, CUgraphNodeType type) {
    if (!capture_active(*stream.capture)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Capture& capture = *stream.capture;
    capture.last = &graph_add_work_locked(*capture.graph, type, after(capture));
    return CUDA_SUCCESS;
}

CUresult graph_free_async_locked(Stream& stream, Region& region, std::uint64_t address) {
    if (address != region.base) return CUDA_ERROR_INVALID_VALUE;
    if (stream.capture) {
        if (!capture_active(*stream.capture)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        Capture& capture = *stream.capture;
        return graph_add_free_locked(*capture.graph, address, after(capture), capture.last);
    }
    return graph_free_now_locked(region, address);
}

namespace impl {

CUresult cuStreamBeginCapture(CUstream hStream) { return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL); }
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) { return begin(hStream, mode); }

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData*, size_t numDependencies, CUstreamCaptureMode mode) {
    if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return begin(hStream, mode, hGraph, dependencies, numDependencies);
}

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
    captures().erase(capture);
    if (captures_under_way.fetch_sub(1) == 1) driver_state.fetch_and(~kCapturing);
    leave_capture_locked(*capture);
    if (!capture_active(*capture)) {
        if (capture->own) forget_nodes_locked(*capture->own);
        *phGraph = nullptr;
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *phGraph = capture->own ? keep_graph_locked(std::move(capture->own)) : reinterpret_cast<CUgraph>(capture->graph);
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

}  // namespace impl
}  // namespace fragscope::sim

extern "C" [[gnu::visibility("default")]] unsigned long long fragscope_sim_doubtful_calls() {
    return fragscope::sim::doubtful_calls.load();
}

extern "C" [[gnu::visibility("default")]] unsigned long long fragscope_sim_unsafe_calls() {
    return fragscope::sim::unsafe_calls.load();
}
