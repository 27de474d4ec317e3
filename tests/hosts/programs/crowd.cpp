// Many at once.
//   crowd processes N      N children that exec themselves, all let go together; each allocates and frees
//   crowd workers N        a launcher: N workers that fork, of which each execs a new image after its first allocation
//   crowd threads N TURNS  TURNS times N threads that come, call and go
//   crowd survivors N      children that go on when the launcher has ended, until they have done their part
//   crowd one [KEEP]       what a child does
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "host.h"

namespace {

int one(int times, bool keep) {
    CUcontext context = nullptr;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 1;
    for (int i = 0; i < times; ++i) {
        CUdeviceptr address = 0;
        if (cuMemAlloc_v2(&address, 1000) != CUDA_SUCCESS) return 2;
        if (!keep && cuMemFree_v2(address) != CUDA_SUCCESS) return 3;
    }
    return 0;
}

// "Exits that were not 0": the children have their own exit statuses.
int wait_for_all(int count) {
    int bad = 0;
    for (int i = 0; i < count; ++i) {
        int status = 0;
        if (wait(&status) < 0 || status != 0) ++bad;
    }
    std::printf("bad %d\n", bad);
    return bad != 0;
}

int processes(int count) {
    int gate[2];
    if (pipe(gate) != 0) return 9;
    for (int i = 0; i < count; ++i) {
        const pid_t child = fork();
        if (child < 0) return 9;
        if (child != 0) continue;
        close(gate[1]);
        char byte = 0;
        if (read(gate[0], &byte, 1) != 0) _exit(9);
        execl("/proc/self/exe", "crowd", "one", nullptr);
        _exit(9);
    }
    close(gate[1]);
    return wait_for_all(count);
}

int workers(int count) {
    for (int i = 0; i < count; ++i) {
        const pid_t worker = fork();
        if (worker != 0) continue;
        // A helper of its own that has nothing to do with the driver, as compilers and shells are started.
        const pid_t helper = fork();
        if (helper == 0) {
            execl("/bin/true", "true", nullptr);
            _exit(9);
        }
        waitpid(helper, nullptr, 0);
        if (one(2, true) != 0) _exit(8);
        execl("/proc/self/exe", "crowd", "one", nullptr);
        _exit(9);
    }
    return wait_for_all(count);
}

int threads(int count, int turns) {
    if (one(1, false) != 0) return 1;
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    std::atomic<int> bad{0};
    for (int turn = 0; turn < turns; ++turn) {
        std::vector<std::thread> team;
        for (int i = 0; i < count; ++i)
            team.emplace_back([&] {
                CUdeviceptr address = 0;
                cuCtxSetCurrent(context);
                if (cuMemAlloc_v2(&address, 100) != CUDA_SUCCESS || cuMemFree_v2(address) != CUDA_SUCCESS) ++bad;
            });
        for (std::thread& each : team) each.join();
    }
    std::printf("bad %d\n", bad.load());
    return bad != 0;
}

// The launcher goes once all have begun; each goes on when it is gone: a pipe that closes with it tells.
int survivors(int count) {
    int gate[2], begun[2];
    if (pipe(gate) != 0 || pipe(begun) != 0) return 9;
    for (int i = 0; i < count; ++i) {
        if (fork() != 0) continue;
        close(gate[1]);
        const int status = one(3, false);
        char byte = 0;
        if (write(begun[1], &byte, 1) != 1 || read(gate[0], &byte, 1) != 0) _exit(9);
        CUdeviceptr address = 0;
        cuMemAlloc_v2(&address, 7000);
        cuMemFree_v2(address);
        _exit(status);
    }
    char byte = 0;
    for (int i = 0; i < count; ++i)
        if (read(begun[0], &byte, 1) != 1) return 9;
    return 0;
}

}  // namespace

int main(int count, char** words) {
    const std::string what = count > 1 ? words[1] : "";
    const int number = count > 2 ? std::atoi(words[2]) : 0;
    if (what == "one") return one(2, count > 2);
    if (what == "processes") return processes(number);
    if (what == "workers") return workers(number);
    if (what == "threads") return threads(number, count > 3 ? std::atoi(words[3]) : 1);
    if (what == "survivors") return survivors(number);
    return 2;
}
