// What an address is: cuPointerGetAttribute(s), cuMemGetAddressRange.
#include "driver.h"
#include "pools.h"
#include "small_heap.h"
#include "vmm.h"

namespace fragscope::sim {
namespace {

struct Found {
    Region* region = nullptr;
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    int device = -1;
};

// The allocation, mapping or reservation that holds `address`.
bool find(std::uint64_t address, Found& found) {
    Region* region = find_region_locked(address);
    if (region == nullptr) return false;
    found = {region, region->base, region->requested, region->device};
    switch (region->kind) {
        case Region::Kind::SmallBlock: return small_find(*region, address, found.base, found.bytes);
        case Region::Kind::PoolChunk: return pool_find(*region, address, found.base, found.bytes);
        case Region::Kind::Reservation:
            if (const Mapping* mapping = find_mapping(*region, address, found.base); mapping != nullptr) {
                found.bytes = mapping->size;
                found.device = mapping->handle->memory->device;
                return true;
            }
            return false;
        default: return true;
    }
}

bool is_host(const Region& region) {
    return region.kind == Region::Kind::Host || region.kind == Region::Kind::Registered;
}

// How the memory at an address of the region can be exported: CUmemAllocationHandleType bits.
unsigned handle_types(Region& region, std::uint64_t address) {
    std::uint64_t start = 0;
    if (region.kind == Region::Kind::PoolChunk) return region.pool->handle_types;
    if (region.kind != Region::Kind::Reservation) return 0;
    const Mapping* mapping = find_mapping(region, address, start);
    return mapping == nullptr ? 0 : mapping->handle->memory->handle_types;
}

CUresult attribute(void* data, CUpointer_attribute which, std::uint64_t address) {
    Found found;
    const bool known = find(address, found);
    const auto number = [&](auto value) { return *static_cast<decltype(value)*>(data) = value, CUDA_SUCCESS; };
    const bool host = known && is_host(*found.region);
    const bool managed = known && found.region->kind == Region::Kind::Managed;
    switch (which) {
        case CU_POINTER_ATTRIBUTE_MAPPED: return number(known ? 1 : 0);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: if (known) return number(managed ? 1U : 0U); break;
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            if (known) return number(handle_of(found.region->context));
            break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            if (known) return number(static_cast<unsigned>(host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: if (known) return number(CUdeviceptr{address}); break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (host || managed) return number(reinterpret_cast<void*>(address));
            break;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: if (known) return number(0U); break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            if (known) return number(static_cast<unsigned long long>(found.region->id));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: if (known) return number(found.device); break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            if (known) {
                return number(found.region->kind == Region::Kind::Linear ||
                                      found.region->kind == Region::Kind::SmallBlock
                                  ? 1
                                  : 0);
            }
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: if (known) return number(CUdeviceptr{found.base}); break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: if (known) return number(size_t{found.bytes}); break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            if (known) return number(static_cast<unsigned long long>(handle_types(*found.region, address)));
            break;
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            if (known) return number(static_cast<int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
            break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            if (known && found.region->kind == Region::Kind::PoolChunk) return number(pool_handle(*found.region));
            if (known) return number(CUmemoryPool{nullptr});
            break;
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace impl {

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Found found;
    if (!find(dptr, found)) return CUDA_ERROR_NOT_FOUND;
    if (pbase != nullptr) *pbase = found.base;
    if (psize != nullptr) *psize = found.bytes;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr ptr) {
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    return attribute(data, which, ptr);
}

// Unlike the single query, an unknown address is no error here: what cannot be said is zero (cuda.h).
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
    if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    for (unsigned i = 0; i < numAttributes; ++i) {
        if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult result = attribute(data[i], attributes[i], ptr);
        if (result == CUDA_ERROR_NOT_SUPPORTED) return result;
        if (result == CUDA_SUCCESS) continue;
        switch (attributes[i]) {
            case CU_POINTER_ATTRIBUTE_CONTEXT:
            case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *static_cast<void**>(data[i]) = nullptr; break;
            case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *static_cast<std::uint64_t*>(data[i]) = 0; break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(data[i]) = -2; break;
            default: *static_cast<unsigned*>(data[i]) = 0; break;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr ptr) {
    if (value == nullptr || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    return find_region_locked(ptr) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace impl
}  // namespace fragscope::sim
