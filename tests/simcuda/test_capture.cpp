// Stream capture: no bytes until a launch; calls that it forbids.
#include <thread>

#include "sim_test.h"

using namespace sim_test;

extern "C" unsigned long long fragscope_sim_unsafe_calls();
extern "C" unsigned long long fragscope_sim_doubtful_calls();

namespace {

CUstream capturing(CUstreamCaptureMode mode) {
    CUstream stream = nullptr;
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
    return stream;
}

cuuint64_t graph_bytes(CUgraphMem_attribute which) {
    cuuint64_t value = 0;
    REQUIRE(cuDeviceGetGraphMemAttribute(0, which, &value) == CUDA_SUCCESS);
    return value;
}

}  // namespace

SIM_TEST("an allocation in a capture costs nothing until the graph is launched", "CONTEXT_OVERHEAD=0") {
    start();
    const std::size_t before = free_bytes();
    const CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureStatus status{};
    CHECK(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUdeviceptr a = 0, b = 0;
    CHECK(cuMemAllocAsync(&a, 4 * kMiB, stream) == CUDA_SUCCESS);
    CHECK(cuMemAllocAsync(&b, 4 * kMiB, stream) == CUDA_SUCCESS);
    CHECK(a != b);
    CHECK(cuMemFreeAsync(b, stream) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    CHECK(cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 8 * kMiB);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 4 * kMiB);
    CHECK(graph_bytes(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 8 * kMiB);
    CHECK(cuGraphLaunch(executable, stream) == CUDA_ERROR_INVALID_VALUE);  // `a` is still allocated
    CHECK(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
    CHECK(before - free_bytes() == 4 * kMiB);
    CHECK(cuMemFree(a) == CUDA_SUCCESS);
    CHECK(cuMemFree(a) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
    CHECK(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    CHECK(fragscope_sim_unsafe_calls() == 0);
}

SIM_TEST("a forbidden call is refused, counted and spoils the capture", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, 1) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(fragscope_sim_unsafe_calls() == 1);
    CUgraph graph = nullptr;
    CHECK(cuMemAllocAsync(&address, 1, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == nullptr);
    CHECK(cuMemAlloc(&address, 1) == CUDA_SUCCESS);
}

SIM_TEST("modes say whose calls are forbidden", "CONTEXT_OVERHEAD=0") {
    start();
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    const auto in_other_thread = [&] {
        CUresult result = CUDA_ERROR_UNKNOWN;
        std::thread([&] {
            cuCtxSetCurrent(context);
            CUdeviceptr address = 0;
            result = cuMemAlloc(&address, 1);
        }).join();
        return result;
    };
    CUgraph graph = nullptr;
    CUdeviceptr address = 0;
    CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK(in_other_thread() == CUDA_SUCCESS);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cuMemAlloc(&address, 1) == CUDA_SUCCESS);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuMemAlloc(&address, 1) == CUDA_SUCCESS);
    CHECK(fragscope_sim_unsafe_calls() == 0);
    CHECK(in_other_thread() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(fragscope_sim_unsafe_calls() == 1);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

SIM_TEST("a second stream joins by waiting for an event", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstream second = nullptr;
    CUevent event = nullptr;
    CUstreamCaptureStatus status{};
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS);
    CHECK(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
    CHECK(cuStreamIsCapturing(second, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(second, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    CHECK(cuStreamIsCapturing(second, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
}

SIM_TEST("calls that a capture may forbid are counted and done", "CONTEXT_OVERHEAD=0") {
    start();
    free_bytes();
    CHECK(fragscope_sim_doubtful_calls() == 0);  // no capture yet
    const CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    free_bytes();
    CHECK(fragscope_sim_doubtful_calls() == 1);
    const CUmemGenericAllocationHandle handle = create(2 * kMiB);
    CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(fragscope_sim_doubtful_calls() == 3);
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    std::thread([&] {
        cuCtxSetCurrent(context);
        std::size_t free = 0;
        cuMemGetInfo(&free, nullptr);  // another thread's capture, which is its own affair
    }).join();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    free_bytes();
    CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(fragscope_sim_doubtful_calls() == 3);
    CHECK(fragscope_sim_unsafe_calls() == 0);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    free_bytes();
    CHECK(fragscope_sim_doubtful_calls() == 3);
}

SIM_TEST("the device of a stream is not to be asked for in a capture", "CONTEXT_OVERHEAD=0") {
    start();
    const CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdevice device = 0;
    CHECK(cuStreamGetDevice(stream, &device) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(fragscope_sim_unsafe_calls() == 1);
}

SIM_TEST("captured work is in the graph, in order, and a launch of it does nothing", "CONTEXT_OVERHEAD=0") {
    start();
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    REQUIRE(cuModuleLoadData(&module, "some image") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&function, module, "kernel") == CUDA_SUCCESS);
    const CUdeviceptr memory = allocate(kMiB);
    REQUIRE(cuMemsetD8(memory, 1, kMiB) == CUDA_SUCCESS);
    const CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    int calls = 0;
    CHECK(cuMemsetD8Async(memory, 2, kMiB, stream) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoDAsync(memory, memory + 512, 512, stream) == CUDA_SUCCESS);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_SUCCESS);
    CHECK(cuLaunchHostFunc(stream, [](void* count) { ++*static_cast<int*>(count); }, &calls) == CUDA_SUCCESS);
    CUgraph graph = nullptr;
    REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    CUgraphNode nodes[5]{};
    std::size_t count = 5;
    REQUIRE(cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS);
    REQUIRE(count == 4);
    const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_KERNEL,
                                        CU_GRAPH_NODE_TYPE_HOST};
    for (std::size_t i = 0; i < count; ++i) {
        CUgraphNodeType type{};
        CHECK(cuGraphNodeGetType(nodes[i], &type) == CUDA_SUCCESS);
        CHECK(type == expected[i]);
    }
    std::size_t roots = 0;
    CHECK(cuGraphGetRootNodes(graph, nullptr, &roots) == CUDA_SUCCESS);
    CHECK(roots == 1);
    CUgraphExec executable = nullptr;
    CHECK(cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
    unsigned char byte = 0;
    CHECK(cuMemcpyDtoH(&byte, memory, 1) == CUDA_SUCCESS);
    CHECK(byte == 1);
    CHECK(calls == 0);
}

SIM_TEST("work for a capture that was spoilt is refused", "CONTEXT_OVERHEAD=0") {
    start();
    const CUdeviceptr memory = allocate(kMiB);
    const CUstream stream = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cuMemsetD8Async(memory, 2, kMiB, stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
