// Signals that come in while the driver is called: a timer, handlers on a stack of their own, a mask, an ignored signal. What
// is set stays set, and handlers run.
#include <sys/time.h>

#include <atomic>

#include "host.h"

namespace {
std::atomic<int> ticks{0}, users{0};
void on_tick(int) {
    const int kept = errno;
    ++ticks;
    if (ticks % 7 == 0) raise(SIGUSR1);
    errno = kept;
}
void on_user(int, siginfo_t* info, void*) {
    if (info->si_pid == getpid()) ++users;
}
alignas(16) char other_stack[1 << 16];
}  // namespace

int main() {
    stack_t stack{};
    stack.ss_sp = other_stack;
    stack.ss_size = sizeof other_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_handler = on_tick;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(SIGALRM, &action, nullptr);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = on_user;
    sigaction(SIGUSR1, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    kill(getpid(), SIGUSR2);  // stays pending
    host::look_around("before");
    CUcontext context = nullptr;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    const itimerval often{{0, 500}, {0, 500}}, never{};
    setitimer(ITIMER_REAL, &often, nullptr);
    int bad = 0;
    // Until it has been interrupted often enough, which the clock decides.
    for (long calls = 0; ticks < 50 || calls < 10000; ++calls) {
        CUdeviceptr address = 0;
        errno = host::kErrno;
        if (cuMemAlloc_v2(&address, 1000) != CUDA_SUCCESS || cuMemFree_v2(address) != CUDA_SUCCESS || errno != host::kErrno) ++bad;
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    std::printf("bad %d users %s\n", bad, users > 0 ? "some" : "none");
    host::look_around("after");
    sigset_t pending;
    sigpending(&pending);
    std::printf("pending %d\n", sigismember(&pending, SIGUSR2));
    return 0;
}
