// cuMemAlloc, cuMemAllocPitch, cuMemFree, cuMemGetInfo and their 32-bit ancestors.
//
// Allocations up to 1 MiB share 2 MiB blocks (small_heap.h); larger ones are whole physical pages.
#include "linear.h"

#include "arrays.h"
#include "capture.h"
#include "external.h"
#include "host.h"
#include "pools.h"
#include "ranges.h"
#include "small_heap.h"

namespace fragscope::sim {

CUresult linear_allocate_locked(Context& context, std::uint64_t bytes, const char* operation,
                                std::uint64_t& address) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes <= kSmallLimit) return small_allocate_locked(context, bytes, operation, address);
    Region* region = nullptr;
    std::uint64_t free_after = 0;
    const bool contiguous = driver().settings.contiguity != Contiguity::None;
    const CUresult result = make_region_locked(Region::Kind::Linear, context.device, bytes, true, contiguous, region,
                                               free_after);
    if (result != CUDA_SUCCESS) return result;
    region->context = &context;
    address = region->base;
    ledger({operation, address, bytes, static_cast<std::int64_t>(region->size), region->device, free_after});
    return CUDA_SUCCESS;
}

void linear_free_locked(Region& region) {
    const std::uint64_t base = region.base;
    const std::uint64_t bytes = region.requested;
    const auto size = range_held_locked(region) ? 0 : static_cast<std::int64_t>(region.size);
    const int device = region.device;
    const std::uint64_t free_after = drop_region_locked(region);
    ledger({"linear_free", base, bytes, -size, device, free_after});
}

CUresult free_address_locked(std::uint64_t address) {
    Region* region = find_region_locked(address);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (region->kind) {
        case Region::Kind::SmallBlock:
            return small_free_locked(*region, address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        case Region::Kind::Linear:
            if (address != region->base) return CUDA_ERROR_INVALID_VALUE;
            linear_free_locked(*region);
            return CUDA_SUCCESS;
        case Region::Kind::Managed:
            if (address != region->base) return CUDA_ERROR_INVALID_VALUE;
            host_free_locked(*region);
            return CUDA_SUCCESS;
        case Region::Kind::External:
            if (address != region->base) return CUDA_ERROR_INVALID_VALUE;
            external_free_locked(*region);
            return CUDA_SUCCESS;
        case Region::Kind::PoolImport: return pool_import_free_locked(*region, address);
        case Region::Kind::PoolChunk: return pool_free_now_locked(*region, address);
        case Region::Kind::Graph: return graph_free_now_locked(*region, address);
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

namespace impl {

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuMemAlloc_v2); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    std::uint64_t address = 0;
    const CUresult result = linear_allocate_locked(*context, bytesize, "linear_alloc", address);
    if (result == CUDA_SUCCESS) *dptr = address;
    return result;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0) return CUDA_ERROR_INVALID_VALUE;
    if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuMemAllocPitch_v2); error != CUDA_SUCCESS) return error;
    const std::uint64_t pitch = (WidthInBytes + kSmallUnit - 1) / kSmallUnit * kSmallUnit;
    std::uint64_t bytes = 0;
    if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    std::uint64_t address = 0;
    const CUresult result = linear_allocate_locked(*context, bytes, "pitch_alloc", address);
    if (result != CUDA_SUCCESS) return result;
    *dptr = address;
    *pPitch = pitch;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuMemFree_v2); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    return free_address_locked(dptr);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (free == nullptr && total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    poll_exports_locked();
    if (free != nullptr) *free = driver().physical.free_bytes(context->device);
    if (total != nullptr) *total = driver().physical.capacity();
    return CUDA_SUCCESS;
}

// The 32-bit ABI of CUDA before 3.2: no address of this driver fits, so an allocation cannot be answered.
CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
    size_t wide_free = 0, wide_total = 0;
    const CUresult result = impl::cuMemGetInfo_v2(&wide_free, &wide_total);
    if (result != CUDA_SUCCESS) return result;
    const size_t most = 0xffffffffU;
    if (free != nullptr) *free = static_cast<unsigned>(wide_free < most ? wide_free : most);
    if (total != nullptr) *total = static_cast<unsigned>(wide_total < most ? wide_total : most);
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
