// cuMemPool*, cuMemAllocAsync and cuMemFreeAsync.
#include "pools.h"

#include <algorithm>

#include "activity.h"
#include "arrays.h"
#include "capture.h"
#include "linear.h"
#include "streams.h"

namespace fragscope::sim {

namespace {

constexpr std::uint64_t kPoolUnit = 512;

struct Pools {
    std::unordered_map<CUmemoryPool, std::unique_ptr<Pool>> all;
    Pool* standard[kMaxDevices] = {};
    Pool* current[kMaxDevices] = {};
};

Pools& pools() {
    static Pools* const state = new Pools;
    return *state;
}

Pool* find_pool(CUmemoryPool handle) { return find_pool_locked(handle); }

Pool& default_pool(int device) {
    Pool*& pool = pools().standard[device];
    if (pool == nullptr) {
        pool = &add_pool_locked(device);
        pool->is_default = true;
    }
    return *pool;
}

Pool& current_pool(int device) {
    Pool* pool = pools().current[device];
    return pool != nullptr ? *pool : default_pool(device);
}

void release_chunk(Pool& pool, std::uint64_t base) {
    const std::uint64_t size = pool.chunks[base];
    pool.free.take_at(base, size);
    pool.free.clear_barrier(base);
    pool.chunks.erase(base);
    pool.reserved -= size;
    const std::uint64_t free_after = drop_region_locked(driver().regions.find(base)->second);
    ledger({"pool_shrink", base, size, -static_cast<std::int64_t>(size), pool.device, free_after, pool.id});
}

// Gives wholly free chunks back, the highest first, while the pool holds more than `keep`; with `exact`, only
// while that leaves at least `keep`.
void shrink(Pool& pool, std::uint64_t keep, bool exact) {
    std::vector<std::uint64_t> bases;
    for (auto at = pool.chunks.rbegin(); at != pool.chunks.rend(); ++at) bases.push_back(at->first);
    for (const std::uint64_t base : bases) {
        if (pool.reserved <= keep) return;
        const std::uint64_t size = pool.chunks[base];
        if (exact && pool.reserved - size < keep) continue;
        if (pool.free.contains(base, size)) release_chunk(pool, base);
    }
}

void drop_if_done(Pool& pool) {
    if (!pool.destroyed || !pool.live.empty() || !pool.pending.empty()) return;
    shrink(pool, 0, false);
    if (pool.offered != 0 && !pool.imported) driver().physical.withdraw(pool.offered);
    ledger({"pool_gone", pool.id, 0, 0, pool.device, driver().physical.free_bytes_now(pool.device)});
    pools().all.erase(handle_of_pool(&pool));
}

void no_longer_used(Pool& pool, Pool::PendingFree& pending) {
    if (!pending.counted) return;
    pending.counted = false;
    pool.used -= pending.size;
    ledger({"pool_free_done", pending.address, pending.size, 0, pool.device,
            ledger_open() ? driver().physical.free_bytes_now(pool.device) : 0, pool.id});
}

bool grow(Pool& pool, std::uint64_t size) {
    const Settings& settings = driver().settings;
    const std::uint64_t chunk = settings.pool_chunk;
    const std::uint64_t page = settings.page_size;
    const std::uint64_t least = driver().pages_for(size) * page;
    const std::uint64_t wanted = (size + chunk - 1) / chunk * chunk;
    // Where a whole chunk does not fit, in the pool's limit or the device, what the request needs may.
    for (const std::uint64_t bytes : {wanted, least}) {
        if (pool.max_size != 0 && (bytes > pool.max_size || pool.reserved > pool.max_size - bytes)) continue;
        Region* region = nullptr;
        std::uint64_t free_after = 0;
        const bool contiguous = settings.contiguity == Contiguity::All;
        if (make_region_locked(Region::Kind::PoolChunk, pool.device, bytes, true, contiguous, region, free_after) !=
            CUDA_SUCCESS) {
            continue;
        }
        region->pool = &pool;
        pool.chunks[region->base] = region->size;
        pool.free.set_barrier(region->base);
        pool.free.add(region->base, region->size);
        pool.reserved += region->size;
        pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
        ledger({"pool_grow", region->base, region->size, static_cast<std::int64_t>(region->size), pool.device,
                free_after, pool.id});
        return true;
    }
    return false;
}

// Takes `size` bytes from the best-fitting pending free that `allowed` accepts; 0 when there is none.
template <typename Allowed>
std::uint64_t reuse_pending(Pool& pool, std::uint64_t size, Allowed allowed) {
    auto best = pool.pending.end();
    for (auto at = pool.pending.begin(); at != pool.pending.end(); ++at) {
        if (at->size >= size && allowed(*at) && (best == pool.pending.end() || at->size < best->size)) best = at;
    }
    if (best == pool.pending.end()) return 0;
    no_longer_used(pool, *best);
    const std::uint64_t address = best->address;
    best->address += size;
    best->size -= size;
    if (best->size == 0) pool.pending.erase(best);
    return address;
}

CUresult pool_allocate(Pool& pool, Stream& stream, std::uint64_t bytes, CUdeviceptr* dptr) {
    if (bytes > driver().settings.va_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::uint64_t size = (bytes + kPoolUnit - 1) / kPoolUnit * kPoolUnit;
    const auto ordered = [&](const Pool::PendingFree& pending) {
        if (pending.stream == stream.id) return true;
        const auto after = stream.after.find(pending.stream);
        return pool.follow_events != 0 && after != stream.after.end() && after->second >= pending.number;
    };
    std::uint64_t address = reuse_pending(pool, size, ordered);
    if (address == 0) address = pool.free.take(size, kPoolUnit).value_or(0);
    if (address == 0 && grow(pool, size)) address = pool.free.take(size, kPoolUnit).value_or(0);
    if (address == 0 && pool.internal_dependencies != 0) {
        address = reuse_pending(pool, size, [](const Pool::PendingFree&) { return true; });
    }
    if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    pool.live[address] = {size, bytes, 0};
    pool.used += size;
    pool.used_high = std::max(pool.used_high, pool.used);
    ++stream.issued;
    *dptr = address;
    ledger({"pool_alloc", address, bytes, 0, pool.device,
            ledger_open() ? driver().physical.free_bytes_now(pool.device) : 0, pool.id});
    return CUDA_SUCCESS;
}

// From `chosen`, or where it is null from the current pool of the stream's device.
CUresult allocate_async(const CUmemoryPool* chosen, CUdeviceptr* dptr, size_t bytes, CUstream handle) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (dptr == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(handle, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Pool* pool = chosen == nullptr ? &current_pool(stream->context->device) : find_pool(*chosen);
    if (pool == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) return capture_allocate_locked(*stream, bytes, dptr);
    return pool_allocate(*pool, *stream, bytes, dptr);
}

}  // namespace

CUmemoryPool handle_of_pool(const Pool* pool) { return reinterpret_cast<CUmemoryPool>(const_cast<Pool*>(pool)); }

Pool* find_pool_by_id_locked(std::uint64_t id) {
    for (auto& [handle, pool] : pools().all) {
        if (pool->id == id) return pool.get();
    }
    return nullptr;
}

Pool* find_pool_locked(CUmemoryPool handle) {
    const auto found = pools().all.find(handle);
    return found == pools().all.end() || found->second->destroyed ? nullptr : found->second.get();
}

Pool& add_pool_locked(int device) {
    auto pool = std::make_unique<Pool>();
    pool->device = device;
    pool->id = driver().next_id++;
    pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    Pool& added = *pool;
    pools().all.emplace(handle_of_pool(&added), std::move(pool));
    return added;
}

void pools_stream_completed_locked(std::uint64_t stream, std::uint64_t completed) {
    std::vector<Pool*> touched;
    for (auto& [handle, pool] : pools().all) {
        bool any = false;
        std::erase_if(pool->pending, [&, &owner = *pool](Pool::PendingFree& pending) {
            if (pending.stream != stream || pending.number > completed) return false;
            no_longer_used(owner, pending);
            owner.free.add(pending.address, pending.size);
            return any = true;
        });
        if (any) touched.push_back(pool.get());
    }
    for (Pool* pool : touched) drop_if_done(*pool);
}

void pools_synchronised_locked(int device) {
    for (auto& [handle, pool] : pools().all) {
        if (pool->device == device && pool->reserved > pool->threshold) shrink(*pool, pool->threshold, false);
    }
}

CUresult pool_free_now_locked(Region& chunk, std::uint64_t address) {
    Pool& pool = *chunk.pool;
    const auto found = pool.live.find(address);
    if (found == pool.live.end()) return CUDA_ERROR_INVALID_VALUE;
    const Pool::Block block = found->second;
    if (block.offered != 0) driver().physical.withdraw(block.offered);
    pool.live.erase(found);
    pool.used -= block.size;
    pool.free.add(address, block.size);
    ledger({"pool_free", address, block.requested, 0, pool.device,
            ledger_open() ? driver().physical.free_bytes_now(pool.device) : 0, pool.id});
    drop_if_done(pool);
    return CUDA_SUCCESS;
}

bool pool_find(const Region& chunk, std::uint64_t address, std::uint64_t& base, std::uint64_t& bytes) {
    const auto& live = chunk.pool->live;
    auto at = live.upper_bound(address);
    if (at == live.begin()) return false;
    --at;
    if (address - at->first >= at->second.size) return false;
    base = at->first;
    bytes = at->second.requested;
    return true;
}

CUmemoryPool pool_handle(const Region& chunk) { return handle_of_pool(chunk.pool); }

namespace impl {

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
    return allocate_async(nullptr, dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    return allocate_async(&pool, dptr, bytesize, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Region* region = find_region_locked(dptr);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (region->kind == Region::Kind::Graph) return graph_free_async_locked(*stream, *region, dptr);
    if (region->kind == Region::Kind::PoolImport) {
        if (stream->capture) return capture_unsupported_locked(*stream);
        ++stream->issued;
        return pool_import_free_locked(*region, dptr);
    }
    if (region->kind != Region::Kind::PoolChunk) return CUDA_ERROR_INVALID_VALUE;
    Pool& pool = *region->pool;
    const auto found = pool.live.find(dptr);
    if (found == pool.live.end()) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) return capture_unsupported_locked(*stream);
    const Pool::Block block = found->second;
    if (block.offered != 0) driver().physical.withdraw(block.offered);
    pool.live.erase(found);
    pool.pending.push_back({dptr, block.size, stream->id, ++stream->issued, true});
    ledger({"pool_free_asked", dptr, block.requested, 0, pool.device,
            ledger_open() ? driver().physical.free_bytes_now(pool.device) : 0, pool.id});
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
    if (pool == nullptr || poolProps == nullptr || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    const unsigned types = poolProps->handleTypes;
    if ((types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (!driver().device_ok(poolProps->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    Pool& made = add_pool_locked(poolProps->location.id);
    made.max_size = poolProps->maxSize;
    made.handle_types = types;
    *pool = handle_of_pool(&made);
    ledger({"pool_create", made.id, made.max_size, 0, made.device,
            driver().physical.free_bytes_now(made.device)});
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    Locked guard(driver().lock);
    Pool* found = find_pool(pool);
    if (found == nullptr || found->is_default) return CUDA_ERROR_INVALID_VALUE;
    found->destroyed = true;
    if (pools().current[found->device] == found) pools().current[found->device] = nullptr;
    ledger({"pool_destroy", found->id, 0, 0, found->device, driver().physical.free_bytes_now(found->device)});
    shrink(*found, 0, false);
    drop_if_done(*found);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    Locked guard(driver().lock);
    Pool* found = find_pool(pool);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    shrink(*found, minBytesToKeep, true);
    note_pool_trim_locked(found->id, minBytesToKeep, found->device);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Pool* found = find_pool(pool);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (attr) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
            found->follow_events = *static_cast<int*>(value);
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
            found->opportunistic = *static_cast<int*>(value);
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            found->internal_dependencies = *static_cast<int*>(value);
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            found->threshold = *static_cast<cuuint64_t*>(value);
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
            found->reserved_high = found->reserved;
            return CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
            found->used_high = found->used;
            return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuMemPoolGetAttribute); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Pool* found = find_pool(pool);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto number = [&](int v) { return *static_cast<int*>(value) = v, CUDA_SUCCESS; };
    const auto bytes = [&](std::uint64_t v) { return *static_cast<cuuint64_t*>(value) = v, CUDA_SUCCESS; };
    switch (attr) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: return number(found->follow_events);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return number(found->opportunistic);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: return number(found->internal_dependencies);
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return bytes(found->threshold);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return bytes(found->reserved);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return bytes(found->reserved_high);
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return bytes(found->used);
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return bytes(found->used_high);
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
    if (map == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Pool* found = find_pool(pool);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !driver().device_ok(map[i].location.id)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (map[i].location.id == found->device && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            return CUDA_ERROR_INVALID_VALUE;  // the pool's own device keeps its access
        }
    }
    for (size_t i = 0; i < count; ++i) found->access[map[i].location.id] = map[i].flags;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool, CUmemLocation* location) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Pool* found = find_pool(memPool);
    if (found == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    const auto access = found->access.find(location->id);
    *flags = static_cast<CUmemAccess_flags>(access == found->access.end() ? 0 : access->second);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
    if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    *pool_out = handle_of_pool(&default_pool(dev));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    *pool = handle_of_pool(&current_pool(dev));
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    Pool* found = find_pool(pool);
    if (found == nullptr || found->imported || found->device != dev) return CUDA_ERROR_INVALID_VALUE;
    pools().current[dev] = found;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
    if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    return impl::cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    return impl::cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    return impl::cuDeviceSetMemPool(location->id, pool);
}

}  // namespace impl
}  // namespace fragscope::sim
