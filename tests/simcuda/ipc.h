// Legacy interprocess handles: memory of another process mapped into this one, which charges nothing here.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// Forgets a mapping of another process's block, however often it was opened: its context ends.
void ipc_unmap_locked(Region& region);

}  // namespace fragscope::sim
