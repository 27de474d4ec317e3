// Makes children in every way, before the driver is touched, while it is used, and while other threads use it.
//   families WAY     fork, _fork, vfork, clone, clone_vm, syscall, spawn, system, popen, daemon, double, exec, threads, open
// Each child says what it is; the parent waits for all of them. `open`: a child that comes to the driver itself.
#include <linux/sched.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <thread>

#include "host.h"

namespace {

int begin() {
    CUcontext context = nullptr;
    if (host::say("cuInit", &cuInit, 0u) != CUDA_SUCCESS) return 1;
    host::say("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &context, 0);
    host::say("cuCtxSetCurrent", &cuCtxSetCurrent, context);
    return 0;
}

void some(int times) {
    for (int i = 0; i < times; ++i) {
        CUdeviceptr address = 0;
        host::say("cuMemAlloc_v2", &cuMemAlloc_v2, &address, std::size_t{1000} * static_cast<std::size_t>(i + 1));
        host::say("cuMemFree_v2", &cuMemFree_v2, address);
    }
}

// CUDA does not work in a child of a process that uses it; that must be said to the child as without a recorder.
int inherited() {
    std::printf("child\n");
    some(2);
    std::fflush(stdout);
    return 3;
}

void wait_for(pid_t child) {
    int status = 0;
    if (child <= 0 || waitpid(child, &status, __WALL) != child)
        std::printf("no child\n");
    else
        std::printf("child ended %x\n", static_cast<unsigned>(status));
    std::fflush(stdout);
}

int by_fork(pid_t (*make)()) {
    std::fflush(stdout);
    const pid_t child = make();
    if (child == 0) _exit(inherited());
    wait_for(child);
    return 0;
}

pid_t by_syscall() { return static_cast<pid_t>(syscall(SYS_fork)); }
pid_t by_clone() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); }
pid_t by_clone3() {
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    return static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof arguments));
}

alignas(16) char stack[1 << 18];
int on_own_stack(void*) {
    CUdeviceptr address = 0;
    cuMemAlloc_v2(&address, 5000);  // in the parent's memory
    cuMemFree_v2(address);
    return 3;
}
int by_shared_memory() {
    wait_for(clone(on_own_stack, stack + sizeof stack, CLONE_VM | SIGCHLD, nullptr));
    return 0;
}

int by_vfork() {
    std::fflush(stdout);
    const pid_t child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "echo from vfork; exit 3", nullptr);
        _exit(9);
    }
    wait_for(child);
    return 0;
}

int by_spawn() {
    std::fflush(stdout);
    char shell[] = "sh", option[] = "-c", command[] = "echo from posix_spawn; exit 3";
    char* words[] = {shell, option, command, nullptr};
    pid_t child = 0;
    posix_spawn(&child, "/bin/sh", nullptr, nullptr, words, environ);
    wait_for(child);
    return 0;
}

int by_system() {
    std::fflush(stdout);
    std::printf("system %x\n", static_cast<unsigned>(std::system("echo from system; exit 3")));
    return 0;
}

int by_popen() {
    FILE* pipe = popen("echo from popen; exit 3", "r");
    char line[100] = {};
    std::printf("popen %s", std::fgets(line, sizeof line, pipe) != nullptr ? line : "nothing\n");
    std::printf("pclose %x\n", static_cast<unsigned>(pclose(pipe)));
    return 0;
}

// The grandchild outlives its parent, has a session of its own and is nobody's child here. One pipe says when it may speak,
// one when it is done.
int by_double_fork(bool daemonise) {
    std::fflush(stdout);
    int ends[2], go[2];
    if (pipe(ends) != 0 || pipe(go) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        close(go[1]);
        if (daemonise) {
            if (daemon(1, 1) != 0) _exit(1);
        } else {
            setsid();
            if (fork() != 0) _exit(0);
        }
        char byte = 0;
        if (read(go[0], &byte, 1) != 0) _exit(1);
        inherited();
        _exit(0);
    }
    close(ends[1]);
    wait_for(child);
    close(go[1]);
    char byte = 0;
    std::printf("closed %zd\n", read(ends[0], &byte, 1));
    return 0;
}

// While other threads are inside of calls, forks whose children call and end in the ordinary way.
int among_threads() {
    std::atomic<bool> stop{false};
    std::atomic<int> busy{0};
    const auto work = [&] {
        CUcontext context = nullptr;
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxSetCurrent(context);
        ++busy;
        while (!stop) {
            CUdeviceptr address = 0;
            cuMemAlloc_v2(&address, 100);
            cuMemFree_v2(address);
            sched_yield();
        }
    };
    std::thread team[3] = {std::thread(work), std::thread(work), std::thread(work)};
    while (busy < 3) sched_yield();
    int good = 0;
    std::fflush(stdout);
    for (int i = 0; i < 50; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            CUdeviceptr address = 0;
            const bool refused = cuMemAlloc_v2(&address, 100) != CUDA_SUCCESS;
            std::_Exit(refused ? 3 : 4);
        }
        int status = 0;
        waitpid(child, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 3;
    }
    stop = true;
    for (std::thread& each : team) each.join();
    std::printf("good %d\n", good);
    return 0;
}

// Children of a parent that has nothing to do with the driver: each is the first in its process.
int opening() {
    for (int i = 0; i < 4; ++i) {
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            begin();
            some(i + 1);
            std::fflush(stdout);
            _exit(3);
        }
        wait_for(child);
    }
    begin();
    some(1);
    return 0;
}

int becoming(int count) {
    some(2);
    std::fflush(stdout);
    CUdeviceptr kept = 0;
    cuMemAlloc_v2(&kept, 3 << 20);  // goes with this image
    if (count == 0) return 0;
    execl("/proc/self/exe", "families", "exec", std::to_string(count - 1).c_str(), nullptr);
    return 1;
}

}  // namespace

int main(int count, char** words) {
    const std::string way = count > 1 ? words[1] : "";
    setvbuf(stdout, nullptr, _IOFBF, 1 << 16);
    if (way == "open") return opening();
    if (begin() != 0) return 1;
    int status = 2;
    if (way == "exec") return becoming(count > 2 ? std::atoi(words[2]) : 3);
    some(2);
    if (way == "fork") status = by_fork(fork);
    if (way == "_fork") status = by_fork(_Fork);
    if (way == "syscall") status = by_fork(by_syscall);
    if (way == "clone") status = by_fork(by_clone);
    if (way == "clone3") status = by_fork(by_clone3);
    if (way == "clone_vm") status = by_shared_memory();
    if (way == "vfork") status = by_vfork();
    if (way == "spawn") status = by_spawn();
    if (way == "system") status = by_system();
    if (way == "popen") status = by_popen();
    if (way == "double") status = by_double_fork(false);
    if (way == "daemon") status = by_double_fork(true);
    if (way == "threads") status = among_threads();
    some(1);
    return status;
}
