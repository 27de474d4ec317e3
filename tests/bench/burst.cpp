// As many recorded calls as a driver takes: THREADS threads that allocate and free without a pause. Prints
// calls a second.
//   burst THREADS PAIRS
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

template <typename Function>
Function find(void* driver, const char* name) {
    auto* function = reinterpret_cast<Function>(dlsym(driver, name));
    if (function == nullptr) std::exit(2);
    return function;
}

}  // namespace

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
    const int pairs = argc > 2 ? std::atoi(argv[2]) : 500'000;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr || threads < 1) return 2;
    const auto init = find<CUresult (*)(unsigned)>(driver, "cuInit");
    const auto retain = find<CUresult (*)(CUcontext*, CUdevice)>(driver, "cuDevicePrimaryCtxRetain");
    const auto set_current = find<CUresult (*)(CUcontext)>(driver, "cuCtxSetCurrent");
    const auto allocate = find<CUresult (*)(CUdeviceptr*, std::size_t)>(driver, "cuMemAlloc_v2");
    const auto release = find<CUresult (*)(CUdeviceptr)>(driver, "cuMemFree_v2");
    CUcontext context = nullptr;
    if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS) return 2;
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> working;
    for (int t = 0; t < threads; ++t)
        working.emplace_back([&] {
            set_current(context);
            for (int i = 0; i < pairs; ++i) {
                CUdeviceptr pointer = 0;
                if (allocate(&pointer, 4096) != CUDA_SUCCESS || release(pointer) != CUDA_SUCCESS)
                    std::exit(1);
            }
        });
    for (std::thread& thread : working) thread.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.2f million calls a second\n", 2e-6 * threads * pairs / took.count());
    return 0;
}
