// cuImportExternalMemory of an opaque descriptor, buffers and mipmapped arrays mapped onto it, and their ends.
//
// A descriptor is taken from cuMemExportToShareableHandle, of this process or of one that shares the device, and
// then keeps that memory as an imported handle does; or it is any file that is large enough (a memfd, say), which
// stands for memory of a graphics interface. Neither is charged to a device once more.
#include "external.h"

#include <sys/stat.h>
#include <unistd.h>

#include "arrays.h"
#include "capture.h"
#include "vmm.h"

namespace fragscope::sim {
namespace {

struct ExternalMemory {
    std::uint64_t id = 0;
    int fd = -1;
    int device = 0;
    std::uint64_t bytes = 0;
    CUmemGenericAllocationHandle memory = 0;  // 0: memory that this driver does not know
    unsigned mapped = 0;                      // buffers and arrays
    bool destroyed = false;
};

using Imported = std::unordered_map<std::uint64_t, std::unique_ptr<ExternalMemory>>;

Imported& imported() {
    static auto* const state = new Imported;
    return *state;
}

ExternalMemory* find_external(CUexternalMemory handle) {
    for (auto& [id, memory] : imported()) {
        if (reinterpret_cast<CUexternalMemory>(memory.get()) == handle && !memory->destroyed) return memory.get();
    }
    return nullptr;
}

std::uint64_t free_now(int device) { return ledger_open() ? driver().physical.free_bytes_now(device) : 0; }

void end_if_unused(ExternalMemory& memory) {
    if (!memory.destroyed || memory.mapped != 0) return;
    if (memory.memory != 0) {
        if (Handle* handle = find_handle_locked(memory.memory); handle != nullptr) {
            --handle->references;
            ledger({"release", handle->value, handle->memory->bytes, 0, memory.device, free_now(memory.device)});
            settle_handle_locked(*handle);
        }
    }
    ::close(memory.fd);
    imported().erase(memory.id);
}

}  // namespace

void external_unmapped_locked(std::uint64_t id) {
    const auto found = imported().find(id);
    if (found == imported().end()) return;
    --found->second->mapped;
    end_if_unused(*found->second);
}

void external_free_locked(Region& region) {
    const std::uint64_t base = region.base, bytes = region.requested, id = region.object;
    const int device = region.device;
    const std::uint64_t free_after = drop_region_locked(region);
    ledger({"external_unmap", base, bytes, 0, device, free_after, id});
    external_unmapped_locked(id);
}

namespace impl {

CUresult cuImportExternalMemory(CUexternalMemory* extMem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (extMem_out == nullptr || memHandleDesc == nullptr || memHandleDesc->size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
    if ((memHandleDesc->flags & ~unsigned{CUDA_EXTERNAL_MEMORY_DEDICATED}) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuImportExternalMemory); error != CUDA_SUCCESS) return error;
    const int fd = memHandleDesc->handle.fd;
    struct stat status {};
    if (::fstat(fd, &status) != 0) return CUDA_ERROR_INVALID_HANDLE;
    auto made = std::make_unique<ExternalMemory>();
    made->fd = fd;
    made->bytes = memHandleDesc->size;
    made->device = context->device;
    if (S_ISFIFO(status.st_mode)) {
        const CUresult error = impl::cuMemImportFromShareableHandle(
            &made->memory, reinterpret_cast<void*>(std::intptr_t{fd}), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (error != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
    } else if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) < made->bytes) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    Locked guard(driver().lock);
    if (made->memory != 0) {
        Handle* handle = find_handle_locked(made->memory);
        made->device = handle->memory->device;
        if (handle->memory->bytes < made->bytes) {
            --handle->references;
            ledger({"release", handle->value, handle->memory->bytes, 0, made->device, free_now(made->device)});
            settle_handle_locked(*handle);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    made->id = driver().next_id++;
    *extMem_out = reinterpret_cast<CUexternalMemory>(made.get());
    ledger({"external_import", made->id, made->bytes, 0, made->device, free_now(made->device), made->memory});
    imported().emplace(made->id, std::move(made));
    return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* devPtr, CUexternalMemory extMem,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (devPtr == nullptr || bufferDesc == nullptr || bufferDesc->flags != 0 || bufferDesc->size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult error = check_unsafe(Function::cuExternalMemoryGetMappedBuffer); error != CUDA_SUCCESS) {
        return error;
    }
    Locked guard(driver().lock);
    ExternalMemory* memory = find_external(extMem);
    if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (bufferDesc->offset > memory->bytes || bufferDesc->size > memory->bytes - bufferDesc->offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Region* region = nullptr;
    std::uint64_t free_after = 0;
    const CUresult result = make_region_locked(Region::Kind::External, memory->device, bufferDesc->size, false, false,
                                               region, free_after);
    if (result != CUDA_SUCCESS) return result;
    region->context = context;
    region->object = memory->id;
    ++memory->mapped;
    *devPtr = region->base;
    ledger({"external_map", region->base, region->requested, 0, region->device, free_after, memory->id});
    return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray* mipmap, CUexternalMemory extMem,
                                                 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* mipmapDesc) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (mipmap == nullptr || mipmapDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const unsigned own = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
    if ((mipmapDesc->arrayDesc.Flags & own) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_unsafe(Function::cuExternalMemoryGetMappedMipmappedArray);
        error != CUDA_SUCCESS) {
        return error;
    }
    Locked guard(driver().lock);
    ExternalMemory* memory = find_external(extMem);
    if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (mipmapDesc->offset > memory->bytes) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = make_external_mipmap_locked(*context, mipmapDesc->arrayDesc, mipmapDesc->numLevels,
                                                        memory->bytes - mipmapDesc->offset, memory->id, mipmap);
    if (result == CUDA_SUCCESS) ++memory->mapped;
    return result;
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuDestroyExternalMemory); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    ExternalMemory* memory = find_external(extMem);
    if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    memory->destroyed = true;
    ledger({"external_destroy", memory->id, memory->bytes, 0, memory->device, free_now(memory->device)});
    end_if_unused(*memory);
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
