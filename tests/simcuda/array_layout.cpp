#include "array_layout.h"

#include <algorithm>
#include <bit>

namespace fragscope::sim {
namespace {

struct Format {
    unsigned bytes = 0;     // of one element of one channel, or of one block; 0: not a format of one plane
    unsigned block = 1;     // elements along a side of a block
    unsigned channels = 0;  // 0: any of 1, 2, 4
};

Format format_of(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8: return {1};
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF: return {2};
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT: return {4};
        case CU_AD_FORMAT_UNORM_INT8X1:
        case CU_AD_FORMAT_SNORM_INT8X1: return {1, 1, 1};
        case CU_AD_FORMAT_UNORM_INT8X2:
        case CU_AD_FORMAT_SNORM_INT8X2: return {1, 1, 2};
        case CU_AD_FORMAT_UNORM_INT8X4:
        case CU_AD_FORMAT_SNORM_INT8X4: return {1, 1, 4};
        case CU_AD_FORMAT_UNORM_INT16X1:
        case CU_AD_FORMAT_SNORM_INT16X1: return {2, 1, 1};
        case CU_AD_FORMAT_UNORM_INT16X2:
        case CU_AD_FORMAT_SNORM_INT16X2: return {2, 1, 2};
        case CU_AD_FORMAT_UNORM_INT16X4:
        case CU_AD_FORMAT_SNORM_INT16X4: return {2, 1, 4};
        case CU_AD_FORMAT_UNORM_INT_101010_2: return {1, 1, 4};
        // Blocks of 4 by 4 elements: 8 bytes for BC1 and BC4, 16 for the others.
        case CU_AD_FORMAT_BC1_UNORM:
        case CU_AD_FORMAT_BC1_UNORM_SRGB: return {8, 4, 4};
        case CU_AD_FORMAT_BC4_UNORM:
        case CU_AD_FORMAT_BC4_SNORM: return {8, 4, 1};
        case CU_AD_FORMAT_BC2_UNORM:
        case CU_AD_FORMAT_BC2_UNORM_SRGB:
        case CU_AD_FORMAT_BC3_UNORM:
        case CU_AD_FORMAT_BC3_UNORM_SRGB:
        case CU_AD_FORMAT_BC7_UNORM:
        case CU_AD_FORMAT_BC7_UNORM_SRGB: return {16, 4, 4};
        case CU_AD_FORMAT_BC5_UNORM:
        case CU_AD_FORMAT_BC5_SNORM: return {16, 4, 2};
        case CU_AD_FORMAT_BC6H_UF16:
        case CU_AD_FORMAT_BC6H_SF16: return {16, 4, 3};
        default: return {};
    }
}

// A planar format: luma, then either one plane of interleaved chroma or two planes.
struct Planar {
    CUarray_format plane = CU_AD_FORMAT_MAX;  // of each plane's channels; MAX: not planar
    unsigned divide_width = 1, divide_height = 1;  // of the chroma
    unsigned chroma_planes = 1;
};

Planar planar_of(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_NV12: return {CU_AD_FORMAT_UNSIGNED_INT8, 2, 2, 1};
        case CU_AD_FORMAT_P010:
        case CU_AD_FORMAT_P016: return {CU_AD_FORMAT_UNSIGNED_INT16, 2, 2, 1};
        case CU_AD_FORMAT_NV16: return {CU_AD_FORMAT_UNSIGNED_INT8, 2, 1, 1};
        case CU_AD_FORMAT_P210:
        case CU_AD_FORMAT_P216: return {CU_AD_FORMAT_UNSIGNED_INT16, 2, 1, 1};
        case CU_AD_FORMAT_YUV444_8bit_SemiPlanar: return {CU_AD_FORMAT_UNSIGNED_INT8, 1, 1, 1};
        case CU_AD_FORMAT_YUV444_16bit_SemiPlanar: return {CU_AD_FORMAT_UNSIGNED_INT16, 1, 1, 1};
        case CU_AD_FORMAT_Y444_PLANAR8: return {CU_AD_FORMAT_UNSIGNED_INT8, 1, 1, 2};
        case CU_AD_FORMAT_Y444_PLANAR10: return {CU_AD_FORMAT_UNSIGNED_INT16, 1, 1, 2};
        default: return {};
    }
}

bool flag(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned bit) { return (d.Flags & bit) != 0; }

// The limits are those of compute capability 9.0 in the CUDA programming guide's table of technical
// specifications; devices.cpp tells them as attributes.
bool within_limits(const CUDA_ARRAY3D_DESCRIPTOR& d) {
    const bool layered = flag(d, CUDA_ARRAY3D_LAYERED);
    if (flag(d, CUDA_ARRAY3D_CUBEMAP)) {
        const bool count = layered ? d.Depth != 0 && d.Depth % 6 == 0 && d.Depth <= 2046 : d.Depth == 6;
        return d.Width == d.Height && d.Width <= 32768 && count;
    }
    if (layered) return d.Depth != 0 && d.Depth <= 2048 && d.Width <= 32768 && d.Height <= 32768;
    if (d.Depth != 0) return d.Height != 0 && d.Width <= 16384 && d.Height <= 16384 && d.Depth <= 16384;
    if (d.Height != 0 && flag(d, CUDA_ARRAY3D_TEXTURE_GATHER)) return d.Width <= 32768 && d.Height <= 32768;
    return d.Width <= 131072 && d.Height <= 65536;
}

}  // namespace

bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR& d) { return flag(d, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP); }

CUresult check_description(const CUDA_ARRAY3D_DESCRIPTOR& d, bool mipmapped) {
    constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE |
                                CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                                CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
    if (d.Width == 0 || (d.Flags & ~kKnown) != 0 || !within_limits(d)) return CUDA_ERROR_INVALID_VALUE;
    const bool sparse = flag(d, CUDA_ARRAY3D_SPARSE);
    if (sparse && flag(d, CUDA_ARRAY3D_DEFERRED_MAPPING)) return CUDA_ERROR_INVALID_VALUE;
    // "The CUDA array must be either a 2D, 2D layered or 3D CUDA array" (cuMemMapArrayAsync).
    if (sparse && d.Height == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const Planar planar = planar_of(d.Format); planar.plane != CU_AD_FORMAT_MAX) {
        if (mipmapped || sparse || d.NumChannels != 3 || d.Height == 0 || (d.Depth != 0 && !is_layered(d))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return d.Width % planar.divide_width == 0 && d.Height % planar.divide_height == 0 ? CUDA_SUCCESS
                                                                                         : CUDA_ERROR_INVALID_VALUE;
    }
    const Format format = format_of(d.Format);
    if (format.bytes == 0) {
        const bool packed = d.Format >= CU_AD_FORMAT_YUY2 && d.Format <= CU_AD_FORMAT_Y416;
        return packed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    if (format.channels != 0) return d.NumChannels == format.channels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    const bool channels = d.NumChannels == 1 || d.NumChannels == 2 || d.NumChannels == 4;
    return channels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::vector<CUDA_ARRAY3D_DESCRIPTOR> planes_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
    const Planar planar = planar_of(d.Format);
    if (planar.plane == CU_AD_FORMAT_MAX) return {};
    CUDA_ARRAY3D_DESCRIPTOR luma = d;
    luma.Format = planar.plane;
    luma.NumChannels = 1;
    CUDA_ARRAY3D_DESCRIPTOR chroma = luma;
    chroma.Width /= planar.divide_width;
    chroma.Height /= planar.divide_height;
    chroma.NumChannels = planar.chroma_planes == 1 ? 2 : 1;
    std::vector<CUDA_ARRAY3D_DESCRIPTOR> planes{luma};
    planes.insert(planes.end(), planar.chroma_planes, chroma);
    return planes;
}

unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR& d) {
    const std::uint64_t longest = std::max<std::uint64_t>({d.Width, d.Height, is_layered(d) ? 1 : d.Depth});
    return static_cast<unsigned>(std::bit_width(longest));
}

CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned level) {
    // An extent of 0 says that the array does not have that dimension.
    const auto smaller = [&](std::size_t extent) {
        return extent == 0 ? extent : std::max<std::size_t>(extent >> level, 1);
    };
    CUDA_ARRAY3D_DESCRIPTOR made = d;
    made.Width = smaller(d.Width);
    made.Height = smaller(d.Height);
    if (!is_layered(d)) made.Depth = smaller(d.Depth);
    return made;
}

bool shape_of(const CUDA_ARRAY3D_DESCRIPTOR& d, ArrayShape& shape) {
    const Format format = format_of(d.Format);
    shape.width = d.Width;
    shape.height = std::max<std::uint64_t>(d.Height, 1);
    shape.depth = is_layered(d) ? 1 : std::max<std::uint64_t>(d.Depth, 1);
    shape.layers = is_layered(d) ? d.Depth : 1;
    const unsigned unit = format.block == 1 ? format.bytes * d.NumChannels : format.bytes;
    shape.row_bytes = (shape.width + format.block - 1) / format.block * unit;
    shape.rows = (shape.height + format.block - 1) / format.block;
    return !__builtin_mul_overflow(shape.row_bytes, shape.rows, &shape.bytes) &&
           !__builtin_mul_overflow(shape.bytes, shape.depth * shape.layers, &shape.bytes) &&
           shape.bytes <= static_cast<std::uint64_t>(INT64_MAX) - kTileBytes;
}

TileExtent tile_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
    const Format format = format_of(d.Format);
    const unsigned unit = format.block == 1 ? format.bytes * d.NumChannels : format.bytes;
    const bool solid = d.Depth != 0 && !is_layered(d);
    TileExtent tile{};
    switch (unit) {
        case 1: tile = solid ? TileExtent{64, 32, 32} : TileExtent{256, 256, 1}; break;
        case 2: tile = solid ? TileExtent{32, 32, 32} : TileExtent{256, 128, 1}; break;
        case 4: tile = solid ? TileExtent{32, 32, 16} : TileExtent{128, 128, 1}; break;
        case 8: tile = solid ? TileExtent{32, 16, 16} : TileExtent{128, 64, 1}; break;
        default: tile = solid ? TileExtent{16, 16, 16} : TileExtent{64, 64, 1}; break;
    }
    tile.width *= format.block;
    tile.height *= format.block;
    return tile;
}

}  // namespace fragscope::sim
