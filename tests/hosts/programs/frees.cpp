// Frees what is not there, not its own, not any more, or not of that kind; and ends with the books as the driver has them.
#include <sys/mman.h>

#include "host.h"

int main() {
#define SAY(name, ...) host::say(#name, &name, __VA_ARGS__)
    CUcontext context = nullptr;
    SAY(cuMemFree_v2, CUdeviceptr{0x1000});  // before anything else
    SAY(cuInit, 0u);
    SAY(cuMemFree_v2, CUdeviceptr{0x1000});  // no context
    SAY(cuDevicePrimaryCtxRetain, &context, 0);
    SAY(cuCtxSetCurrent, context);
    CUdeviceptr address = 0, pooled = 0, reserved = 0;
    for (const CUdeviceptr nonsense : {CUdeviceptr{0}, CUdeviceptr{1}, CUdeviceptr{0xdeadbeef}, ~CUdeviceptr{0}})
        for (int way = 0; way < 8; ++way) switch (way) {
                case 0: SAY(cuMemFree_v2, nonsense); break;
                case 1: SAY(cuMemFreeAsync, nonsense, CUstream{nullptr}); break;
                case 2: SAY(cuMemFreeHost, reinterpret_cast<void*>(nonsense)); break;
                case 3: SAY(cuMemHostUnregister, reinterpret_cast<void*>(nonsense)); break;
                case 4: SAY(cuMemUnmap, nonsense, std::size_t{1} << 21); break;
                case 5: SAY(cuMemAddressFree, nonsense, std::size_t{1} << 21); break;
                case 6: SAY(cuMemRelease, nonsense); break;
                default: SAY(cuIpcCloseMemHandle, nonsense); break;
            }
    // Inside of an allocation, twice, by another function than its kind's.
    SAY(cuMemAlloc_v2, &address, std::size_t{4} << 20);
    SAY(cuMemFree_v2, address + 4096);
    SAY(cuMemFreeHost, reinterpret_cast<void*>(address));
    SAY(cuMemFree_v2, address);
    SAY(cuMemFree_v2, address);
    SAY(cuMemAlloc_v2, &address, std::size_t{4} << 20);
    SAY(cuMemFreeAsync, address, CUstream{nullptr});  // of linear memory
    SAY(cuMemFree_v2, address);
    SAY(cuMemAllocAsync, &pooled, std::size_t{1} << 20, CUstream{nullptr});
    SAY(cuMemFree_v2, pooled);  // of pool memory: allowed
    SAY(cuMemFreeAsync, pooled, CUstream{nullptr});
    SAY(cuStreamSynchronize, CUstream{nullptr});
    void* pinned = nullptr;
    SAY(cuMemHostAlloc, &pinned, std::size_t{1} << 16, 0u);
    SAY(cuMemFree_v2, reinterpret_cast<CUdeviceptr>(pinned));
    SAY(cuMemHostUnregister, pinned);
    SAY(cuMemFreeHost, pinned);
    SAY(cuMemFreeHost, pinned);
    void* own = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(cuMemHostRegister_v2, own, std::size_t{1} << 16, 0u);
    SAY(cuMemFreeHost, own);
    SAY(cuMemHostUnregister, own);
    // Mapped memory by cuMemFree, a handle once too often, a reservation that is in use.
    CUmemGenericAllocationHandle handle = 0, second = 0;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    SAY(cuMemAddressReserve, &reserved, std::size_t{4} << 20, std::size_t{0}, CUdeviceptr{0}, 0ull);
    SAY(cuMemCreate, &handle, std::size_t{2} << 20, &properties, 0ull);
    SAY(cuMemMap, reserved, std::size_t{2} << 20, std::size_t{0}, handle, 0ull);
    SAY(cuMemFree_v2, reserved);
    SAY(cuMemAddressFree, reserved, std::size_t{4} << 20);
    SAY(cuMemUnmap, reserved, std::size_t{4} << 20);
    int descriptor = -1;
    SAY(cuMemExportToShareableHandle, static_cast<void*>(&descriptor), handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
    SAY(cuMemImportFromShareableHandle, &second, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(descriptor);
    SAY(cuMemRelease, second);
    SAY(cuMemUnmap, reserved, std::size_t{2} << 20);
    SAY(cuMemRelease, handle);
    SAY(cuMemRelease, handle);
    SAY(cuMemAddressFree, reserved, std::size_t{2} << 20);
    SAY(cuMemAddressFree, reserved, std::size_t{4} << 20);
    SAY(cuMemAddressFree, reserved, std::size_t{4} << 20);
    std::size_t free_bytes = 0, total_bytes = 0;
    SAY(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    std::printf("%zu of %zu\n", free_bytes, total_bytes);
    return 0;
}
