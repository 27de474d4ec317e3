// Memory that another interface owns, imported by descriptor: its bytes are not charged here.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// A buffer or mipmapped array on the imported memory with this id is gone.
void external_unmapped_locked(std::uint64_t id);
// cuMemFree of a mapped buffer, or the end of its context.
void external_free_locked(Region& region);

}  // namespace fragscope::sim
