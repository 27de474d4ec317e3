// The arrays of one process: opaque layouts without an address, owned by a context. An array takes at least
// its texels' bytes; how much more, no call says. A sparse or deferred one takes nothing by itself: physical
// handles are mapped behind it. Mip levels, planes and arrays of other interfaces are second names without
// bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "analysis/event.h"
#include "analysis/physical_table.h"

namespace fragscope::analysis {

// CUDA_ARRAY3D_SPARSE and CUDA_ARRAY3D_DEFERRED_MAPPING of cuda.h: memory comes by cuMemMapArrayAsync only.
inline constexpr std::uint32_t kArraySparse = 0x40;
inline constexpr std::uint32_t kArrayDeferred = 0x80;

struct Array {
    std::uint64_t texel_bytes = 0;
    int device = kNoDevice;
    ObjectId context;
    std::uint32_t stack = 0;
    bool owns_memory = true;         // neither sparse nor deferred
    bool partly_unmapped = false;    // some of `behind` may not be there any more
    std::vector<PhysicalId> behind;  // each once
};

class Arrays {
  public:
    // Of a creation; an array of the same handle that was not released comes back.
    std::optional<Array> add(const Event& created);
    void alias(ObjectId alias, ObjectId owner) { aliases_[alias] = owner; }
    // The array, if it is one; second names of it go with it.
    std::optional<Array> take(ObjectId array);
    bool forget_alias(ObjectId alias) { return aliases_.erase(alias) != 0; }
    Array* find(ObjectId array_or_alias);
    // Every array of which `owned(array)` says yes.
    std::vector<Array> take_if(const std::function<bool(const Array&)>& owned);
    const std::unordered_map<ObjectId, Array>& all() const { return arrays_; }

  private:
    std::unordered_map<ObjectId, Array> arrays_;
    std::unordered_map<ObjectId, ObjectId> aliases_;
};

}  // namespace fragscope::analysis
