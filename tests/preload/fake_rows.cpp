// The fake driver's functions that do nothing: one for each row of the shim, less those of fake_driver.cpp.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "fake_driver.h"

#define HOOK(symbol, parameters, arguments, numbered, event) \
    extern "C" __attribute__((weak)) CUresult CUDAAPI symbol parameters { return fake_outcome(#symbol); }
#include "interpose/hooks.def"
