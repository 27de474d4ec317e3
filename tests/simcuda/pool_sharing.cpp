// Pools and their allocations in other processes: cuMemPoolExportToShareableHandle to cuMemPoolImportPointer.
//
// The descriptor handed out is a memory file that holds the pool's key. Only the exporting process keeps memory:
// when it frees an allocation or dies, the bytes are its pool's or the device's again, whoever imported it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "capture.h"
#include "pools.h"

namespace fragscope::sim {
namespace {

constexpr std::uint64_t kPoolMagic = 0x314c'4f4f'5053'4653;     // "SFSPOOL1", little endian
constexpr std::uint64_t kPointerMagic = 0x3152'5450'5053'4653;  // "SFSPPTR1", little endian

struct PoolContent {
    std::uint64_t magic;
    std::uint64_t key;
};
static_assert(sizeof(PoolContent) <= sizeof(CUmemPoolPtrExportData));

std::uint64_t free_now(int device) { return ledger_open() ? driver().physical.free_bytes_now(device) : 0; }

}  // namespace

CUresult pool_import_free_locked(Region& region, std::uint64_t address) {
    if (address != region.base) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t bytes = region.requested, key = region.object;
    const int device = region.device;
    const std::uint64_t free_after = drop_region_locked(region);
    ledger({"pool_import_free", address, bytes, 0, device, free_after, key});
    return CUDA_SUCCESS;
}

namespace impl {

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
    if (handle_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Pool* found = find_pool_locked(pool);
    if (found == nullptr || found->imported || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (found->handle_types & handleType) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (found->offered == 0) found->offered = driver().physical.offer({found->device, 0, 0});
    if (found->offered == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const PoolContent content{kPoolMagic, found->offered};
    const int fd = ::memfd_create("simulated-pool", MFD_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (::pwrite(fd, &content, sizeof content, 0) != sizeof content) {
        ::close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *static_cast<int*>(handle_out) = fd;
    ledger({"pool_export", found->id, 0, 0, found->device, free_now(found->device), found->offered});
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType, unsigned long long flags) {
    if (pool_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
    PoolContent content{};
    if (::pread(fd, &content, sizeof content, 0) != sizeof content || content.magic != kPoolMagic) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Locked guard(driver().lock);
    Offer offer{};
    bool own = false;
    if (!driver().physical.find_offer(content.key, offer, own) || !driver().device_ok(offer.device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Pool& made = add_pool_locked(offer.device);
    made.imported = true;
    made.offered = content.key;
    *pool_out = handle_of_pool(&made);
    ledger({"pool_import", made.id, 0, 0, made.device, free_now(made.device), content.key});
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
    if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Region* region = find_region_locked(ptr);
    if (region == nullptr || region->kind != Region::Kind::PoolChunk) return CUDA_ERROR_INVALID_VALUE;
    Pool& pool = *region->pool;
    const auto block = pool.live.find(ptr);
    // "from an already shared memory pool"
    if (block == pool.live.end() || pool.offered == 0) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t& key = block->second.offered;
    if (key == 0) key = driver().physical.offer({pool.device, block->second.requested, pool.offered});
    if (key == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const PoolContent content{kPointerMagic, key};
    std::memset(shareData_out, 0, sizeof *shareData_out);
    std::memcpy(shareData_out, &content, sizeof content);
    ledger({"pool_export_pointer", ptr, block->second.requested, 0, pool.device, free_now(pool.device), key});
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData* shareData) {
    if (ptr_out == nullptr || shareData == nullptr) return CUDA_ERROR_INVALID_VALUE;
    PoolContent content{};
    std::memcpy(&content, shareData, sizeof content);
    if (content.magic != kPointerMagic) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Pool* found = find_pool_locked(pool);
    if (found == nullptr || !found->imported) return CUDA_ERROR_INVALID_VALUE;
    Offer offer{};
    bool own = false;
    if (!driver().physical.find_offer(content.key, offer, own) || offer.within != found->offered) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Region* region = nullptr;
    std::uint64_t free_after = 0;
    const CUresult result = make_region_locked(Region::Kind::PoolImport, offer.device, offer.bytes, false, false,
                                               region, free_after);
    if (result != CUDA_SUCCESS) return result;
    region->object = content.key;
    *ptr_out = region->base;
    ledger({"pool_import_pointer", region->base, region->requested, 0, region->device, free_after, content.key});
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
