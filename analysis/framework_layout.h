// The extents of a framework's allocator that told of its segments itself (its snapshot), as one request may use them.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/framework.h"
#include "analysis/framework_at_failure.h"

namespace fragscope::analysis {

struct BlockRequest {
    std::uint64_t block = 0;  // rounded up as the allocator does
    bool large = true;        // from which class of segments
    std::optional<ObjectId> stream;
    std::uint32_t pool = 0;   // as SegmentFacts has it
};

// Of the device's segments of the request's class. What a new segment takes and what the block was before it was
// rounded follow PyTorch's public rules.
AllocatorLayout layout_at(const FrameworkState& books, int device, const BlockRequest& request);

}  // namespace fragscope::analysis
