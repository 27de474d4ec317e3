// What a signal does to a call that is under way, and what no call says. By its word:
//   jump     a handler leaves a call by siglongjmp, the old way to limit its time; allocations follow
//   handler  a handler allocates while the thread is in a call
//   stream   a stream is destroyed while it is captured; an allocation fails later
//   context  the same with the only context, after which there is a new one
#include <csetjmp>
#include <csignal>
#include <cstring>

#include "host.h"

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

}  // namespace

int main(int, char** words) {
    const char* word = words[1];
    CUcontext context = nullptr;
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
    } else {
        destroy_captured();
    }
    use_memory();
    return 0;
}
