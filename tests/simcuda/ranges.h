// Descriptors of address ranges (dma-buf): each keeps the memory of its range until its last copy is closed.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// Whether a descriptor keeps the pages of a linear region. When the region is dropped they go to it.
bool range_held_locked(const Region& region);
void keep_pages_locked(Region& region);
// Notices descriptors that were closed everywhere, which may free memory.
void poll_ranges_locked();

}  // namespace fragscope::sim
