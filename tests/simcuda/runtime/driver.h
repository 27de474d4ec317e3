// The driver as this runtime sees it: a table of typed function pointers, filled once per process.
// The way to the driver is the one that NVIDIA's runtime 13.0 takes: dlopen("libcuda.so.1", RTLD_NOW), dlsym
// of cuGetProcAddress_v2 and of nothing else, then that function for everything, itself included. Tracers
// depend on this way, so it is part of what the stand-in has to reproduce.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <driver_types.h>

namespace fragscope::simrt {

// NVIDIA's runtime asks for these two by their old version and gets the unsuffixed symbols. cudaTypedefs.h
// keeps the old types to itself; they are the same as the new ones.
using PFN_cuDevicePrimaryCtxRelease_v7000 = PFN_cuDevicePrimaryCtxRelease_v11000;
using PFN_cuDevicePrimaryCtxReset_v7000 = PFN_cuDevicePrimaryCtxReset_v11000;

// Functions of which the driver has two versions: entry 0 uses the legacy default stream for a null stream
// handle, entry 1 the calling thread's own.
struct StreamFunctions {
#define FN(name, version)
#define STREAM(name, version, per_thread_version) PFN_cu##name##_v##version name;
#include "driver_functions.def"
#undef FN
#undef STREAM
};

// A null pointer means that the driver does not have the function.
struct DriverTable {
    PFN_cuGetProcAddress_v12000 GetProcAddress;
#define FN(name, version) PFN_cu##name##_v##version name;
#define STREAM(name, version, per_thread_version)
#include "driver_functions.def"
#undef FN
#undef STREAM
    StreamFunctions stream[2];
};

// Finds and initialises the driver on the first call of the process. Returns cudaErrorInsufficientDriver when
// there is no driver or it is older than this runtime, otherwise what cuInit answered. The answer stays the
// same for the life of the process.
cudaError_t load_driver();

// The table; all its entries are null until load_driver() has found a driver.
const DriverTable& driver();

}  // namespace fragscope::simrt
