// Contexts for the other parts; driver.h declares the rest.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// The handle of the device's primary context, made when there is none yet, without retaining it.
CUcontext primary_handle_locked(int device);

}  // namespace fragscope::sim
