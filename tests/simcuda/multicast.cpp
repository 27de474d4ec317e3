// Multicast objects: teams of devices to whose memory one address range writes at once. An object has no memory of
// its own; what is bound to it stays alive until it is unbound or the object ends.
//
// Contents are not spread: what is written to a mapped object is read back from it only.
#include <algorithm>

#include "vmm.h"

namespace fragscope::sim {
namespace {

std::uint64_t granularity() { return driver().settings.multicast_granularity; }

std::uint64_t free_now(int device) {
    return device >= 0 && ledger_open() ? driver().physical.free_bytes_now(device) : 0;
}

CUresult check_properties(const CUmulticastObjectProp* prop) {
    if (prop == nullptr || prop->flags != 0 || prop->size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (prop->numDevices == 0 || prop->numDevices > driver().settings.devices) return CUDA_ERROR_INVALID_VALUE;
    const unsigned long long known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return (prop->handleTypes & ~known) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

// The object behind a handle that the program still has; null when it is none.
Handle* find_object(CUmemGenericAllocationHandle value) {
    Handle* handle = find_handle_locked(value);
    return handle == nullptr || handle->references == 0 || !handle->memory->multicast ? nullptr : handle;
}

CUresult bind(Handle& object, std::uint64_t offset, Handle* memory, std::uint64_t memory_offset, std::uint64_t size) {
    Multicast& team = *object.memory->multicast;
    if (memory == nullptr || memory->memory->multicast) return CUDA_ERROR_INVALID_VALUE;
    if (size == 0 || size % granularity() != 0 || offset % granularity() != 0 || memory_offset % granularity() != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (offset > object.memory->bytes || size > object.memory->bytes - offset ||
        memory_offset > memory->memory->bytes || size > memory->memory->bytes - memory_offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // The real driver waits until all devices have been added.
    if (!team.complete()) return CUDA_ERROR_ILLEGAL_STATE;
    const int device = memory->memory->device;
    if (std::find(team.devices.begin(), team.devices.end(), device) == team.devices.end()) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    // "Externally shareable ... multicast objects can be bound only to externally shareable memory."
    if (team.handle_types != 0 && memory->memory->handle_types == 0) return CUDA_ERROR_INVALID_VALUE;
    const bool taken = std::any_of(team.bindings.begin(), team.bindings.end(), [&](const Multicast::Binding& each) {
        return each.device == device && each.offset < offset + size && offset < each.offset + each.size;
    });
    if (taken) return CUDA_ERROR_INVALID_VALUE;
    team.bindings.push_back({memory, device, offset, size});
    ++memory->mappings;
    ledger({"multicast_bind", object.value, size, 0, device, free_now(device), memory->value});
    return CUDA_SUCCESS;
}

void unbind(std::uint64_t object, const Multicast::Binding& binding) {
    --binding.memory->mappings;
    ledger({"multicast_unbind", object, binding.size, 0, binding.device, free_now(binding.device),
            binding.memory->value});
    settle_handle_locked(*binding.memory);
}

}  // namespace

void end_multicast_locked(PhysicalMemory& object) {
    for (const Multicast::Binding& binding : object.multicast->bindings) unbind(object.multicast->handle, binding);
    object.multicast->bindings.clear();
    ledger({"multicast_destroy", object.multicast->handle, object.bytes, 0, -1, 0});
}

namespace impl {

CUresult cuMulticastGetGranularity(size_t* size, const CUmulticastObjectProp* prop,
                                   CUmulticastGranularity_flags option) {
    if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_properties(prop); error != CUDA_SUCCESS) return error;
    if (option != CU_MULTICAST_GRANULARITY_MINIMUM && option != CU_MULTICAST_GRANULARITY_RECOMMENDED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *size = granularity();
    return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* mcHandle, const CUmulticastObjectProp* prop) {
    if (mcHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_properties(prop); error != CUDA_SUCCESS) return error;
    if (prop->size % granularity() != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    PhysicalMemory object;
    object.bytes = prop->size;
    object.multicast = std::make_unique<Multicast>();
    object.multicast->wanted = prop->numDevices;
    object.multicast->handle_types = static_cast<unsigned>(prop->handleTypes);
    Handle& handle = new_memory_locked(std::move(object));
    handle.memory->multicast->handle = handle.value;
    *mcHandle = handle.value;
    ledger({"multicast_create", handle.value, prop->size, 0, -1, 0});
    return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev) {
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    const Handle* object = find_object(mcHandle);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Multicast& team = *object->memory->multicast;
    if (team.complete() || std::find(team.devices.begin(), team.devices.end(), dev) != team.devices.end()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    team.devices.push_back(dev);
    ledger({"multicast_add_device", mcHandle, object->memory->bytes, 0, dev, free_now(dev)});
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) {
    Locked guard(driver().lock);
    Handle* object = find_object(mcHandle);
    Handle* memory = find_handle_locked(memHandle);
    if (object == nullptr || flags != 0 || memory == nullptr || memory->references == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return bind(*object, mcOffset, memory, memOffset, size);
}

// Memory of pools, which cuda.h allows too, is not supported.
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
                             unsigned long long flags) {
    Locked guard(driver().lock);
    Handle* object = find_object(mcHandle);
    Region* region = find_region_locked(memptr);
    if (object == nullptr || flags != 0 || region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (region->kind == Region::Kind::PoolChunk) return CUDA_ERROR_NOT_SUPPORTED;
    std::uint64_t start = 0;
    const Mapping* mapping = region->kind == Region::Kind::Reservation ? find_mapping(*region, memptr, start) : nullptr;
    if (mapping == nullptr || size > mapping->size - (memptr - start)) return CUDA_ERROR_INVALID_VALUE;
    return bind(*object, mcOffset, mapping->handle, mapping->offset + (memptr - start), size);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size) {
    if (!driver().device_ok(dev)) return CUDA_ERROR_INVALID_DEVICE;
    Locked guard(driver().lock);
    const Handle* object = find_object(mcHandle);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto& bindings = object->memory->multicast->bindings;
    const auto found = std::find_if(bindings.begin(), bindings.end(), [&](const Multicast::Binding& each) {
        return each.device == dev && each.offset == mcOffset && each.size == size;
    });
    if (found == bindings.end()) return CUDA_ERROR_INVALID_VALUE;
    const Multicast::Binding binding = *found;
    bindings.erase(found);
    unbind(mcHandle, binding);
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
