// What the generated stubs call.
#include "state.h"

extern "C" cudaError_t fragscope_runtime_not_supported();

cudaError_t fragscope_runtime_not_supported() { return fragscope::simrt::record(cudaErrorNotSupported); }
