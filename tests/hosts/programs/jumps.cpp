// What a signal does to a call that is under way, and what no call says. By its word:
//   jump     a handler leaves a call by siglongjmp, the old way to limit its time; allocations follow
//   handler  a handler allocates while the thread is in a call
//   stream   a stream is destroyed while it is captured; an allocation fails later
//   context  the same with the only context, after which there is a new one
//   joined   a stream is destroyed that has only joined a capture; an allocation fails while that goes on
//   others   another device's primary context is reset in a capture; an allocation fails while that goes on
//   asked N  an allocation fails, and a handler leaves the Nth interrupted call that this makes by siglongjmp
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "host.h"

extern "C" unsigned long long fragscope_sim_unsafe_calls();

namespace {

sigjmp_buf back;
volatile CUresult answered = CUDA_ERROR_UNKNOWN;
CUdeviceptr of_handler = 0;

void leave(int) { siglongjmp(back, 1); }
void allocate(int) { answered = cuMemAlloc_v2(&of_handler, std::size_t{3} << 20); }

// By the driver's settings SIGALRM comes in the middle of each cuCtxSynchronize.
void interrupt(void (*handler)(int)) { std::signal(SIGALRM, handler); }

void use_memory() {
    CUdeviceptr address = 0;
    for (int i = 0; i < 4; ++i) host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &address, std::size_t{2} << 20);
    host::say("cuMemAlloc_v2 too much", &cuMemAlloc_v2, &address, std::size_t{1} << 40);
}

void begin_capture() {
    CUstream stream = nullptr;
    host::say("cuStreamCreate", &cuStreamCreate, &stream, 1u);
    host::say("cuStreamBeginCapture", &cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

void destroy_captured() {
    CUstream stream = nullptr;
    host::say("cuStreamCreate", &cuStreamCreate, &stream, 1u);
    host::say("cuStreamBeginCapture", &cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    host::say("cuStreamDestroy", &cuStreamDestroy_v2, stream);
}

// An allocation that fails, of a kind that a capture allows.
void fail_in_capture(CUstream stream) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemGenericAllocationHandle handle = 0;
    CUgraph graph = nullptr;
    host::say("cuMemCreate too much", &cuMemCreate, &handle, std::size_t{1} << 40, &properties, 0ull);
    std::printf("unsafe %llu\n", fragscope_sim_unsafe_calls());
    host::say("cuStreamEndCapture", &cuStreamEndCapture, stream, &graph);
    host::say("cuMemCreate again", &cuMemCreate, &handle, std::size_t{1} << 40, &properties, 0ull);
}

CUstream begin_global() {
    CUstream stream = nullptr;
    host::say("cuStreamCreate", &cuStreamCreate, &stream, 1u);
    host::say("cuStreamBeginCapture", &cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    return stream;
}

void destroy_joined() {
    CUstream joined = nullptr;
    CUevent event = nullptr;
    host::say("cuStreamCreate", &cuStreamCreate, &joined, 1u);
    host::say("cuEventCreate", &cuEventCreate, &event, 2u);
    const CUstream stream = begin_global();
    host::say("cuEventRecord", &cuEventRecord, event, stream);
    host::say("cuStreamWaitEvent", &cuStreamWaitEvent, joined, event, 0u);
    host::say("cuStreamDestroy", &cuStreamDestroy_v2, joined);
    fail_in_capture(stream);
}

volatile int until_leave = 0;  // interruptions, the last of which is left; 0: none are

void leave_at_last(int) {
    if (until_leave == 0) return;
    until_leave = until_leave - 1;
    if (until_leave == 0) siglongjmp(back, 1);
}

// A call that is left changes nothing for the ones after it.
void leave_questions(int number, CUcontext context) {
    CUcontext other = nullptr, current = nullptr, below = nullptr;
    CUmemoryPool pool = nullptr;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    host::say("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &other, 1);
    host::say("cuMemPoolCreate", &cuMemPoolCreate, &pool, &properties);
    CUdeviceptr address = 0;
    if (sigsetjmp(back, 1) == 0) {
        until_leave = number;
        cuMemAlloc_v2(&address, std::size_t{1} << 40);
    }
    until_leave = 0;
    host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &address, std::size_t{1} << 20);
    cuCtxGetCurrent(&current);
    std::printf("the same context: %d\n", current == context);
    host::say("cuCtxPopCurrent", &cuCtxPopCurrent_v2, &below);
    cuCtxGetCurrent(&current);
    std::printf("none below: %d\n", current == nullptr);
    host::say("cuCtxPushCurrent", &cuCtxPushCurrent_v2, context);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    host::say("cuThreadExchangeStreamCaptureMode", &cuThreadExchangeStreamCaptureMode, &mode);
    std::printf("mode %d\n", static_cast<int>(mode));
    const auto begun = std::chrono::steady_clock::now();
    host::say("cuMemPoolDestroy", &cuMemPoolDestroy, pool);
    std::printf("at once: %d\n", std::chrono::steady_clock::now() - begun < std::chrono::seconds(1));
}

}  // namespace

int main(int, char** words) {
    const char* word = words[1];
    CUcontext context = nullptr;
    if (std::strcmp(word, "asked") == 0)
        interrupt(leave_at_last);  // the recorder asks from the first context on
    host::say("cuInit", &cuInit, 0u);
    host::say("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &context, 0);
    host::say("cuCtxSetCurrent", &cuCtxSetCurrent, context);
    if (std::strcmp(word, "jump") == 0) {
        if (sigsetjmp(back, 1) == 0) {
            interrupt(leave);
            cuCtxSynchronize();
            std::puts("not left");
        } else {
            std::puts("left");
        }
    } else if (std::strcmp(word, "handler") == 0) {
        interrupt(allocate);
        host::say("cuCtxSynchronize", &cuCtxSynchronize);
        std::printf("the handler's allocation %d\n", static_cast<int>(answered));
    } else if (std::strcmp(word, "context") == 0) {
        begin_capture();
        host::say("cuDevicePrimaryCtxReset", &cuDevicePrimaryCtxReset_v2, 0);
        host::say("cuDevicePrimaryCtxRetain again", &cuDevicePrimaryCtxRetain, &context, 0);
        host::say("cuCtxSetCurrent again", &cuCtxSetCurrent, context);
    } else if (std::strcmp(word, "joined") == 0) {
        destroy_joined();
        return 0;
    } else if (std::strcmp(word, "others") == 0) {
        const CUstream stream = begin_global();
        host::say("cuDevicePrimaryCtxReset", &cuDevicePrimaryCtxReset_v2, 1);
        fail_in_capture(stream);
        return 0;
    } else if (std::strcmp(word, "asked") == 0) {
        leave_questions(std::atoi(words[2]), context);
        return 0;
    } else {
        destroy_captured();
    }
    use_memory();
    return 0;
}
