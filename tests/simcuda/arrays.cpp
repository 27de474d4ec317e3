// Making and ending arrays and chains of mip levels; their levels, planes and descriptors.
#include "arrays.h"

#include <algorithm>

#include "capture.h"
#include "external.h"

namespace fragscope::sim {
namespace {

struct Arrays {
    std::unordered_map<std::uint64_t, std::unique_ptr<ArrayStorage>> storages;  // by the program's handle
    std::unordered_map<CUarray, Array*> arrays;  // whole ones, levels and planes
};

Arrays& arrays() {
    static auto* const state = new Arrays;
    return *state;
}

std::uint64_t value(const void* object) { return reinterpret_cast<std::uint64_t>(object); }

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kLevelAlignment - 1) / kLevelAlignment * kLevelAlignment; }

// Descriptions of the parts one behind the other: the levels of a chain, the planes of a planar array.
std::vector<CUDA_ARRAY3D_DESCRIPTOR> parts_of(const ArrayStorage& storage) {
    if (storage.levels == 0) return planes_of(storage.description);
    std::vector<CUDA_ARRAY3D_DESCRIPTOR> parts;
    for (unsigned level = 0; level < storage.levels; ++level) parts.push_back(level_of(storage.description, level));
    return parts;
}

// Sizes and, for an array with one plane, the shape of the whole.
bool lay_out(ArrayStorage& storage) {
    const std::vector<CUDA_ARRAY3D_DESCRIPTOR> parts = parts_of(storage);
    storage.parts.resize(parts.size());
    if (parts.empty()) {
        if (!shape_of(storage.description, storage.whole.shape)) return false;
        storage.bytes = storage.whole.shape.bytes;
        return true;
    }
    for (const CUDA_ARRAY3D_DESCRIPTOR& part : parts) {
        ArrayShape shape;
        if (!shape_of(part, shape)) return false;
        storage.bytes = aligned(storage.bytes) + shape.bytes;
    }
    return true;
}

CUarray part_handle(ArrayStorage& storage, unsigned index) {
    std::unique_ptr<Array>& part = storage.parts[index];
    if (!part) {
        const std::vector<CUDA_ARRAY3D_DESCRIPTOR> parts = parts_of(storage);
        part = std::make_unique<Array>();
        part->storage = &storage;
        part->alias = true;
        part->description = parts[index];
        std::uint64_t offset = 0;
        for (unsigned before = 0; before <= index; ++before) {
            shape_of(parts[before], part->shape);
            part->offset = aligned(offset);
            offset = part->offset + part->shape.bytes;
        }
        arrays().arrays.emplace(reinterpret_cast<CUarray>(part.get()), part.get());
    }
    return reinterpret_cast<CUarray>(part.get());
}

CUresult create_locked(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels,
                       ArrayStorage*& created) {
    Driver& d = driver();
    auto storage = std::make_unique<ArrayStorage>();
    storage->context = &context;
    storage->device = context.device;
    storage->description = wanted;
    storage->levels = levels;
    if (!lay_out(*storage)) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t pages = storage->sparse() || storage->deferred() ? 0 : d.pages_for(storage->bytes);
    std::uint64_t free_after = d.physical.free_bytes_now(storage->device);
    if (pages != 0 && !take_pages_locked(storage->device, pages, d.settings.contiguity != Contiguity::None,
                                         storage->pages, free_after)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    created = storage.get();
    storage->object = levels == 0 ? value(&storage->whole) : value(storage.get());
    storage->whole.storage = storage.get();
    storage->whole.description = wanted;
    if (levels == 0) arrays().arrays.emplace(reinterpret_cast<CUarray>(&storage->whole), &storage->whole);
    ledger({levels == 0 ? "array_create" : "mipmap_create", storage->object, storage->bytes,
            static_cast<std::int64_t>(pages * d.settings.page_size), storage->device, free_after, levels});
    arrays().storages.emplace(created->object, std::move(storage));
    return CUDA_SUCCESS;
}

CUresult create(const CUDA_ARRAY3D_DESCRIPTOR* wanted, bool mipmapped, unsigned levels, Function function,
                ArrayStorage*& created) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_description(*wanted, mipmapped); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(function); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    return create_locked(*context, *wanted, mipmapped ? std::clamp(levels, 1U, most_levels(*wanted)) : 0, created);
}

// Without taking it out of the list.
void end_storage(ArrayStorage& storage) {
    Driver& d = driver();
    unmap_all_tiles_locked(storage);
    const std::int64_t charged = storage.pages.empty() ? 0
                                                       : static_cast<std::int64_t>(d.pages_for(storage.bytes) *
                                                                                   d.settings.page_size);
    const std::uint64_t free_after = d.physical.release(storage.device, storage.pages);
    arrays().arrays.erase(reinterpret_cast<CUarray>(&storage.whole));
    for (const std::unique_ptr<Array>& part : storage.parts) {
        arrays().arrays.erase(reinterpret_cast<CUarray>(part.get()));
    }
    ledger({storage.levels == 0 ? "array_destroy" : "mipmap_destroy", storage.object, storage.bytes, -charged,
            storage.device, free_after, storage.external});
    if (storage.external != 0) external_unmapped_locked(storage.external);
}

CUresult descriptor(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Array* array = find_array_locked(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *out = array->description;
    return CUDA_SUCCESS;
}

}  // namespace

Array* find_array_locked(CUarray handle) {
    const auto found = arrays().arrays.find(handle);
    return found == arrays().arrays.end() ? nullptr : found->second;
}

ArrayStorage* find_mipmap_locked(CUmipmappedArray handle) {
    const auto found = arrays().storages.find(value(handle));
    return found == arrays().storages.end() || found->second->levels == 0 ? nullptr : found->second.get();
}

CUresult make_external_mipmap_locked(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels,
                                     std::uint64_t bytes, std::uint64_t external, CUmipmappedArray* handle) {
    if (const CUresult error = check_description(description, true); error != CUDA_SUCCESS) return error;
    auto storage = std::make_unique<ArrayStorage>();
    storage->context = &context;
    storage->device = context.device;
    storage->description = description;
    storage->levels = std::clamp(levels, 1U, most_levels(description));
    storage->external = external;
    if (!lay_out(*storage) || storage->bytes > bytes) return CUDA_ERROR_INVALID_VALUE;
    storage->object = value(storage.get());
    *handle = reinterpret_cast<CUmipmappedArray>(storage.get());
    ledger({"mipmap_create", storage->object, storage->bytes, 0, storage->device,
            driver().physical.free_bytes_now(storage->device), external});
    arrays().storages.emplace(storage->object, std::move(storage));
    return CUDA_SUCCESS;
}

void destroy_arrays_locked(Context& context) {
    std::erase_if(arrays().storages, [&](const auto& each) {
        if (each.second->context != &context) return false;
        end_storage(*each.second);
        return true;
    });
}

namespace impl {

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
    ArrayStorage* created = nullptr;
    if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = create(pAllocateArray, false, 0, Function::cuArray3DCreate_v2, created);
    if (result == CUDA_SUCCESS) *pHandle = reinterpret_cast<CUarray>(&created->whole);
    return result;
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
    if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = pAllocateArray->Width;
    description.Height = pAllocateArray->Height;
    description.Format = pAllocateArray->Format;
    description.NumChannels = pAllocateArray->NumChannels;
    ArrayStorage* created = nullptr;
    const CUresult result = create(&description, false, 0, Function::cuArrayCreate_v2, created);
    if (result == CUDA_SUCCESS) *pHandle = reinterpret_cast<CUarray>(&created->whole);
    return result;
}

CUresult cuArrayDestroy(CUarray hArray) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuArrayDestroy); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Array* array = find_array_locked(hArray);
    if (array == nullptr || array->alias) return CUDA_ERROR_INVALID_HANDLE;
    const std::uint64_t object = array->storage->object;
    end_storage(*array->storage);
    arrays().storages.erase(object);
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
    ArrayStorage* created = nullptr;
    if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = create(pMipmappedArrayDesc, true, numMipmapLevels, Function::cuMipmappedArrayCreate,
                                   created);
    if (result == CUDA_SUCCESS) *pHandle = reinterpret_cast<CUmipmappedArray>(created);
    return result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (const CUresult error = check_unsafe(Function::cuMipmappedArrayDestroy); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    ArrayStorage* storage = find_mipmap_locked(hMipmappedArray);
    if (storage == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    end_storage(*storage);
    arrays().storages.erase(value(hMipmappedArray));
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    ArrayStorage* storage = find_mipmap_locked(hMipmappedArray);
    if (storage == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (level >= storage->levels) return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = part_handle(*storage, level);
    return CUDA_SUCCESS;
}

CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (pPlaneArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Array* array = find_array_locked(hArray);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (array->alias || planeIdx >= array->storage->parts.size()) return CUDA_ERROR_INVALID_VALUE;
    *pPlaneArray = part_handle(*array->storage, planeIdx);
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
    return descriptor(pArrayDescriptor, hArray);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = descriptor(&description, hArray);
    if (result != CUDA_SUCCESS) return result;
    *pArrayDescriptor = {description.Width, description.Height, description.Format, description.NumChannels};
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
