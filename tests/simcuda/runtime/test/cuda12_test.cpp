// What only the runtime of CUDA 12 has: functions with the parameters from before CUDA 13. Against the
// simulated driver.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

// Symbols that the header does not declare to programs, because it renames the functions to their successors.
#undef cudaGetDeviceProperties
#undef cudaStreamGetCaptureInfo
extern "C" cudaError_t cudaGetDeviceProperties(void* prop, int device);
extern "C" cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*);
extern "C" cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t, cudaStreamCaptureStatus*,
                                                     unsigned long long*);

TEST_CASE("cuda12: places are named by ordinals") {
    void* memory = nullptr;
    REQUIRE(cudaMallocManaged(&memory, 1 << 20, cudaMemAttachGlobal) == cudaSuccess);
    // The driver refuses a device that is not there: the ordinal has to arrive as one, and the host as the
    // host.
    CHECK(cudaMemAdvise(memory, 1 << 20, cudaMemAdviseSetPreferredLocation, 1) == cudaSuccess);
    CHECK(cudaMemAdvise(memory, 1 << 20, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId) == cudaSuccess);
    CHECK(cudaMemAdvise(memory, 1 << 20, cudaMemAdviseSetPreferredLocation, 99) == cudaErrorInvalidDevice);
    CHECK(cudaMemPrefetchAsync(memory, 1 << 20, 1, nullptr) == cudaSuccess);
    CHECK(cudaMemPrefetchAsync(memory, 1 << 20, cudaCpuDeviceId, nullptr) == cudaSuccess);
    CHECK(cudaMemPrefetchAsync(memory, 1 << 20, 99, nullptr) == cudaErrorInvalidDevice);
    CHECK(cudaMemAdvise_v2(memory, 1 << 20, cudaMemAdviseSetReadMostly, {cudaMemLocationTypeDevice, 0}) ==
          cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("cuda12: three generations of capture information agree") {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    unsigned long long first = 0, per_thread = 0, second = 0, third = 0;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &first) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &first) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    CHECK(cudaStreamGetCaptureInfo_ptsz(stream, nullptr, &per_thread) == cudaErrorInvalidValue);
    CHECK(cudaStreamGetCaptureInfo_ptsz(stream, &status, &per_thread) == cudaSuccess);
    cudaGraph_t graph = nullptr, same_graph = nullptr;
    CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, &second, &graph, nullptr, nullptr) == cudaSuccess);
    CHECK(cudaStreamGetCaptureInfo_v3(stream, &status, &third, &same_graph, nullptr, nullptr, nullptr) ==
          cudaSuccess);
    CHECK(first != 0);
    CHECK(first == per_thread);
    CHECK(first == second);
    CHECK(first == third);
    CHECK(graph != nullptr);
    CHECK(graph == same_graph);
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("cuda12: nodes without edge data, both elapsed times, names from before the word device") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaGraphCreate(&graph, 0) == cudaSuccess);
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeMemAlloc;
    params.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    params.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    params.alloc.bytesize = 4096;
    cudaGraphNode_t node = nullptr;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, 0, &params) == cudaSuccess);
    CHECK(params.alloc.dptr != nullptr);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);

    cudaEvent_t start = nullptr, end = nullptr;
    REQUIRE(cudaEventCreate(&start) == cudaSuccess);
    REQUIRE(cudaEventCreate(&end) == cudaSuccess);
    REQUIRE(cudaEventRecord(start, nullptr) == cudaSuccess);
    REQUIRE(cudaEventRecord(end, nullptr) == cudaSuccess);
    REQUIRE(cudaThreadSynchronize() == cudaSuccess);
    float before = -1, now = -1;
    CHECK(cudaEventElapsedTime(&before, start, end) == cudaSuccess);
    CHECK(cudaEventElapsedTime_v2(&now, start, end) == cudaSuccess);
    CHECK(before >= 0);
    CHECK(before == now);

    size_t by_thread = 0, by_device = 1;
    CHECK(cudaThreadSetLimit(cudaLimitStackSize, 4096) == cudaSuccess);
    CHECK(cudaThreadGetLimit(&by_thread, cudaLimitStackSize) == cudaSuccess);
    CHECK(cudaDeviceGetLimit(&by_device, cudaLimitStackSize) == cudaSuccess);
    CHECK(by_thread == by_device);
    CHECK(cudaThreadExit() == cudaSuccess);
}

// Its structure is CUDA 11's, which is smaller than the one that headers of CUDA 12 declare: nothing may be
// written.
TEST_CASE("cuda12: the properties of CUDA 11 are not offered") {
    unsigned char untouched = 0x5a;
    CHECK(cudaGetDeviceProperties(&untouched, 0) == cudaErrorNotSupported);
    CHECK(untouched == 0x5a);
}
