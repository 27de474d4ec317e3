// How the elements of a CUDA array lie in memory: sizes by format, mip levels, planes, sparse tiles.
//
// The real layout is tiled and opaque. Here every level and plane is its elements row by row, so that the sizes
// are the least that any layout could need. Not locked; no state.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace fragscope::sim {

// One mip level of one plane.
struct ArrayShape {
    std::uint64_t width = 0;   // elements
    std::uint64_t height = 0;  // elements; 1 for a 1D array
    std::uint64_t depth = 0;   // elements, or 1 where `layers` count
    std::uint64_t layers = 0;  // of a layered array or cubemap, otherwise 1
    std::uint64_t row_bytes = 0;  // bytes of one row of elements, or of blocks where the format is compressed
    std::uint64_t rows = 0;       // such rows in one slice
    std::uint64_t bytes = 0;      // of all slices
};

// A sparse tile is 64 KiB. Its extent is that of the standard sparse block shapes of the graphics interfaces.
inline constexpr std::uint64_t kTileBytes = 64 << 10;
struct TileExtent {
    unsigned width, height, depth;
};

// Levels and planes begin at multiples of this many bytes.
inline constexpr std::uint64_t kLevelAlignment = 512;

bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR& description);
// CUDA_SUCCESS when the driver can make such an array (or chain, when `mipmapped`); cuda.h says what is valid. The
// packed YUV formats are not supported.
CUresult check_description(const CUDA_ARRAY3D_DESCRIPTOR& description, bool mipmapped);

// The following expect a description that was checked.

// Planes as arrays of their own; empty when the format has one plane only.
std::vector<CUDA_ARRAY3D_DESCRIPTOR> planes_of(const CUDA_ARRAY3D_DESCRIPTOR& description);
// Mip levels there can be: 1 + floor(log2(longest side)).
unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR& description);
CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned level);
// Of a description with one plane. False when the size does not fit in 63 bits.
bool shape_of(const CUDA_ARRAY3D_DESCRIPTOR& description, ArrayShape& shape);
// Of a 2D or 3D array.
TileExtent tile_of(const CUDA_ARRAY3D_DESCRIPTOR& description);

}  // namespace fragscope::sim
