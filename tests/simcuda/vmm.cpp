// cuMemAddressReserve, cuMemCreate, cuMemMap and their kin; see vmm.h for what keeps memory alive.
#include "vmm.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <list>

#include "capture.h"
#include "linear.h"
#include "ranges.h"

namespace fragscope::sim {
namespace {

struct Vmm {
    std::list<PhysicalMemory> memory;
    std::unordered_map<std::uint64_t, Handle> handles;
    std::uint64_t next_handle = std::uint64_t{1} << 32;
};

// Never destroyed; see driver.h.
Vmm& vmm() {
    static Vmm* const state = new Vmm;
    return *state;
}

Handle* find_handle(std::uint64_t value) { return find_handle_locked(value); }

Handle& new_handle(PhysicalMemory& memory) {
    const std::uint64_t value = vmm().next_handle;
    vmm().next_handle += 16;
    Handle& handle = vmm().handles[value];
    handle = {value, 1, 0, &memory};
    ++memory.handles;
    return handle;
}

// Closes our end once nobody has the other. Returns true when that freed the memory.
bool check_watch(PhysicalMemory& memory) {
    if (memory.pipe.watch < 0 || memory.pipe.open()) return false;
    memory.pipe.close();
    std::uint64_t free_after = 0;
    if (!driver().physical.descriptors_closed(memory.shared, free_after)) return false;
    ledger({"physical_free", static_cast<std::uint64_t>(memory.shared), memory.bytes,
            -static_cast<std::int64_t>(memory.bytes), memory.device, free_after});
    return true;
}

std::uint64_t free_now(int device) {
    return device >= 0 && ledger_open() ? driver().physical.free_bytes_now(device) : 0;
}

// Ends `memory` when nothing in this process refers to it any more.
void settle(PhysicalMemory& memory) {
    if (memory.handles > 0) return;
    if (memory.multicast) {
        end_multicast_locked(memory);
        vmm().memory.remove_if([&](const PhysicalMemory& each) { return &each == &memory; });
        return;
    }
    Driver& d = driver();
    std::uint64_t free_after = 0;
    std::int64_t charged = 0;
    if (memory.shared >= 0) {
        check_watch(memory);
        const bool freed = d.physical.leave(memory.shared, free_after);
        if (freed) charged = -static_cast<std::int64_t>(memory.bytes);
        if (memory.pipe.watch >= 0) {
            // Only descriptors keep it: remember the pipe until poll_exports_locked() finds it closed.
            ledger({"physical_left", static_cast<std::uint64_t>(memory.shared), memory.bytes, 0, memory.device,
                    free_after});
            return;
        }
    } else if (memory.device >= 0) {
        free_after = d.physical.release(memory.device, memory.pages);
        charged = -static_cast<std::int64_t>(memory.bytes);
    }
    ledger({"physical_free", memory.pages.empty() ? 0 : std::uint64_t{memory.pages.front().first}, memory.bytes,
            charged, memory.device, free_after});
    vmm().memory.remove_if([&](const PhysicalMemory& each) { return &each == &memory; });
}

// Which memory a CUmemAllocationProp asks for; an error when it is one that this driver does not make.
CUresult read_properties(const CUmemAllocationProp* prop, int& device) {
    if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    switch (prop->location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            if (!driver().device_ok(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
            device = prop->location.id;
            break;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: device = -1; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    const unsigned usages = CU_MEM_CREATE_USAGE_TILE_POOL | CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    if ((prop->allocFlags.usage & ~usages) != 0) return CUDA_ERROR_INVALID_VALUE;
    const unsigned types = prop->requestedHandleTypes;
    if ((types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

// The reservation that wholly holds [address, address + size), or null.
Region* find_reservation(std::uint64_t address, std::uint64_t size) {
    Region* region = find_region_locked(address);
    if (region == nullptr || region->kind != Region::Kind::Reservation) return nullptr;
    return size <= region->size - (address - region->base) ? region : nullptr;
}

// The mappings that tile [address, address + size) exactly when `whole`, otherwise that cover it; empty when they
// do not.
std::vector<std::uint64_t> tiles(Region& region, std::uint64_t address, std::uint64_t size, bool whole) {
    std::vector<std::uint64_t> found;
    std::uint64_t at = address;
    while (at < address + size) {
        std::uint64_t start = 0;
        const Mapping* mapping = find_mapping(region, at, start);
        if (mapping == nullptr || (whole && start != at)) return {};
        at = start + mapping->size;
        if (whole && at > address + size) return {};
        found.push_back(start);
    }
    return found;
}

}  // namespace

Handle* find_handle_locked(std::uint64_t value) {
    const auto found = vmm().handles.find(value);
    return found == vmm().handles.end() ? nullptr : &found->second;
}

Handle& new_memory_locked(PhysicalMemory memory) {
    vmm().memory.push_back(std::move(memory));
    return new_handle(vmm().memory.back());
}

void settle_handle_locked(Handle& handle) {
    if (handle.references > 0 || handle.mappings > 0) return;
    PhysicalMemory& memory = *handle.memory;
    vmm().handles.erase(handle.value);
    --memory.handles;
    settle(memory);
}

Mapping* find_mapping(Region& reservation, std::uint64_t address, std::uint64_t& start) {
    auto at = reservation.mappings.upper_bound(address);
    if (at == reservation.mappings.begin()) return nullptr;
    --at;
    if (address - at->first >= at->second.size) return nullptr;
    start = at->first;
    return &at->second;
}

void poll_exports_locked() {
    poll_ranges_locked();
    auto& memory = vmm().memory;
    for (auto at = memory.begin(); at != memory.end();) {
        PhysicalMemory& each = *at++;
        if (each.pipe.watch < 0) continue;
        check_watch(each);
        if (each.pipe.watch >= 0 || each.handles > 0) continue;
        memory.remove_if([&](const PhysicalMemory& other) { return &other == &each; });
    }
}

namespace impl {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
    if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
    int device = 0;
    if (const CUresult error = read_properties(prop, device); error != CUDA_SUCCESS) return error;
    if (option == CU_MEM_ALLOC_GRANULARITY_MINIMUM) {
        *granularity = driver().settings.granularity_minimum;
    } else if (option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        *granularity = driver().settings.granularity_recommended;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
    Driver& d = driver();
    const std::uint64_t granularity = d.settings.granularity_minimum;
    if (ptr == nullptr || size == 0 || size % granularity != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(d.lock);
    std::uint64_t base = addr;
    // The address is a hint: where it is taken or misaligned the driver chooses.
    const std::uint64_t aligned = std::max<std::uint64_t>(alignment, granularity);
    if (addr == 0 || addr % aligned != 0 || !d.addresses.take_at(addr, size)) {
        const auto taken = d.addresses.take(size, aligned);
        if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
        base = *taken;
    }
    Region region;
    region.kind = Region::Kind::Reservation;
    region.base = base;
    region.size = size;
    region.requested = size;
    region.id = d.next_id++;
    d.regions.emplace(base, std::move(region));
    *ptr = base;
    ledger({"reserve", base, size, 0, -1, 0});
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    Locked guard(driver().lock);
    Region* region = find_reservation(ptr, size);
    if (region == nullptr || region->base != ptr || region->size != size || !region->mappings.empty()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    drop_region_locked(*region);
    ledger({"unreserve", ptr, size, 0, -1, 0});
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
    Driver& d = driver();
    if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    PhysicalMemory made;
    if (const CUresult error = read_properties(prop, made.device); error != CUDA_SUCCESS) return error;
    if (size == 0 || size % d.settings.granularity_minimum != 0) return CUDA_ERROR_INVALID_VALUE;
    made.location = prop->location;
    made.bytes = size;
    made.handle_types = prop->requestedHandleTypes;
    made.gpu_direct = prop->allocFlags.gpuDirectRDMACapable != 0;
    made.usage = prop->allocFlags.usage;
    Locked guard(d.lock);
    std::uint64_t free_after = 0;
    if (made.device >= 0) {
        const bool contiguous = d.settings.contiguity == Contiguity::All;
        if (!take_pages_locked(made.device, d.pages_for(size), contiguous, made.pages, free_after)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    const Handle& created = new_memory_locked(std::move(made));
    const PhysicalMemory& memory = *created.memory;
    *handle = created.value;
    ledger({"create", *handle, size, memory.device >= 0 ? static_cast<std::int64_t>(size) : 0, memory.device,
            free_after});
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    Locked guard(driver().lock);
    Handle* found = find_handle(handle);
    if (found == nullptr || found->references == 0) return CUDA_ERROR_INVALID_VALUE;
    --found->references;
    ledger({"release", handle, found->memory->bytes, 0, found->memory->device, free_now(found->memory->device)});
    settle_handle_locked(*found);
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const auto address = reinterpret_cast<std::uint64_t>(addr);
    Region* region = find_reservation(address, 0);
    std::uint64_t start = 0;
    Mapping* mapping = region == nullptr ? nullptr : find_mapping(*region, address, start);
    if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ++mapping->handle->references;
    *handle = mapping->handle->value;
    ledger({"retain", *handle, mapping->handle->memory->bytes, 0, mapping->handle->memory->device,
            free_now(mapping->handle->memory->device)});
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    Driver& d = driver();
    const std::uint64_t granularity = d.settings.granularity_minimum;
    if (flags != 0 || size == 0 || ptr % granularity != 0 || size % granularity != 0) return CUDA_ERROR_INVALID_VALUE;
    // cuda.h: "currently must be zero".
    if (offset % granularity != 0 || (offset != 0 && !d.settings.map_offset)) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(d.lock);
    Handle* found = find_handle(handle);
    if (found == nullptr || found->references == 0) return CUDA_ERROR_INVALID_VALUE;
    // The real driver waits until all devices of a multicast object have been added.
    if (found->memory->multicast && !found->memory->multicast->complete()) return CUDA_ERROR_ILLEGAL_STATE;
    if (offset > found->memory->bytes || size > found->memory->bytes - offset) return CUDA_ERROR_INVALID_VALUE;
    Region* region = find_reservation(ptr, size);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t start = 0;
    if (find_mapping(*region, ptr, start) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto next = region->mappings.lower_bound(ptr);
    if (next != region->mappings.end() && next->first < ptr + size) return CUDA_ERROR_INVALID_VALUE;
    Mapping& mapping = region->mappings[ptr];
    mapping.size = size;
    mapping.offset = offset;
    mapping.handle = found;
    ++found->mappings;
    ledger({"map", ptr, size, 0, found->memory->device, free_now(found->memory->device), handle});
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    Locked guard(driver().lock);
    Region* region = size == 0 ? nullptr : find_reservation(ptr, size);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Several whole neighbouring mappings at once are accepted; part of one is not.
    const std::vector<std::uint64_t> whole = tiles(*region, ptr, size, true);
    if (whole.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const std::uint64_t start : whole) {
        Handle& handle = *region->mappings[start].handle;
        const std::uint64_t bytes = region->mappings[start].size;
        region->mappings.erase(start);
        --handle.mappings;
        ledger({"unmap", start, bytes, 0, handle.memory->device, free_now(handle.memory->device), handle.value});
        settle_handle_locked(handle);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
    Driver& d = driver();
    if (desc == nullptr || count == 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (ptr % d.settings.granularity_minimum != 0 || size % d.settings.granularity_minimum != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
        const CUmemLocation& location = desc[i].location;
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !d.device_ok(location.id)) return CUDA_ERROR_INVALID_DEVICE;
        if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
    }
    Locked guard(d.lock);
    Region* region = find_reservation(ptr, size);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::vector<std::uint64_t> covered = tiles(*region, ptr, size, false);
    if (covered.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
        const int place = desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE ? desc[i].location.id : -1;
        for (const std::uint64_t start : covered) region->mappings[start].access[place] = desc[i].flags;
    }
    ledger({"access", ptr, size, 0, -1, 0});
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool on_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (on_device && !driver().device_ok(location->id)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    Region* region = find_reservation(ptr, 0);
    std::uint64_t start = 0;
    const Mapping* mapping = region == nullptr ? nullptr : find_mapping(*region, ptr, start);
    if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = mapping->access.find(on_device ? location->id : -1);
    *flags = found == mapping->access.end() ? unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE} : found->second;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Handle* found = find_handle(handle);
    if (found == nullptr || found->references == 0 || found->memory->multicast) return CUDA_ERROR_INVALID_VALUE;
    *prop = {};
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(found->memory->handle_types);
    prop->location = found->memory->location;
    prop->allocFlags.gpuDirectRDMACapable = found->memory->gpu_direct ? 1 : 0;
    prop->allocFlags.usage = static_cast<unsigned short>(found->memory->usage);
    return CUDA_SUCCESS;
}

// The inode of the descriptor handed out names the memory to an importer.
CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
    if (shareableHandle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Handle* found = find_handle(handle);
    if (found == nullptr || found->references == 0) return CUDA_ERROR_INVALID_VALUE;
    PhysicalMemory& memory = *found->memory;
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (memory.handle_types & handleType) == 0 ||
        memory.device < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    check_watch(memory);
    const bool fresh = memory.pipe.watch < 0;
    const int out = memory.pipe.hand_out();
    if (out < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (fresh) {
        bool named = false;
        if (memory.shared < 0) {
            memory.shared = driver().physical.share({memory.device, memory.bytes, memory.gpu_direct}, memory.pages,
                                                    memory.pipe.inode);
            named = memory.shared >= 0;
            if (named) memory.pages.clear();
        } else {
            named = driver().physical.rename(memory.shared, memory.pipe.inode);
        }
        if (!named) {
            memory.pipe.close();
            ::close(out);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    *static_cast<int*>(shareableHandle) = out;
    ledger({"export", handle, memory.bytes, 0, memory.device, free_now(memory.device)});
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
    if (handle == nullptr || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(osHandle));
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) return CUDA_ERROR_INVALID_VALUE;
    Driver& d = driver();
    Locked guard(d.lock);
    SharedHandleInfo info{};
    const int index = d.physical.join(status.st_ino, info);
    if (index < 0) return CUDA_ERROR_INVALID_VALUE;
    auto& all = vmm().memory;
    auto known = std::find_if(all.begin(), all.end(), [&](const PhysicalMemory& m) { return m.shared == index; });
    if (known == all.end()) {
        PhysicalMemory memory;
        memory.device = info.device;
        memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        memory.location.id = info.device;
        memory.bytes = info.bytes;
        memory.handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        memory.gpu_direct = info.gpu_direct;
        memory.shared = index;
        known = all.insert(all.end(), std::move(memory));
    }
    *handle = new_handle(*known).value;
    ledger({"import", *handle, info.bytes, 0, info.device, free_now(info.device)});
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
