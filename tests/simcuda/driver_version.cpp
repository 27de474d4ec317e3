// The version that a build of the simulated driver claims when no setting says otherwise. Older builds of the
// same objects (driver-*/) are compiled with another SIMCUDA_DRIVER_VERSION and export fewer functions.
#include "settings.h"

namespace fragscope::sim {
const int kDefaultDriverVersion = SIMCUDA_DRIVER_VERSION;
}
