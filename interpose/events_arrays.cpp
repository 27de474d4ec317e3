// Events of arrays: opaque layouts without an address, known by their handles.
#include <algorithm>

#include "interpose/call.h"
#include "interpose/hot.h"

namespace fragscope::interpose {

namespace {

// Bits that one element takes, all channels together; 0: not known. Of the block-compressed and most planar
// formats the headers do not say whether the descriptor counts texels or blocks of them.
std::uint64_t element_bits(CUarray_format format, unsigned channels) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return std::uint64_t{8} * channels;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return std::uint64_t{16} * channels;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return std::uint64_t{32} * channels;
        case CU_AD_FORMAT_UNORM_INT8X1:
        case CU_AD_FORMAT_SNORM_INT8X1:
            return 8;
        case CU_AD_FORMAT_UNORM_INT8X2:
        case CU_AD_FORMAT_SNORM_INT8X2:
        case CU_AD_FORMAT_UNORM_INT16X1:
        case CU_AD_FORMAT_SNORM_INT16X1:
            return 16;
        case CU_AD_FORMAT_UNORM_INT8X4:
        case CU_AD_FORMAT_SNORM_INT8X4:
        case CU_AD_FORMAT_UNORM_INT16X2:
        case CU_AD_FORMAT_SNORM_INT16X2:
        case CU_AD_FORMAT_UNORM_INT_101010_2:
            return 32;
        case CU_AD_FORMAT_UNORM_INT16X4:
        case CU_AD_FORMAT_SNORM_INT16X4:
            return 64;
        case CU_AD_FORMAT_NV12:
            return 12;
        default:
            return 0;
    }
}

// cuMipmappedArrayCreate: "clamped to the range [1, 1 + floor(log2(max(width, height, depth)))]".
unsigned clamp_levels(const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels) {
    const std::size_t depth = (wanted.Flags & CUDA_ARRAY3D_LAYERED) != 0 ? 0 : wanted.Depth;
    const std::size_t longest = std::max({wanted.Width, wanted.Height, depth, std::size_t{1}});
    unsigned most = 1;
    for (std::size_t side = longest; side > 1; side /= 2) ++most;
    return std::clamp(levels, 1u, most);
}

// Bytes of the elements of all levels; 0: not known, or more than 64 bits hold.
std::uint64_t texel_bytes(const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels) {
    const std::uint64_t bits = element_bits(wanted.Format, wanted.NumChannels);
    // Layers and the faces of a cube do not shrink from level to level.
    const bool layers = (wanted.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    std::uint64_t all = 0;
    for (unsigned level = 0; level < levels; ++level) {
        std::uint64_t some = bits;
        const std::size_t sides[] = {wanted.Width >> level, wanted.Height >> level,
                                     layers ? wanted.Depth : wanted.Depth >> level};
        for (const std::size_t side : sides)
            if (__builtin_mul_overflow(some, std::max(side, std::size_t{1}), &some)) return 0;
        if (__builtin_add_overflow(all, some / 8, &all)) return 0;
    }
    return all;
}

// What all descriptors have; of a missing one nothing.
template <typename Descriptor>
CUDA_ARRAY3D_DESCRIPTOR from_flat(const Descriptor* wanted) {
    CUDA_ARRAY3D_DESCRIPTOR flat{};
    if (wanted == nullptr) return flat;
    flat.Width = wanted->Width;
    flat.Height = wanted->Height;
    flat.Format = wanted->Format;
    flat.NumChannels = wanted->NumChannels;
    return flat;
}

}  // namespace

void Call::array_created_at(std::uint64_t array, const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels) {
    const Place at = place();
    record(Kind::kArrayCreated, at.context, texel_bytes(wanted, levels == 0 ? 1 : levels), array,
           wire::pack_array(wanted.Flags, levels));
}

void Call::array_created(const CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* wanted) {
    array_created_at(succeeded() && out != nullptr ? number_of(*out) : 0, from_flat(wanted), 0);
}

void Call::array_created(const CUarray* out, const CUDA_ARRAY_DESCRIPTOR* wanted) {
    array_created_at(succeeded() && out != nullptr ? number_of(*out) : 0, from_flat(wanted), 0);
}

void Call::array_created(const CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* wanted) {
    CUDA_ARRAY3D_DESCRIPTOR deep = from_flat(wanted);
    if (wanted != nullptr) {
        deep.Depth = wanted->Depth;
        deep.Flags = wanted->Flags;
    }
    array_created_at(succeeded() && out != nullptr ? number_of(*out) : 0, deep, 0);
}

void Call::array_created(const CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
    array_created_at(succeeded() && out != nullptr ? number_of(*out) : 0,
                     wanted != nullptr ? *wanted : CUDA_ARRAY3D_DESCRIPTOR{}, 0);
}

void Call::array_created(const CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted,
                         unsigned levels) {
    const CUDA_ARRAY3D_DESCRIPTOR description = wanted != nullptr ? *wanted : CUDA_ARRAY3D_DESCRIPTOR{};
    array_created_at(succeeded() && out != nullptr ? number_of(*out) : 0, description,
                     clamp_levels(description, levels));
}

void Call::array_aliased_at(std::uint64_t owner, std::uint64_t array) {
    unplaced_inline(Kind::kArrayAliased, owner, 0, array, 0);
}

void Call::array_mapped(const CUarrayMapInfo* parts, unsigned count, CUstream stream) {
    at_device(wire::kDeviceUnknown);
    mark_capture(stream);
    const std::size_t told = parts != nullptr ? parts_of(Kind::kArrayMapped, count) : 0;
    for (std::size_t i = 0; i < told; ++i) {
        const CUarrayMapInfo& part = parts[i];
        const std::uint64_t array = part.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
                                        ? number_of(part.resource.mipmap)
                                        : number_of(part.resource.array);
        const bool tail = part.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
        const bool maps = part.memOperationType == CU_MEM_OPERATION_TYPE_MAP;
        record_part(i, Kind::kArrayMapped, array, tail ? part.subresource.miptail.size : 0,
                    maps ? part.memHandle.memHandle : 0, number_of(stream));
    }
    if (told == 0) record(Kind::kArrayMapped, 0, 0, 0, number_of(stream));
}

}  // namespace fragscope::interpose
