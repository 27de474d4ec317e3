// Ends in the way that its word says, with memory that is still allocated, and calls before main() and after it:
//   return, exit, _exit, quick_exit, abort, kill, segv, thread (the first thread ends and another one exits), loop (exit()
//   from a function of atexit), constructor (exit() before main)
#include <pthread.h>

#include <thread>

#include "host.h"

namespace {

void call(const char* when) {
    std::printf("%s\n", when);
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    host::say("cuInit", &cuInit, 0u);
    host::say("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &context, 0);
    host::say("cuCtxSetCurrent", &cuCtxSetCurrent, context);
    host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &address, std::size_t{10000});
    host::say("cuMemFree_v2", &cuMemFree_v2, address);
    std::fflush(stdout);
}

void late() { call("atexit"); }
void quick() { call("at_quick_exit"); }
struct Static {
    Static() {
        call("static constructor");
        if (const char* way = std::getenv("HOST_WAY"); way != nullptr && std::strcmp(way, "constructor") == 0) std::exit(5);
    }
    ~Static() { call("static destructor"); }
};
[[gnu::constructor(101)]] void early() { call("constructor"); }
[[gnu::destructor(101)]] void last() { call("destructor"); }
Static made;
struct Local {
    ~Local() { call("thread-local destructor"); }
};
thread_local Local local;

}  // namespace

int main(int count, char** words) {
    const std::string way = count > 1 ? words[1] : "";
    std::atexit(late);
    std::at_quick_exit(quick);
    (void)&local;
    call("main");
    CUdeviceptr kept = 0;
    host::say("kept", &cuMemAlloc_v2, &kept, std::size_t{5} << 20);
    std::thread([] {
        (void)&local;
        call("thread");
    }).join();
    std::fflush(stdout);
    if (way == "exit") std::exit(5);
    if (way == "_exit") _exit(5);
    if (way == "quick_exit") std::quick_exit(5);
    if (way == "abort") std::abort();
    if (way == "kill") kill(getpid(), SIGKILL);
    if (way == "segv") raise(SIGSEGV);
    if (way == "thread") {
        std::thread([main_thread = pthread_self()] {
            pthread_join(main_thread, nullptr);
            call("after the first thread");
            std::exit(5);
        }).detach();
        pthread_exit(nullptr);
    }
    return 5;
}
