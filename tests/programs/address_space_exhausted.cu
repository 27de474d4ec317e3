// A service that reserves an address window for every tenant and never gives one back. No window has memory
// behind it yet, but at some point there are no addresses left, and a small window fails with nearly all of
// the device's memory free. On a driver with its usual address space of many terabytes this takes tens of
// thousands of windows; see README.md for how to run it on the simulated GPU with a small one. Reaches the
// driver through cudaGetDriverEntryPointByVersion, as PyTorch does.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Reserves address windows of 1/128 of the device's capacity, without memory behind them, until one "
    "fails. Exit\n"
    "code 1 when one does, which is the plan; 3 when the driver has more addresses than the program tries.\n";

constexpr std::size_t kMostWindows = std::size_t{1} << 18;
constexpr unsigned kVmmVersion = 10020;  // the CUDA version that introduced these functions

// A driver function by its name, typed; null when the driver does not have it.
template <class Function>
Function driver_function(const char* name) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &address, kVmmVersion, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
    return reinterpret_cast<Function>(address);
}

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    demo::DeviceMemory memory;
    if (const cudaError_t error = demo::look(&memory)) return demo::no_scene("cudaMemGetInfo", error);
    const auto reserve = driver_function<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve");
    if (reserve == nullptr)
        return demo::no_scene("cudaGetDriverEntryPointByVersion", "no cuMemAddressReserve");

    const std::size_t window = demo::round_down(memory.total / 128, 2 * demo::kMiB);
    if (window == 0) return demo::no_scene("sizes", "the device is too small for this program");
    demo::say("service: every tenant gets an address window of %.0f MiB", demo::mib(window));
    for (std::size_t tenants = 0; tenants < kMostWindows; ++tenants) {
        CUdeviceptr address = 0;
        const CUresult result = reserve(&address, window, 0, 0, 0);
        if (result == CUDA_SUCCESS) continue;
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            return demo::no_scene("cuMemAddressReserve", "it failed, but not for want of memory");
        if (const cudaError_t error = demo::look(&memory)) return demo::no_scene("cudaMemGetInfo", error);
        demo::say("service: no window for tenant %zu: out of memory", tenants + 1);
        demo::say("service: but %.2f GiB of %.2f GiB are free", demo::gib(memory.free),
                  demo::gib(memory.total));
        return demo::kOutOfMemory;
    }
    demo::say("service: stopped after %zu windows (%.0f GiB of addresses)", kMostWindows,
              demo::gib(window) * static_cast<double>(kMostWindows));
    return demo::no_scene("service", "the driver still has addresses; use a smaller address space");
}
