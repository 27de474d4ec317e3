// Calls of CUDA's two interfaces by their names in Nsight's tables: what a failed one asked for.
#pragma once

#include <string_view>

#include "proto/wire.h"

namespace fragscope::analysis {

// "cudaMalloc_v3020" and "cudaMallocAsync_ptsz_v11020" as the headers name them: "cudaMalloc",
// "cudaMallocAsync". A driver function keeps its version, which is part of its name ("cuMemAlloc_v2").
std::string_view nsight_function(std::string_view name);

// The kind of memory that a function of this name takes; kNone: it takes none, or is not known here.
wire::Kind taken_by(std::string_view function);

}  // namespace fragscope::analysis
