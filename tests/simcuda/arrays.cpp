// cuArrayCreate, cuArray3DCreate, cuArrayDestroy and the descriptor queries.
//
// The real layout is tiled and opaque; here an array is its elements row by row, and costs whole pages.
#include "arrays.h"

#include <algorithm>

#include "capture.h"

namespace fragscope::sim {
namespace {

std::unordered_map<CUarray, std::unique_ptr<Array>>& arrays() {
    static auto* const state = new std::unordered_map<CUarray, std::unique_ptr<Array>>;
    return *state;
}

unsigned format_bytes(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8: return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF: return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT: return 4;
        default: return 0;
    }
}

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& wanted, Function function) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    const unsigned element = format_bytes(wanted.Format) * wanted.NumChannels;
    const bool channels = wanted.NumChannels == 1 || wanted.NumChannels == 2 || wanted.NumChannels == 4;
    if (handle == nullptr || element == 0 || !channels || wanted.Width == 0) return CUDA_ERROR_INVALID_VALUE;
    // Sparse and deferred arrays own no memory until it is mapped into them, which this driver cannot do.
    if ((wanted.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (const CUresult error = check_unsafe(function); error != CUDA_SUCCESS) return error;
    const std::uint64_t height = std::max<std::uint64_t>(wanted.Height, 1);
    const std::uint64_t depth = std::max<std::uint64_t>(wanted.Depth, 1);
    std::uint64_t row = 0, bytes = 0;
    if (__builtin_mul_overflow(std::uint64_t{wanted.Width}, std::uint64_t{element}, &row) ||
        __builtin_mul_overflow(row, height, &bytes) || __builtin_mul_overflow(bytes, depth, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Driver& d = driver();
    Locked guard(d.lock);
    auto array = std::make_unique<Array>();
    array->context = context;
    array->device = context->device;
    array->description = wanted;
    array->row_bytes = row;
    array->bytes = bytes;
    std::uint64_t free_after = 0;
    if (!take_pages_locked(array->device, d.pages_for(bytes), d.settings.contiguity != Contiguity::None,
                             array->pages, free_after)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = reinterpret_cast<CUarray>(array.get());
    ledger({"array_create", reinterpret_cast<std::uint64_t>(array.get()), bytes,
            static_cast<std::int64_t>(d.pages_for(bytes) * d.settings.page_size), array->device, free_after});
    arrays().emplace(*handle, std::move(array));
    return CUDA_SUCCESS;
}

void end_array(const Array& array) {
    Driver& d = driver();
    const std::uint64_t free_after = d.physical.release(array.device, array.pages);
    ledger({"array_destroy", reinterpret_cast<std::uint64_t>(&array), array.bytes,
            -static_cast<std::int64_t>(d.pages_for(array.bytes) * d.settings.page_size), array.device, free_after});
}

}  // namespace

Array* find_array_locked(CUarray handle) {
    const auto found = arrays().find(handle);
    return found == arrays().end() ? nullptr : found->second.get();
}

void destroy_arrays_locked(Context& context) {
    std::erase_if(arrays(), [&](const auto& each) {
        if (each.second->context != &context) return false;
        end_array(*each.second);
        return true;
    });
}

namespace impl {

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
    if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = pAllocateArray->Width;
    description.Height = pAllocateArray->Height;
    description.Format = pAllocateArray->Format;
    description.NumChannels = pAllocateArray->NumChannels;
    return create(pHandle, description, Function::cuArrayCreate_v2);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
    if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return create(pHandle, *pAllocateArray, Function::cuArray3DCreate_v2);
}

CUresult cuArrayDestroy(CUarray hArray) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    const Array* array = find_array_locked(hArray);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    end_array(*array);
    arrays().erase(hArray);
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
    if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    const Array* array = find_array_locked(hArray);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *pArrayDescriptor = array->description;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = impl::cuArray3DGetDescriptor_v2(&description, hArray);
    if (result != CUDA_SUCCESS) return result;
    *pArrayDescriptor = {description.Width, description.Height, description.Format, description.NumChannels};
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
