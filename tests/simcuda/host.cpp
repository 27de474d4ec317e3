// cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged and their kin.
//
// Managed memory is not resident on any device at the call and may exceed the device; as kernels do nothing it
// never becomes resident.
#include "host.h"

#include <sys/mman.h>

#include "capture.h"

namespace fragscope::sim {
namespace {

std::uint64_t host_pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

CUresult allocate(Region::Kind kind, Context& context, std::uint64_t bytes, unsigned flags, const char* operation,
                  std::uint64_t& address) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > std::uint64_t{1} << 46) return CUDA_ERROR_OUT_OF_MEMORY;
    void* memory = ::mmap(nullptr, host_pages(bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Region region;
    region.kind = kind;
    region.base = reinterpret_cast<std::uint64_t>(memory);
    region.size = host_pages(bytes);
    region.requested = bytes;
    region.context = &context;
    region.device = context.device;
    region.flags = flags;
    region.id = driver().next_id++;
    address = region.base;
    driver().regions.emplace(address, std::move(region));
    ledger({operation, address, bytes, 0, -1, 0});
    return CUDA_SUCCESS;
}

Region* find_host(const void* p) {
    Region* region = find_region_locked(reinterpret_cast<std::uint64_t>(p));
    if (region == nullptr) return nullptr;
    return region->kind == Region::Kind::Host || region->kind == Region::Kind::Registered ? region : nullptr;
}

}  // namespace

void host_free_locked(Region& region) {
    const std::uint64_t base = region.base;
    const std::uint64_t bytes = region.requested;
    const Region::Kind kind = region.kind;
    if (kind != Region::Kind::Registered) ::munmap(reinterpret_cast<void*>(base), region.size);
    driver().regions.erase(base);
    const char* operation = kind == Region::Kind::Managed ? "managed_free"
                            : kind == Region::Kind::Host  ? "host_free"
                                                          : "host_unregister";
    ledger({operation, base, bytes, 0, -1, 0});
}

namespace impl {

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (pp == nullptr || (Flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuMemHostAlloc); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    std::uint64_t address = 0;
    const CUresult result = allocate(Region::Kind::Host, *context, bytesize, Flags, "host_alloc", address);
    if (result == CUDA_SUCCESS) *pp = reinterpret_cast<void*>(address);
    return result;
}
CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return impl::cuMemHostAlloc(pp, bytesize, 0); }
CUresult cuMemAllocHost(void** pp, unsigned int bytesize) { return impl::cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemFreeHost(void* p) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuMemFreeHost); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Region* region = find_host(p);
    if (region == nullptr || region->kind != Region::Kind::Host || region->base != reinterpret_cast<std::uint64_t>(p)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    host_free_locked(*region);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    if (find_host(p) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pdptr = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Region* region = find_host(p);
    if (region == nullptr || region->kind != Region::Kind::Host) return CUDA_ERROR_INVALID_VALUE;
    *pFlags = region->flags | CU_MEMHOSTALLOC_DEVICEMAP;  // with unified addressing all of it is mapped
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                           CU_MEMHOSTREGISTER_READ_ONLY;
    if (p == nullptr || bytesize == 0 || (Flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuMemHostRegister_v2); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const auto base = reinterpret_cast<std::uint64_t>(p);
    if (find_region_locked(base) != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    const auto next = driver().regions.lower_bound(base);
    if (next != driver().regions.end() && next->first - base < bytesize) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    Region region;
    region.kind = Region::Kind::Registered;
    region.base = base;
    region.size = bytesize;
    region.requested = bytesize;
    region.context = context;
    region.device = context->device;
    region.flags = Flags;
    region.id = driver().next_id++;
    driver().regions.emplace(base, std::move(region));
    ledger({"host_register", base, bytesize, 0, -1, 0});
    return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
    return impl::cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Region* region = find_host(p);
    if (region == nullptr || region->kind != Region::Kind::Registered ||
        region->base != reinterpret_cast<std::uint64_t>(p)) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    host_free_locked(*region);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (dptr == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult error = check_unsafe(Function::cuMemAllocManaged); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    std::uint64_t address = 0;
    const CUresult result = allocate(Region::Kind::Managed, *context, bytesize, flags, "managed_alloc", address);
    if (result == CUDA_SUCCESS) *dptr = address;
    return result;
}

}  // namespace impl
}  // namespace fragscope::sim
