// A phase of the program allocates and frees in stream order. Its pool was told to keep everything it ever
// got (release threshold at the maximum), so that a later, plain cudaMalloc finds the device full although
// nothing is in use. Needs the runtime only.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Fills 80 % of the free memory through the default memory pool with its release threshold at the "
    "maximum,\n"
    "frees all of it, and then asks cudaMalloc for half of what was free at the start. Exit code 1 when "
    "that\n"
    "fails, which is the plan.\n";

constexpr std::size_t kBlocks = 32;

// One busy phase: many blocks at once, all freed at its end.
cudaError_t busy_phase(std::size_t block, cudaStream_t stream) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) {
        void* pointer = nullptr;
        if (const cudaError_t error = cudaMallocAsync(&pointer, block, stream)) return error;
        if (const cudaError_t error = cudaMemsetAsync(pointer, 0, demo::kKiB, stream)) return error;
        blocks.push_back(pointer);
    }
    for (void* pointer : blocks)
        if (const cudaError_t error = cudaFreeAsync(pointer, stream)) return error;
    return cudaStreamSynchronize(stream);
}

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    demo::DeviceMemory memory;
    if (const cudaError_t error = demo::look(&memory)) return demo::no_scene("cudaMemGetInfo", error);
    demo::say("start: %.2f GiB free of %.2f GiB", demo::gib(memory.free), demo::gib(memory.total));

    cudaMemPool_t pool = nullptr;
    if (const cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, 0))
        return demo::no_scene("cudaDeviceGetDefaultMemPool", error);
    std::uint64_t threshold = UINT64_MAX;
    if (const cudaError_t error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold))
        return demo::no_scene("cudaMemPoolSetAttribute", error);
    cudaStream_t stream = nullptr;
    if (const cudaError_t error = cudaStreamCreate(&stream)) return demo::no_scene("cudaStreamCreate", error);

    const std::size_t block = demo::share(memory.free, 80, kBlocks * 2 * demo::kMiB) / kBlocks;
    const std::size_t buffer = demo::share(memory.free, 50, 2 * demo::kMiB);
    if (const cudaError_t error = busy_phase(block, stream)) return demo::no_scene("busy phase", error);
    demo::say("busy phase: %zu blocks of %.1f MiB allocated with cudaMallocAsync, all freed and synchronised",
              kBlocks, demo::mib(block));

    void* pointer = nullptr;
    const cudaError_t error = cudaMalloc(&pointer, buffer);
    if (error == cudaErrorMemoryAllocation) {
        demo::say("next phase: cudaMalloc of %.2f GiB failed: %s", demo::gib(buffer),
                  cudaGetErrorString(error));
        demo::say("next phase: but the program holds nothing at all");
        return demo::kOutOfMemory;
    }
    if (error != cudaSuccess) return demo::no_scene("cudaMalloc", error);
    return demo::no_scene("cudaMalloc", "it succeeded: the pool gave its memory back");
}
