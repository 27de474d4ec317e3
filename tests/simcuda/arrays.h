// CUDA arrays: memory without an address, charged in whole pages.
#pragma once

#include "driver.h"

namespace fragscope::sim {

struct Array {
    Context* context = nullptr;
    int device = 0;
    CUDA_ARRAY3D_DESCRIPTOR description{};
    std::uint64_t row_bytes = 0;  // one row, without padding
    std::uint64_t bytes = 0;
    std::vector<PageRun> pages;
    Backing backing;
};

Array* find_array_locked(CUarray handle);
void destroy_arrays_locked(Context& context);

}  // namespace fragscope::sim
