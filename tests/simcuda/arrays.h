// CUDA arrays and chains of mip levels: memory without an address, charged in whole pages.
//
// A storage is what was created; arrays are ways to look at it: the whole, one mip level or one plane. Sparse and
// deferred storages own no pages: memory made by cuMemCreate is mapped into them tile by tile (sparse_arrays.cpp).
#pragma once

#include <array>

#include "array_layout.h"
#include "driver.h"

namespace fragscope::sim {

struct Handle;
struct ArrayStorage;

struct Array {
    ArrayStorage* storage = nullptr;
    bool alias = false;  // a level or a plane: ends with its storage
    CUDA_ARRAY3D_DESCRIPTOR description{};
    std::uint64_t offset = 0;  // of its first byte in the storage
    ArrayShape shape;          // without rows: all planes of a planar format, which cannot be copied at once
};

// Memory that one tile, or the whole of a deferred storage, lies in.
struct ArrayTile {
    Handle* handle = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};
// Level (kMipTail for the tail), layer, z, y, x; counted in tiles.
using TileKey = std::array<unsigned, 5>;
inline constexpr unsigned kMipTail = 0xffff'ffff;

struct ArrayStorage {
    Context* context = nullptr;
    int device = 0;
    CUDA_ARRAY3D_DESCRIPTOR description{};
    unsigned levels = 0;           // 0: an array and not a chain
    std::uint64_t bytes = 0;       // of all levels or planes
    std::uint64_t object = 0;      // the handle that the program has
    std::uint64_t external = 0;    // id of the imported memory that it lies in; 0: none
    std::vector<PageRun> pages;    // none when sparse, deferred or external
    Backing backing;
    Array whole;
    std::vector<std::unique_ptr<Array>> parts;  // levels or planes; null until asked for
    std::map<TileKey, ArrayTile> tiles;

    bool sparse() const { return (description.Flags & CUDA_ARRAY3D_SPARSE) != 0; }
    bool deferred() const { return (description.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0; }
};

Array* find_array_locked(CUarray handle);
ArrayStorage* find_mipmap_locked(CUmipmappedArray handle);
// A chain of `levels` (clamped) whose bytes lie in imported memory; charges nothing. Null when `bytes` is too few.
CUresult make_external_mipmap_locked(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels,
                                     std::uint64_t bytes, std::uint64_t external, CUmipmappedArray* handle);
void destroy_arrays_locked(Context& context);
// Ends what is mapped into the storage (sparse_arrays.cpp).
void unmap_all_tiles_locked(ArrayStorage& storage);

}  // namespace fragscope::sim
