// Host memory that the driver knows: pinned, registered and managed. It is real memory of this process; none of
// it is charged to a device.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// Ends pinned or managed memory, or a registration.
void host_free_locked(Region& region);

}  // namespace fragscope::sim
