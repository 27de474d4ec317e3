// The address space is filled with windows of equal size. Every other tenant stays, with memory mapped in its
// window; the others leave and give their windows back. The gaps between the remaining windows add up to a
// lot, but a tenant that needs a larger window finds none. See README.md for how to run it with a small
// address space. Reaches the driver with dlopen and dlsym, as Triton and cupy do.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <vector>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Fills the address space with windows of 1/8 of the device's capacity, maps 2 MiB in every other one, "
    "gives the\n"
    "rest back, and then reserves a window of twice the size. Exit code 1 when that fails, which is the "
    "plan; 3 when\n"
    "the driver has more addresses than the program tries.\n";

constexpr std::size_t kMostWindows = std::size_t{1} << 16;

struct Driver {
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) free = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
    decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
}

bool open_driver(Driver* driver) {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY);
    return library != nullptr && find(library, "cuMemAddressReserve", &driver->reserve) &&
           find(library, "cuMemAddressFree", &driver->free) &&
           find(library, "cuMemCreate", &driver->create) && find(library, "cuMemMap", &driver->map) &&
           find(library, "cuMemSetAccess", &driver->set_access) &&
           find(library, "cuMemGetAllocationGranularity", &driver->granularity);
}

// Maps one granule at the start of a window, so that the window cannot go.
CUresult move_in(const Driver& driver, const CUmemAllocationProp& where, std::size_t granule,
                 CUdeviceptr window) {
    CUmemGenericAllocationHandle handle = 0;
    if (const CUresult result = driver.create(&handle, granule, &where, 0)) return result;
    if (const CUresult result = driver.map(window, granule, 0, handle, 0)) return result;
    CUmemAccessDesc access = {};
    access.location = where.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver.set_access(window, granule, &access, 1);
}

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    demo::DeviceMemory memory;
    if (const cudaError_t error = demo::look(&memory)) return demo::no_scene("cudaMemGetInfo", error);
    Driver driver;
    if (!open_driver(&driver)) return demo::no_scene("libcuda.so.1", "not there, or without VMM functions");
    CUmemAllocationProp where = {};
    where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    where.location.id = 0;
    std::size_t granule = 0;
    if (driver.granularity(&granule, &where, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        granule == 0)
        return demo::no_scene("cuMemGetAllocationGranularity", "it failed");

    const std::size_t size = demo::round_down(memory.total / 8, granule);
    std::vector<CUdeviceptr> windows;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && windows.size() < kMostWindows) {
        CUdeviceptr window = 0;
        result = driver.reserve(&window, size, 0, 0, 0);
        if (result == CUDA_SUCCESS) windows.push_back(window);
    }
    if (result == CUDA_SUCCESS)
        return demo::no_scene("service", "the driver still has addresses; use a smaller address space");
    if (result != CUDA_ERROR_OUT_OF_MEMORY || windows.size() < 4)
        return demo::no_scene("cuMemAddressReserve", "it failed too early");
    demo::say("service: %zu tenants fill the address space with windows of %.2f GiB", windows.size(),
              demo::gib(size));

    std::size_t left = 0;
    for (std::size_t i = 0; i < windows.size(); ++i) {
        const bool stays = i % 2 == 0;
        if (stays && move_in(driver, where, granule, windows[i]) != CUDA_SUCCESS)
            return demo::no_scene("a tenant that stays", "its memory could not be mapped");
        if (!stays && driver.free(windows[i], size) != CUDA_SUCCESS)
            return demo::no_scene("a tenant that leaves", "its window could not be given back");
        left += stays ? 0 : 1;
    }
    demo::say("service: %zu tenants left and gave back %.2f GiB of addresses", left,
              demo::gib(size) * static_cast<double>(left));

    CUdeviceptr large = 0;
    result = driver.reserve(&large, 2 * size, 0, 0, 0);
    if (result == CUDA_SUCCESS) return demo::no_scene("service", "the large window was found all the same");
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return demo::no_scene("cuMemAddressReserve", "it failed otherwise");
    demo::say("service: no window of %.2f GiB for the next tenant: out of memory", demo::gib(2 * size));
    return demo::kOutOfMemory;
}
