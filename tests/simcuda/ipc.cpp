// cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle.
//
// A handle names the whole block that an allocation lies in, as the programming guide warns. A context that opens
// it again, or a handle of another allocation in the same block, gets the same mapping. Only the exporting process
// keeps the memory: when it frees it or dies, the bytes are given back, whoever has them open (cuda.h calls that
// undefined), and the handle cannot be opened any more.
#include "ipc.h"

#include <cstring>

#include "capture.h"
#include "small_heap.h"

namespace fragscope::sim {
namespace {

constexpr std::uint64_t kMagic = 0x3143'5049'4d49'5346;  // "FSIMIPC1", little endian

struct HandleContent {
    std::uint64_t magic;
    std::uint64_t key;
    std::uint64_t offset;  // of the allocation in the block
};
static_assert(sizeof(HandleContent) <= sizeof(CUipcMemHandle));

struct Opened {
    std::map<std::uint64_t, unsigned> count;  // by offset in the block
};

// By the base of the mapping.
std::unordered_map<std::uint64_t, Opened>& opened() {
    static auto* const state = new std::unordered_map<std::uint64_t, Opened>;
    return *state;
}

std::uint64_t free_now(int device) { return ledger_open() ? driver().physical.free_bytes_now(device) : 0; }

Region* find_mapping_of(std::uint64_t key, const Context& context) {
    for (auto& [base, region] : driver().regions) {
        if (region.kind == Region::Kind::Ipc && region.object == key && region.context == &context) return &region;
    }
    return nullptr;
}

}  // namespace

void ipc_unmap_locked(Region& region) {
    const std::uint64_t base = region.base, bytes = region.requested, key = region.object;
    const int device = region.device;
    opened().erase(base);
    const std::uint64_t free_after = drop_region_locked(region);
    ledger({"ipc_unmap", base, bytes, 0, device, free_after, key});
}

namespace impl {

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuIpcGetMemHandle); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Region* region = find_region_locked(dptr);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t base = region->base, bytes = 0;
    if (region->kind == Region::Kind::SmallBlock) {
        if (!small_find(*region, dptr, base, bytes)) return CUDA_ERROR_INVALID_VALUE;
    } else if (region->kind != Region::Kind::Linear) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (base != dptr) return CUDA_ERROR_INVALID_VALUE;
    if (region->offered == 0) {
        region->offered = driver().physical.offer({region->device, region->size, 0});
        if (region->offered == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const HandleContent content{kMagic, region->offered, dptr - region->base};
    std::memset(pHandle, 0, sizeof *pHandle);
    std::memcpy(pHandle, &content, sizeof content);
    ledger({"ipc_export", dptr, region->size, 0, region->device, free_now(region->device), region->offered});
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    HandleContent content{};
    std::memcpy(&content, &handle, sizeof content);
    // "Must be specified as CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS."
    if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    if (content.magic != kMagic) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult error = check_unsafe(Function::cuIpcOpenMemHandle_v2); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Offer offer{};
    bool own = false;
    if (!driver().physical.find_offer(content.key, offer, own)) return CUDA_ERROR_INVALID_HANDLE;
    if (own) return CUDA_ERROR_INVALID_CONTEXT;  // a process does not open its own handles
    if (content.offset >= offer.bytes) return CUDA_ERROR_INVALID_HANDLE;
    Region* region = find_mapping_of(content.key, *context);
    if (region == nullptr) {
        std::uint64_t free_after = 0;
        const CUresult result = make_region_locked(Region::Kind::Ipc, offer.device, offer.bytes, false, false, region,
                                                   free_after);
        if (result != CUDA_SUCCESS) return result;
        region->context = context;
        region->object = content.key;
    }
    ++opened()[region->base].count[content.offset];
    *pdptr = region->base + content.offset;
    ledger({"ipc_open", *pdptr, region->requested, 0, region->device, free_now(region->device), content.key});
    return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
    return impl::cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuIpcCloseMemHandle); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Region* region = find_region_locked(dptr);
    if (region == nullptr || region->kind != Region::Kind::Ipc) return CUDA_ERROR_INVALID_VALUE;
    auto& count = opened()[region->base].count;
    const auto found = count.find(dptr - region->base);
    if (found == count.end()) return CUDA_ERROR_INVALID_VALUE;
    ledger({"ipc_close", dptr, region->requested, 0, region->device, free_now(region->device), region->object});
    if (--found->second == 0) count.erase(found);
    if (count.empty()) ipc_unmap_locked(*region);
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
