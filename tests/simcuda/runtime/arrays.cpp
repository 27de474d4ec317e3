// CUDA arrays and mipmapped arrays: the runtime describes them by channel widths and extents, the driver by a
// format and a channel count.
#include "arrays.h"

using namespace fragscope::simrt;

namespace fragscope::simrt {
namespace {

struct Format {
    CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT8;
    unsigned channels = 0;  // 0: the description fits no format
    int bits = 0;
};

Format format_of(const cudaChannelFormatDesc& desc) {
    Format result;
    const int widths[] = {desc.x, desc.y, desc.z, desc.w};
    unsigned channels = 0;
    for (const int width : widths)
        if (width != 0) ++channels;
    if (channels != 1 && channels != 2 && channels != 4) return result;
    for (unsigned i = 0; i < channels; ++i)
        if (widths[i] != widths[0]) return result;
    const int bits = widths[0];
    switch (desc.f) {
        case cudaChannelFormatKindUnsigned:
            if (bits == 8)
                result.format = CU_AD_FORMAT_UNSIGNED_INT8;
            else if (bits == 16)
                result.format = CU_AD_FORMAT_UNSIGNED_INT16;
            else if (bits == 32)
                result.format = CU_AD_FORMAT_UNSIGNED_INT32;
            else
                return result;
            break;
        case cudaChannelFormatKindSigned:
            if (bits == 8)
                result.format = CU_AD_FORMAT_SIGNED_INT8;
            else if (bits == 16)
                result.format = CU_AD_FORMAT_SIGNED_INT16;
            else if (bits == 32)
                result.format = CU_AD_FORMAT_SIGNED_INT32;
            else
                return result;
            break;
        case cudaChannelFormatKindFloat:
            if (bits == 16)
                result.format = CU_AD_FORMAT_HALF;
            else if (bits == 32)
                result.format = CU_AD_FORMAT_FLOAT;
            else
                return result;
            break;
        default:
            return result;
    }
    result.channels = channels;
    result.bits = bits;
    return result;
}

// False for formats that this runtime cannot create either.
bool describe_format(CUarray_format format, unsigned channels, cudaChannelFormatDesc* desc) {
    int bits = 0;
    cudaChannelFormatKind kind = cudaChannelFormatKindUnsigned;
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
            bits = 8;
            break;
        case CU_AD_FORMAT_UNSIGNED_INT16:
            bits = 16;
            break;
        case CU_AD_FORMAT_UNSIGNED_INT32:
            bits = 32;
            break;
        case CU_AD_FORMAT_SIGNED_INT8:
            bits = 8;
            kind = cudaChannelFormatKindSigned;
            break;
        case CU_AD_FORMAT_SIGNED_INT16:
            bits = 16;
            kind = cudaChannelFormatKindSigned;
            break;
        case CU_AD_FORMAT_SIGNED_INT32:
            bits = 32;
            kind = cudaChannelFormatKindSigned;
            break;
        case CU_AD_FORMAT_HALF:
            bits = 16;
            kind = cudaChannelFormatKindFloat;
            break;
        case CU_AD_FORMAT_FLOAT:
            bits = 32;
            kind = cudaChannelFormatKindFloat;
            break;
        default:
            return false;
    }
    *desc = {bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 3 ? bits : 0, kind};
    return true;
}

}  // namespace

bool describe_array(const cudaChannelFormatDesc* desc, cudaExtent extent, unsigned flags,
                    CUDA_ARRAY3D_DESCRIPTOR* result) {
    if (desc == nullptr) return false;
    const Format format = format_of(*desc);
    if (format.channels == 0) return false;
    *result = {};
    result->Width = extent.width;
    result->Height = extent.height;
    result->Depth = extent.depth;
    result->Format = format.format;
    result->NumChannels = format.channels;
    result->Flags = flags;  // cudaArray* and CUDA_ARRAY3D_* flags have the same values
    return true;
}

cudaError_t array_element_bytes(cudaArray_const_t array, size_t* bytes) {
    cudaChannelFormatDesc desc = {};
    if (const cudaError_t error = cudaGetChannelDesc(&desc, array); error != cudaSuccess) return error;
    *bytes = static_cast<size_t>(desc.x + desc.y + desc.z + desc.w) / 8;
    return cudaSuccess;
}

}  // namespace fragscope::simrt

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) {
    return {x, y, z, w, f};
}

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, size_t width,
                            size_t height, unsigned int flags) {
    return cudaMalloc3DArray(array, desc, {width, height, 0}, flags);
}

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, cudaExtent extent,
                              unsigned int flags) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    if (array == nullptr || !describe_array(desc, extent, flags, &descriptor)) return record(cudaErrorInvalidValue);
    return call_in_context(&DriverTable::Array3DCreate, to_driver_array(array), &descriptor);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    if (array == nullptr) return cudaSuccess;
    return call_in_context(&DriverTable::ArrayDestroy, to_driver_array(array));
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* desc, cudaExtent* extent, unsigned int* flags,
                             cudaArray_t array) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    const cudaError_t error =
        call_in_context(&DriverTable::Array3DGetDescriptor, &descriptor, to_driver_array(array));
    if (error != cudaSuccess) return error;
    if (desc != nullptr && !describe_format(descriptor.Format, descriptor.NumChannels, desc))
        return record(cudaErrorNotSupported);
    if (extent != nullptr) *extent = {descriptor.Width, descriptor.Height, descriptor.Depth};
    if (flags != nullptr) *flags = descriptor.Flags;
    return cudaSuccess;
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* desc, cudaArray_const_t array) {
    if (desc == nullptr) return record(cudaErrorInvalidValue);
    return cudaArrayGetInfo(desc, nullptr, nullptr, const_cast<cudaArray_t>(array));
}

cudaError_t cudaArrayGetPlane(cudaArray_t* pPlaneArray, cudaArray_t hArray, unsigned int planeIdx) {
    return call_in_context(&DriverTable::ArrayGetPlane, to_driver_array(pPlaneArray), to_driver_array(hArray),
                           planeIdx);
}

cudaError_t cudaArrayGetMemoryRequirements(cudaArrayMemoryRequirements* memoryRequirements, cudaArray_t array,
                                           int device) {
    if (memoryRequirements == nullptr) return record(cudaErrorInvalidValue);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needed = {};
    const cudaError_t error = call_in_context(&DriverTable::ArrayGetMemoryRequirements, &needed,
                                              to_driver_array(array), static_cast<CUdevice>(device));
    if (error != cudaSuccess) return error;
    *memoryRequirements = {};
    memoryRequirements->size = needed.size;
    memoryRequirements->alignment = needed.alignment;
    return cudaSuccess;
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* mipmappedArray, const cudaChannelFormatDesc* desc,
                                     cudaExtent extent, unsigned int numLevels, unsigned int flags) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    if (mipmappedArray == nullptr || !describe_array(desc, extent, flags, &descriptor))
        return record(cudaErrorInvalidValue);
    return call_in_context(&DriverTable::MipmappedArrayCreate,
                           reinterpret_cast<CUmipmappedArray*>(mipmappedArray), &descriptor, numLevels);
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t mipmappedArray) {
    if (mipmappedArray == nullptr) return cudaSuccess;
    return call_in_context(&DriverTable::MipmappedArrayDestroy,
                           reinterpret_cast<CUmipmappedArray>(mipmappedArray));
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t* levelArray, cudaMipmappedArray_const_t mipmappedArray,
                                       unsigned int level) {
    auto* mipmap = const_cast<cudaMipmappedArray_t>(mipmappedArray);
    return call_in_context(&DriverTable::MipmappedArrayGetLevel, to_driver_array(levelArray),
                           reinterpret_cast<CUmipmappedArray>(mipmap), level);
}

cudaError_t cudaMipmappedArrayGetMemoryRequirements(cudaArrayMemoryRequirements* memoryRequirements,
                                                    cudaMipmappedArray_t mipmap, int device) {
    if (memoryRequirements == nullptr) return record(cudaErrorInvalidValue);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needed = {};
    const cudaError_t error =
        call_in_context(&DriverTable::MipmappedArrayGetMemoryRequirements, &needed,
                        reinterpret_cast<CUmipmappedArray>(mipmap), static_cast<CUdevice>(device));
    if (error != cudaSuccess) return error;
    *memoryRequirements = {};
    memoryRequirements->size = needed.size;
    memoryRequirements->alignment = needed.alignment;
    return cudaSuccess;
}

namespace fragscope::simrt {
namespace {

void copy_properties(const CUDA_ARRAY_SPARSE_PROPERTIES& from, cudaArraySparseProperties* to) {
    *to = {};
    to->tileExtent.width = from.tileExtent.width;
    to->tileExtent.height = from.tileExtent.height;
    to->tileExtent.depth = from.tileExtent.depth;
    to->miptailFirstLevel = from.miptailFirstLevel;
    to->miptailSize = from.miptailSize;
    to->flags = from.flags;
}

}  // namespace
}  // namespace fragscope::simrt

cudaError_t cudaArrayGetSparseProperties(cudaArraySparseProperties* sparseProperties, cudaArray_t array) {
    if (sparseProperties == nullptr) return record(cudaErrorInvalidValue);
    CUDA_ARRAY_SPARSE_PROPERTIES found = {};
    const cudaError_t error =
        call_in_context(&DriverTable::ArrayGetSparseProperties, &found, to_driver_array(array));
    if (error == cudaSuccess) copy_properties(found, sparseProperties);
    return error;
}

cudaError_t cudaMipmappedArrayGetSparseProperties(cudaArraySparseProperties* sparseProperties,
                                                  cudaMipmappedArray_t mipmap) {
    if (sparseProperties == nullptr) return record(cudaErrorInvalidValue);
    CUDA_ARRAY_SPARSE_PROPERTIES found = {};
    const cudaError_t error = call_in_context(&DriverTable::MipmappedArrayGetSparseProperties, &found,
                                              reinterpret_cast<CUmipmappedArray>(mipmap));
    if (error == cudaSuccess) copy_properties(found, sparseProperties);
    return error;
}
