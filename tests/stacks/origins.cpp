// A program under test: calls the functions of the runtime that are named as arguments, in that order, and
// the driver's own cuMemAlloc for "driver". Each allocation has a size of its own, counted from 1, in
// kilobytes.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>

namespace {

std::size_t kilobytes = 0;

void call(const char* name) {
    void* memory = nullptr;
    const std::size_t bytes = ++kilobytes * 1024;
    std::size_t pitch = 0;
    if (std::strcmp(name, "driver") == 0) {
        CUdeviceptr address = 0;
        cuMemAlloc(&address, bytes);
    } else if (std::strcmp(name, "cudaMalloc") == 0) {
        cudaMalloc(&memory, bytes);
    } else if (std::strcmp(name, "cudaMallocManaged") == 0) {
        cudaMallocManaged(&memory, bytes);
    } else if (std::strcmp(name, "cudaMallocPitch") == 0) {
        cudaMallocPitch(&memory, &pitch, bytes, 1);
    } else if (std::strcmp(name, "cudaMallocAsync") == 0) {
        cudaMallocAsync(&memory, bytes, nullptr);
    } else if (std::strcmp(name, "cudaHostAlloc") == 0) {
        cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
    } else if (std::strcmp(name, "cudaMallocHost") == 0) {
        cudaMallocHost(&memory, bytes);
    } else if (std::strcmp(name, "cudaFree") == 0) {
        cudaMalloc(&memory, bytes);
        cudaFree(memory);
    } else if (std::strcmp(name, "cudaGetDeviceCount") == 0) {
        int count = 0;
        cudaGetDeviceCount(&count);
    } else if (std::strcmp(name, "thread") == 0) {
        std::thread(call, "cudaMalloc").join();
    } else {
        std::printf("no such call: %s\n", name);
    }
}

}  // namespace

int main(int count, char** arguments) {
    for (int i = 1; i < count; ++i) call(arguments[i]);
    return 0;
}
