// Captures streams, in every mode and with every kind of call in between that a capture allows, and with some that it does
// not. Says how often the driver was asked what must not be asked then: the program's own share is the same without a
// recorder.
#include <thread>

#include "host.h"

extern "C" unsigned long long fragscope_sim_unsafe_calls();
extern "C" unsigned long long fragscope_sim_doubtful_calls();  // that no document allows in a capture, or forbids

namespace {

void say_unsafe(const char* where) {
    std::printf("unsafe %s %llu, doubtful %llu\n", where, fragscope_sim_unsafe_calls(), fragscope_sim_doubtful_calls());
}

void allowed(CUstream stream) {
    CUdeviceptr captured = 0, other = 0;
    host::say("cuMemAllocAsync captured", &cuMemAllocAsync, &captured, std::size_t{1} << 20, stream);
    host::say("cuMemsetD8Async captured", &cuMemsetD8Async, captured, static_cast<unsigned char>(1), std::size_t{64}, stream);
    host::say("cuMemFreeAsync captured", &cuMemFreeAsync, captured, stream);
    host::say("cuMemAllocAsync other stream", &cuMemAllocAsync, &other, std::size_t{1} << 20, CU_STREAM_PER_THREAD);
    host::say("cuMemFreeAsync other stream", &cuMemFreeAsync, other, CU_STREAM_PER_THREAD);
    say_unsafe("after stream-ordered calls");
}

// Virtual memory calls, and failures that are looked into.
void management(int turn) {
    CUdeviceptr reserved = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    host::say("cuMemAddressReserve", &cuMemAddressReserve, &reserved, std::size_t{2} << 20, std::size_t{0}, CUdeviceptr{0}, 0ull);
    host::say("cuMemCreate", &cuMemCreate, &handle, std::size_t{2} << 20, &properties, 0ull);
    host::say("cuMemMap", &cuMemMap, reserved, std::size_t{2} << 20, std::size_t{0}, handle, 0ull);
    host::say("cuMemUnmap", &cuMemUnmap, reserved, std::size_t{2} << 20);
    host::say("cuMemRelease", &cuMemRelease, handle);
    host::say("cuMemAddressFree", &cuMemAddressFree, reserved, std::size_t{2} << 20);
    host::say("cuMemCreate too much", &cuMemCreate, &handle, std::size_t{1} << 40, &properties, 0ull);
    CUdeviceptr address = 0;
    if (turn > 0) host::say("cuMemAlloc too much", &cuMemAlloc_v2, &address, std::size_t{1} << 40);
    say_unsafe("after management");
}

void capture(CUstreamCaptureMode mode, bool spoil) {
    std::printf("mode %d\n", static_cast<int>(mode));
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    host::say("cuStreamCreate", &cuStreamCreate, &stream, 1u);
    host::say("cuStreamBeginCapture", &cuStreamBeginCapture_v2, stream, mode);
    allowed(stream);
    std::thread([] { management(0); }).join();
    if (spoil) management(1);
    host::say("cuStreamEndCapture", &cuStreamEndCapture, stream, &graph);
    say_unsafe("after the capture");
    if (graph != nullptr) {
        host::say("cuGraphInstantiate", &cuGraphInstantiateWithFlags, &executable, graph, 0ull);
        if (executable != nullptr) host::say("cuGraphLaunch", &cuGraphLaunch, executable, stream);
        host::say("cuStreamSynchronize", &cuStreamSynchronize, stream);
        if (executable != nullptr) host::say("cuGraphExecDestroy", &cuGraphExecDestroy, executable);
        host::say("cuGraphDestroy", &cuGraphDestroy, graph);
    }
    host::say("cuDeviceGraphMemTrim", &cuDeviceGraphMemTrim, 0);
    host::say("cuStreamDestroy", &cuStreamDestroy_v2, stream);
}

}  // namespace

int main() {
    CUcontext context = nullptr;
    host::say("cuInit", &cuInit, 0u);
    host::say("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &context, 0);
    host::say("cuCtxSetCurrent", &cuCtxSetCurrent, context);
    for (const auto mode :
         {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED})
        for (const bool spoil : {false, true}) capture(mode, spoil);
    // A first look at a context falls into somebody's capture.
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    cuStreamCreate(&stream, 1);
    host::say("cuStreamBeginCapture", &cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    std::thread([] {
        CUcontext second = nullptr;
        CUdeviceptr pooled = 0;
        host::say("second cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &second, 1);
        host::say("second cuCtxSetCurrent", &cuCtxSetCurrent, second);
        host::say("second cuMemAllocAsync", &cuMemAllocAsync, &pooled, std::size_t{1} << 20, CU_STREAM_PER_THREAD);
    }).join();
    say_unsafe("after another context");
    host::say("cuStreamEndCapture", &cuStreamEndCapture, stream, &graph);
    std::printf("graph %s\n", graph != nullptr ? "made" : "spoilt");
    return 0;
}
