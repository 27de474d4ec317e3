// Many threads at once; run it under ThreadSanitizer too.
#include <atomic>
#include <random>
#include <thread>

#include "sim_test.h"

using namespace sim_test;

SIM_TEST("threads that allocate, map, copy and free leave nothing behind", "CONTEXT_OVERHEAD=0", "CAPACITY=256MiB") {
    start();
    const std::size_t before = free_bytes();
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    std::atomic<unsigned> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) {
        threads.emplace_back([&, seed] {
            const auto check = [&](bool right) { wrong += right ? 0 : 1; };
            std::mt19937 random(seed);
            check(cuCtxSetCurrent(context) == CUDA_SUCCESS);
            CUstream stream = nullptr;
            check(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
            for (int i = 0; i < 1500; ++i) {
                const std::size_t bytes = 1 + random() % (3 * kMiB);
                CUdeviceptr address = 0;
                if (random() % 3 == 0) {
                    if (cuMemAllocAsync(&address, bytes, stream) != CUDA_SUCCESS) continue;
                    check(cuMemsetD8Async(address, 1, bytes < 64 ? bytes : 64, stream) == CUDA_SUCCESS);
                    check(cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
                    if (random() % 4 == 0) check(cuStreamSynchronize(stream) == CUDA_SUCCESS);
                } else if (random() % 3 == 0) {
                    const CUmemAllocationProp properties = device_memory();
                    CUmemGenericAllocationHandle handle = 0;
                    if (cuMemCreate(&handle, 2 * kMiB, &properties, 0) != CUDA_SUCCESS) continue;
                    check(cuMemAddressReserve(&address, 2 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
                    check(cuMemMap(address, 2 * kMiB, 0, handle, 0) == CUDA_SUCCESS);
                    check(cuMemRelease(handle) == CUDA_SUCCESS);
                    check(cuMemUnmap(address, 2 * kMiB) == CUDA_SUCCESS);
                    check(cuMemAddressFree(address, 2 * kMiB) == CUDA_SUCCESS);
                } else {
                    if (cuMemAlloc(&address, bytes) != CUDA_SUCCESS) continue;
                    std::size_t free = 0;
                    check(cuMemGetInfo(&free, nullptr) == CUDA_SUCCESS);
                    check(cuMemFree(address) == CUDA_SUCCESS);
                }
            }
            check(cuStreamSynchronize(stream) == CUDA_SUCCESS);
            check(cuStreamDestroy(stream) == CUDA_SUCCESS);
        });
    }
    for (std::thread& each : threads) each.join();
    CHECK(wrong == 0);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(free_bytes() == before);
}
