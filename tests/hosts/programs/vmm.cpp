// Virtual memory in every order: all sequences of create, map, set access, release, unmap and give back that keep to "map
// after create and reserve"; two handles in one reservation, one handle in two; several ranges unmapped at once and halves;
// handles retained, exported and imported; memory of the host; while no context is current. Wrong orders are tried as well:
// whether the driver accepts one is the driver's affair.
#include "host.h"

namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

CUmemAllocationProp properties(CUmemLocationType type, int id) {
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location = {type, {id}};
    made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return made;
}

// One letter a call: C create, V reserve, M map, A access, R release, U unmap, F give the reservation back, T retain.
void sequence(const std::string& calls) {
    CUdeviceptr reserved = 0;
    CUmemGenericAllocationHandle handle = 0, again = 0;
    const CUmemAllocationProp wanted = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    std::printf("%s:", calls.c_str());
    for (const char call : calls) {
        CUresult result = CUDA_SUCCESS;
        switch (call) {
            case 'C': result = cuMemCreate(&handle, kPage, &wanted, 0); break;
            case 'V': result = cuMemAddressReserve(&reserved, 2 * kPage, 0, 0, 0); break;
            case 'M': result = cuMemMap(reserved, kPage, 0, handle, 0); break;
            case 'A': result = cuMemSetAccess(reserved, kPage, &access, 1); break;
            case 'T':
                result = cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(reserved));
                if (result == CUDA_SUCCESS) std::printf(" same %d", again == handle);
                break;
            case 'R': result = cuMemRelease(handle); break;
            case 'U': result = cuMemUnmap(reserved, kPage); break;
            default: result = cuMemAddressFree(reserved, 2 * kPage); break;
        }
        std::printf(" %d", static_cast<int>(result));
    }
    // Whatever is left, in the one order that always works.
    while (cuMemUnmap(reserved, kPage) == CUDA_SUCCESS) {
    }
    while (handle != 0 && cuMemRelease(handle) == CUDA_SUCCESS) {
    }
    std::printf(" | %d\n", static_cast<int>(cuMemAddressFree(reserved, 2 * kPage)));
}

void orders() {
    std::string calls = "ACFMRUV";
    do {
        // Unmapped before mapped, and used before created, are all the same: one of each kind.
        const std::size_t created = calls.find('C'), reserved = calls.find('V'), mapped = calls.find('M');
        if (created < mapped && reserved < mapped && (created < reserved)) sequence(calls);
    } while (std::next_permutation(calls.begin(), calls.end()));
    for (const char* more : {"CVMTRRUF", "CVMTURRF", "VCMRTUF", "CVMMUF", "CVMUMRUF", "CRVMF", "MCVF", "UF", "T"}) sequence(more);
}

void several_ranges() {
    CUdeviceptr reserved = 0, second = 0;
    CUmemGenericAllocationHandle handles[4] = {};
    const CUmemAllocationProp wanted = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    host::say("cuMemAddressReserve", &cuMemAddressReserve, &reserved, 8 * kPage, std::size_t{0}, CUdeviceptr{0}, 0ull);
    host::say("cuMemAddressReserve", &cuMemAddressReserve, &second, 2 * kPage, std::size_t{0}, reserved + 8 * kPage, 0ull);
    for (int i = 0; i < 4; ++i) {
        host::say("cuMemCreate", &cuMemCreate, handles + i, 2 * kPage, &wanted, 0ull);
        host::say("cuMemMap", &cuMemMap, reserved + static_cast<CUdeviceptr>(2 * i) * kPage, 2 * kPage, std::size_t{0}, handles[i], 0ull);
    }
    host::say("cuMemMap twice", &cuMemMap, second, 2 * kPage, std::size_t{0}, handles[0], 0ull);
    host::say("cuMemMap over another", &cuMemMap, second, 2 * kPage, std::size_t{0}, handles[1], 0ull);
    const CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                       {{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
    host::say("cuMemSetAccess all", &cuMemSetAccess, reserved, 8 * kPage, access, std::size_t{2});
    host::say("cuMemUnmap half of one", &cuMemUnmap, reserved, kPage);
    host::say("cuMemUnmap one and a half", &cuMemUnmap, reserved, 3 * kPage);
    host::say("cuMemUnmap two", &cuMemUnmap, reserved, 4 * kPage);
    host::say("cuMemUnmap with a hole", &cuMemUnmap, reserved, 8 * kPage);
    for (const CUmemGenericAllocationHandle handle : handles) host::say("cuMemRelease", &cuMemRelease, handle);
    host::say("cuMemUnmap the rest", &cuMemUnmap, reserved + 4 * kPage, 4 * kPage);
    host::say("cuMemUnmap", &cuMemUnmap, second, 2 * kPage);
    host::say("cuMemAddressFree part", &cuMemAddressFree, reserved, 2 * kPage);
    host::say("cuMemAddressFree", &cuMemAddressFree, reserved, 8 * kPage);
    host::say("cuMemAddressFree", &cuMemAddressFree, second, 2 * kPage);
}

void places() {
    CUmemGenericAllocationHandle handle = 0;
    for (const auto type : {CU_MEM_LOCATION_TYPE_INVALID, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST,
                            CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT})
        for (const int id : {0, 1, -1, 77, 1 << 30}) {
            const CUmemAllocationProp wanted = properties(type, id);
            handle = 0;
            std::printf("place %d %d ", static_cast<int>(type), id);
            if (host::say("cuMemCreate", &cuMemCreate, &handle, kPage, &wanted, 0ull) == CUDA_SUCCESS)
                host::say("cuMemRelease", &cuMemRelease, handle);
        }
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kPage + 1, ~std::size_t{0}}) {
        const CUmemAllocationProp wanted = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0);
        host::say("cuMemCreate odd size", &cuMemCreate, &handle, bytes, &wanted, 0ull);
        CUdeviceptr reserved = 0;
        host::say("cuMemAddressReserve odd size", &cuMemAddressReserve, &reserved, bytes, std::size_t{0}, CUdeviceptr{0}, 0ull);
    }
    const CUmemAllocationProp* none = nullptr;
    host::say("cuMemCreate without properties", &cuMemCreate, &handle, kPage, none, 0ull);
}

// Many reservations, and large ones: one for each handle that a peer offers, as expandable segments make them.
void large_ranges() {
    std::vector<CUdeviceptr> ranges;
    for (int i = 0; i < 64; ++i) {
        CUdeviceptr reserved = 0;
        if (cuMemAddressReserve(&reserved, std::size_t{9} << 30, 0, 0, 0) == CUDA_SUCCESS) ranges.push_back(reserved);
    }
    std::printf("ranges %zu\n", ranges.size());
    for (const CUdeviceptr range : ranges) cuMemAddressFree(range, std::size_t{9} << 30);
}

}  // namespace

int main() {
    host::say("cuInit", &cuInit, 0u);
    std::printf("no context\n");
    places();
    orders();
    CUcontext context = nullptr;
    host::say("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, &context, 0);
    host::say("cuCtxSetCurrent", &cuCtxSetCurrent, context);
    std::printf("context\n");
    orders();
    several_ranges();
    large_ranges();
    std::size_t free_bytes = 0, total_bytes = 0;
    cuMemGetInfo_v2(&free_bytes, &total_bytes);
    std::printf("%zu of %zu\n", free_bytes, total_bytes);
    return 0;
}
