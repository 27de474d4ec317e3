// cuMemMapArrayAsync and what a program must ask before it: tile extents, mip tails, memory requirements.
//
// A mapping refers to memory as one in a reservation does: it keeps it alive. It takes effect at the call and not
// in stream order. Contents belong to the array here and not to the memory: what was written to a tile is still
// there after it was mapped elsewhere.
#include "arrays.h"

#include <algorithm>

#include "capture.h"
#include "streams.h"
#include "vmm.h"

namespace fragscope::sim {
namespace {

std::uint64_t in_tiles(std::uint64_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes * kTileBytes; }

std::uint64_t free_now(int device) { return ledger_open() ? driver().physical.free_bytes_now(device) : 0; }

bool spans_a_tile(const ArrayShape& shape, const TileExtent& tile) {
    return shape.width >= tile.width && shape.height >= tile.height && shape.depth >= tile.depth;
}

struct Layout {
    TileExtent tile{};
    unsigned tail_level = 0;       // first level that does not span a tile
    std::uint64_t tail_bytes = 0;  // of those levels, per layer; 0: there are none
    unsigned layers = 1;
};

Layout layout_of(const ArrayStorage& storage) {
    Layout layout;
    layout.tile = tile_of(storage.description);
    const unsigned levels = std::max(storage.levels, 1U);
    layout.tail_level = levels;
    std::uint64_t tail = 0;
    for (unsigned level = 0; level < levels; ++level) {
        ArrayShape shape;
        shape_of(level_of(storage.description, level), shape);
        layout.layers = static_cast<unsigned>(shape.layers);
        if (spans_a_tile(shape, layout.tile) && layout.tail_level == levels) continue;
        if (layout.tail_level == levels) layout.tail_level = level;
        tail += shape.bytes / shape.layers;
    }
    layout.tail_bytes = in_tiles(tail);
    return layout;
}

// The tiles that one entry of the list is about.
CUresult tiles_of(const ArrayStorage& storage, const CUarrayMapInfo& info, std::vector<TileKey>& keys) {
    const Layout layout = layout_of(storage);
    if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        const auto& tail = info.subresource.miptail;
        if (tail.layer >= layout.layers || tail.size == 0 || tail.offset % kTileBytes != 0 ||
            tail.size % kTileBytes != 0 || tail.offset > layout.tail_bytes ||
            tail.size > layout.tail_bytes - tail.offset) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (std::uint64_t at = tail.offset; at < tail.offset + tail.size; at += kTileBytes) {
            keys.push_back({kMipTail, tail.layer, 0, 0, static_cast<unsigned>(at / kTileBytes)});
        }
        return CUDA_SUCCESS;
    }
    if (info.subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) return CUDA_ERROR_INVALID_VALUE;
    const auto& part = info.subresource.sparseLevel;
    if (part.level >= layout.tail_level || part.layer >= layout.layers) return CUDA_ERROR_INVALID_VALUE;
    ArrayShape shape;
    shape_of(level_of(storage.description, part.level), shape);
    // Whole tiles; the last one of a row may reach beyond the level's edge.
    struct Axis {
        std::uint64_t offset, extent, tile, size;
    };
    const Axis axes[] = {{part.offsetX, part.extentWidth, layout.tile.width, shape.width},
                         {part.offsetY, part.extentHeight, layout.tile.height, shape.height},
                         {part.offsetZ, part.extentDepth, layout.tile.depth, shape.depth}};
    for (const Axis& axis : axes) {
        const std::uint64_t end = (axis.size + axis.tile - 1) / axis.tile * axis.tile;
        if (axis.extent == 0 || axis.offset % axis.tile != 0 || axis.extent % axis.tile != 0 ||
            axis.offset + axis.extent > end) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    const auto from = [&](int i) { return static_cast<unsigned>(axes[i].offset / axes[i].tile); };
    const auto to = [&](int i) { return static_cast<unsigned>((axes[i].offset + axes[i].extent) / axes[i].tile); };
    for (unsigned z = from(2); z < to(2); ++z) {
        for (unsigned y = from(1); y < to(1); ++y) {
            for (unsigned x = from(0); x < to(0); ++x) keys.push_back({part.level, part.layer, z, y, x});
        }
    }
    return CUDA_SUCCESS;
}

// Entries of one list element, checked.
struct Operation {
    ArrayStorage* storage = nullptr;
    Handle* handle = nullptr;  // null: unmap
    std::uint64_t offset = 0;
    std::uint64_t tile_bytes = kTileBytes;
    std::vector<TileKey> keys;
};

CUresult check(const CUarrayMapInfo& info, int device, Operation& operation) {
    if (info.flags != 0 || info.reserved[0] != 0 || info.reserved[1] != 0) return CUDA_ERROR_INVALID_VALUE;
    if (info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) return CUDA_ERROR_INVALID_VALUE;
    if (info.deviceBitMask != 1U << static_cast<unsigned>(device)) return CUDA_ERROR_INVALID_VALUE;
    if (info.resourceType == CU_RESOURCE_TYPE_ARRAY) {
        const Array* array = find_array_locked(info.resource.array);
        if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (array->alias) return CUDA_ERROR_INVALID_VALUE;
        operation.storage = array->storage;
    } else if (info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        operation.storage = find_mipmap_locked(info.resource.mipmap);
        if (operation.storage == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (operation.storage->deferred()) {
        operation.keys.push_back({});
        operation.tile_bytes = in_tiles(operation.storage->bytes);
    } else if (!operation.storage->sparse()) {
        return CUDA_ERROR_INVALID_VALUE;
    } else if (const CUresult error = tiles_of(*operation.storage, info, operation.keys); error != CUDA_SUCCESS) {
        return error;
    }
    if (info.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
        return info.memHandle.memHandle == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (info.memOperationType != CU_MEM_OPERATION_TYPE_MAP) return CUDA_ERROR_INVALID_VALUE;
    operation.handle = find_handle_locked(info.memHandle.memHandle);
    if (operation.handle == nullptr || operation.handle->references == 0) return CUDA_ERROR_INVALID_HANDLE;
    const PhysicalMemory& memory = *operation.handle->memory;
    const std::uint64_t bytes = operation.keys.size() * operation.tile_bytes;
    if (memory.device != device || (memory.usage & CU_MEM_CREATE_USAGE_TILE_POOL) == 0 ||
        info.offset % kTileBytes != 0 || info.offset > memory.bytes || bytes > memory.bytes - info.offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    operation.offset = info.offset;
    return CUDA_SUCCESS;
}

// Ends the mappings at `keys`, with one ledger line for each handle.
void unmap(ArrayStorage& storage, const std::vector<TileKey>& keys) {
    std::map<Handle*, std::uint64_t> ended;
    for (const TileKey& key : keys) {
        const auto tile = storage.tiles.find(key);
        if (tile == storage.tiles.end()) continue;
        ended[tile->second.handle] += tile->second.bytes;
        --tile->second.handle->mappings;
        storage.tiles.erase(tile);
    }
    for (const auto& [handle, bytes] : ended) {
        ledger({"array_unmap", storage.object, bytes, 0, storage.device, free_now(storage.device), handle->value});
        settle_handle_locked(*handle);
    }
}

void apply(Operation& operation) {
    ArrayStorage& storage = *operation.storage;
    unmap(storage, operation.keys);  // cannot end the new handle: that has a reference
    if (operation.handle == nullptr) return;
    std::uint64_t offset = operation.offset;
    for (const TileKey& key : operation.keys) {
        storage.tiles[key] = {operation.handle, offset, operation.tile_bytes};
        ++operation.handle->mappings;
        offset += operation.tile_bytes;
    }
    ledger({"array_map", storage.object, offset - operation.offset, 0, storage.device, free_now(storage.device),
            operation.handle->value});
}

CUresult properties(CUDA_ARRAY_SPARSE_PROPERTIES* out, const ArrayStorage& storage) {
    if (!storage.sparse()) return CUDA_ERROR_INVALID_VALUE;
    const Layout layout = layout_of(storage);
    *out = {};
    out->tileExtent.width = layout.tile.width;
    out->tileExtent.height = layout.tile.height;
    out->tileExtent.depth = layout.tile.depth;
    if (storage.levels != 0) {
        out->miptailFirstLevel = layout.tail_bytes != 0 ? layout.tail_level : 0;
        out->miptailSize = layout.tail_bytes;
    } else if (layout.tail_bytes != 0) {
        // All of an array that does not span a tile is tail; its layers have tails of their own here.
        out->flags = layout.layers == 1 ? CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL : 0;
        out->miptailSize = layout.layers == 1 ? layout.tail_bytes : 0;
    }
    return CUDA_SUCCESS;
}

CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, const ArrayStorage& storage, CUdevice device) {
    if (!driver().device_ok(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!storage.deferred()) return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    out->size = in_tiles(storage.bytes);
    out->alignment = kTileBytes;
    return CUDA_SUCCESS;
}

}  // namespace

void unmap_all_tiles_locked(ArrayStorage& storage) {
    std::vector<TileKey> keys;
    for (const auto& [key, tile] : storage.tiles) keys.push_back(key);
    unmap(storage, keys);
}

namespace impl {

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties, CUarray array) {
    if (sparseProperties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Array* found = find_array_locked(array);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return found->alias ? CUDA_ERROR_INVALID_VALUE : properties(sparseProperties, *found->storage);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties,
                                             CUmipmappedArray mipmap) {
    if (sparseProperties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const ArrayStorage* storage = find_mipmap_locked(mipmap);
    return storage == nullptr ? CUDA_ERROR_INVALID_HANDLE : properties(sparseProperties, *storage);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements, CUarray array,
                                      CUdevice device) {
    if (memoryRequirements == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Array* found = find_array_locked(array);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return found->alias ? CUDA_ERROR_INVALID_VALUE : requirements(memoryRequirements, *found->storage, device);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device) {
    if (memoryRequirements == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const ArrayStorage* storage = find_mipmap_locked(mipmap);
    return storage == nullptr ? CUDA_ERROR_INVALID_HANDLE : requirements(memoryRequirements, *storage, device);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count, CUstream hStream) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (mapInfoList == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(hStream, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return capture_unsupported_locked(*stream);
    std::vector<Operation> operations(count);
    for (unsigned i = 0; i < count; ++i) {
        const CUresult error = check(mapInfoList[i], stream->context->device, operations[i]);
        if (error != CUDA_SUCCESS) return error;
    }
    for (Operation& operation : operations) apply(operation);
    ++stream->issued;
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
