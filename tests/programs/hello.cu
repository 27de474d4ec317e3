// The smallest CUDA program: counts devices and allocates once. Built by nvcc with NVIDIA's own static
// runtime, and in no other way: it is the unmodified program on which a tracer's hooks are tried against
// NVIDIA's start-up. On the simulated GPU it stops where that runtime authenticates the driver (see
// README.md).
#include <cuda_runtime_api.h>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Counts devices and allocates 1 MiB. Exit code 0 on a real GPU, 3 where NVIDIA's runtime refuses the "
    "driver.\n";

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count))
        return demo::no_scene("cudaGetDeviceCount", error);
    demo::say("hello: %d devices", count);
    void* pointer = nullptr;
    if (const cudaError_t error = cudaMalloc(&pointer, demo::kMiB))
        return demo::no_scene("cudaMalloc", error);
    if (const cudaError_t error = cudaFree(pointer)) return demo::no_scene("cudaFree", error);
    demo::say("hello: 1 MiB allocated and freed");
    return demo::kFinished;
}
