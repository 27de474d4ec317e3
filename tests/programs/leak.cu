// A training-like loop that keeps its loss history on the device and never frees it: an honest end of the
// device's capacity. Needs the runtime only.
#include <cuda_runtime_api.h>

#include <vector>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Trains step after step; each step frees its activations but keeps a result of 1/64 of the device. Exit "
    "code 1\n"
    "when the device is full, which is the plan.\n";

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    demo::DeviceMemory memory;
    if (const cudaError_t error = demo::look(&memory)) return demo::no_scene("cudaMemGetInfo", error);
    const std::size_t kept = demo::round_down(memory.total / 64, 2 * demo::kMiB);
    const std::size_t activations = kept / 2 / (2 * demo::kMiB) * (2 * demo::kMiB);
    if (activations == 0) return demo::no_scene("sizes", "the device is too small for this program");

    std::vector<void*> history;
    constexpr int kSteps = 100;  // more than fit
    for (int step = 1; step <= kSteps; ++step) {
        void* scratch = nullptr;
        void* result = nullptr;
        cudaError_t error = cudaMalloc(&scratch, activations);
        if (error == cudaSuccess) error = cudaMemset(scratch, 0, demo::kKiB);
        if (error == cudaSuccess) error = cudaMalloc(&result, kept);
        if (error == cudaErrorMemoryAllocation) {
            demo::say("step %d: %s", step, cudaGetErrorString(error));
            demo::say("step %d: the history holds %zu results, %.2f GiB of %.2f GiB", step, history.size(),
                      demo::gib(history.size() * kept), demo::gib(memory.total));
            return demo::kOutOfMemory;
        }
        if (error != cudaSuccess) return demo::no_scene("training step", error);
        history.push_back(result);
        if (const cudaError_t freed = cudaFree(scratch)) return demo::no_scene("cudaFree", freed);
        if (step % 16 == 0) demo::say("step %d: loss %.3f", step, 4.0 / step);
    }
    return demo::no_scene("training", "it finished: the device never ran full");
}
