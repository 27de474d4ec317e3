// Uses every device there is: allocates on each and frees while another one's context is current, in another thread, or with
// none. `devices N` first makes N processes of itself that begin together.
#include <sys/wait.h>

#include <thread>

#include "host.h"

namespace {

int use(int devices) {
    std::vector<CUcontext> contexts(static_cast<std::size_t>(devices));
    std::vector<CUdeviceptr> memory, pooled;
    for (int i = 0; i < devices; ++i) {
        auto& context = contexts[static_cast<std::size_t>(i)];
        if (cuDevicePrimaryCtxRetain(&context, i) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS) return 1;
        for (int k = 1; k <= 3; ++k) {
            CUdeviceptr address = 0;
            if (cuMemAlloc_v2(&address, (std::size_t{1} << 20) * static_cast<std::size_t>(i + k)) != CUDA_SUCCESS) return 2;
            memory.push_back(address);
        }
        CUdeviceptr address = 0;
        if (cuMemAllocAsync(&address, 5000, nullptr) == CUDA_SUCCESS) pooled.push_back(address);
    }
    for (std::size_t i = 0; i < memory.size(); ++i) {
        cuCtxSetCurrent(contexts[(i + 1) % contexts.size()]);
        if (i % 3 == 1)
            std::thread([&] { cuMemFree_v2(memory[i]); }).join();  // no context there
        else
            std::printf("free %d\n", cuMemFree_v2(memory[i]));
    }
    // Each stream belongs to its own context.
    for (std::size_t i = 0; i < pooled.size(); ++i) {
        cuCtxSetCurrent(contexts[i]);
        std::printf("freed in its pool %d", cuMemFreeAsync(pooled[i], nullptr));
        std::printf(" %d\n", cuCtxSynchronize());
    }
    for (int i = 0; i < devices; ++i) {
        cuCtxSetCurrent(contexts[static_cast<std::size_t>(i)]);
        std::size_t free_bytes = 0, total_bytes = 0;
        cuMemGetInfo_v2(&free_bytes, &total_bytes);
        std::printf("device %d of %zu\n", i, total_bytes);
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    const int processes = count > 1 ? std::atoi(words[1]) : 0;
    int status = 0;
    int gate[2];
    if (pipe(gate) != 0) return 9;
    for (int i = 0; i < processes; ++i)
        if (fork() == 0) {
            close(gate[1]);
            char byte = 0;
            if (read(gate[0], &byte, 1) != 0) _exit(9);
            if (std::freopen("/dev/null", "w", stdout) == nullptr || cuInit(0) != CUDA_SUCCESS) _exit(8);
            int devices = 0;
            cuDeviceGetCount(&devices);
            _exit(use(devices));
        }
    close(gate[1]);
    for (int i = 0; i < processes; ++i) {
        int ended = 0;
        wait(&ended);
        status += ended != 0;
    }
    std::printf("processes that failed %d\n", status);
    if (processes == 0) {
        int devices = 0;
        cuInit(0);
        cuDeviceGetCount(&devices);
        std::printf("devices %d\n", devices);
        status = use(devices);
    }
    return status;
}
