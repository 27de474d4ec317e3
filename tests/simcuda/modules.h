// The device memory of modules and libraries: code and variables.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// Modules of the context end, libraries give up what they have in it.
void destroy_modules_locked(Context& context);

}  // namespace fragscope::sim
