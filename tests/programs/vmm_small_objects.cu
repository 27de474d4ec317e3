// An object store that gives every small object a physical allocation of its own. A physical allocation is at
// least one granule (2 MiB), so that the device is full when about 2 % of it holds payload. Reaches the
// driver by linking with libcuda directly.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "demo.h"

namespace {

constexpr char kHelp[] =
    "Stores objects of 2 % of a granule each (40 KiB of 2 MiB) in VMM allocations of their own until the "
    "device\n"
    "is out of memory. Exit code 1 when it is, which is the plan.\n";

struct Store {
    CUmemAllocationProp where = {};
    std::size_t granule = 0;
    std::size_t objects = 0;
};

const char* words(CUresult result) {
    const char* text = nullptr;
    return cuGetErrorString(result, &text) == CUDA_SUCCESS && text != nullptr ? text : "unknown driver error";
}

// Puts one object on the device. Nothing is given back when a step fails: the program ends then.
CUresult put(Store* store, const std::vector<unsigned char>& payload, const char** step) {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    *step = "cuMemCreate";
    if (const CUresult result = cuMemCreate(&handle, store->granule, &store->where, 0)) return result;
    *step = "cuMemAddressReserve";
    if (const CUresult result = cuMemAddressReserve(&address, store->granule, 0, 0, 0)) return result;
    *step = "cuMemMap";
    if (const CUresult result = cuMemMap(address, store->granule, 0, handle, 0)) return result;
    CUmemAccessDesc access = {};
    access.location = store->where.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    *step = "cuMemSetAccess";
    if (const CUresult result = cuMemSetAccess(address, store->granule, &access, 1)) return result;
    *step = "cuMemcpyHtoD";
    if (const CUresult result = cuMemcpyHtoD(address, payload.data(), payload.size())) return result;
    ++store->objects;
    return CUDA_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    if (const int code = demo::read_no_arguments(argc, argv, kHelp); code >= 0) return code;
    demo::DeviceMemory memory;
    if (const cudaError_t error = demo::look(&memory)) return demo::no_scene("cudaMemGetInfo", error);

    Store store;
    store.where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    store.where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    store.where.location.id = 0;
    if (const CUresult result =
            cuMemGetAllocationGranularity(&store.granule, &store.where, CU_MEM_ALLOC_GRANULARITY_MINIMUM))
        return demo::no_scene("cuMemGetAllocationGranularity", words(result));
    const std::vector<unsigned char> payload(store.granule / 50 / (4 * demo::kKiB) * (4 * demo::kKiB), 0x5a);
    demo::say("object store: %.2f GiB free, each object is %zu KiB", demo::gib(memory.free),
              payload.size() / demo::kKiB);

    // The device cannot hold more objects than granules: more would mean that it is not what we think it is.
    const std::size_t limit = memory.total / store.granule + 1;
    while (store.objects < limit) {
        const char* step = "";
        const CUresult result = put(&store, payload, &step);
        if (result == CUDA_SUCCESS) continue;
        const std::size_t held = store.objects * payload.size();
        if (result != CUDA_ERROR_OUT_OF_MEMORY) return demo::no_scene(step, words(result));
        demo::say("object store: %s failed: %s", step, words(result));
        demo::say("object store: full with %zu objects, %.1f MiB of data on a device of %.2f GiB (%.1f %%)",
                  store.objects, demo::mib(held), demo::gib(memory.total),
                  100.0 * static_cast<double>(held) / static_cast<double>(memory.total));
        return demo::kOutOfMemory;
    }
    return demo::no_scene("object store", "more objects than granules fitted on the device");
}
