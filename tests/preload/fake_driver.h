// What tests ask the fake driver beside the CUDA API.
#pragma once

#include <cuda.h>

#include <cstdint>

extern "C" {
// Counts a call; what the settings say of its outcome.
CUresult fake_outcome(const char* function);
// From now on every call has this outcome.
void fake_fail_all(CUresult result);
int fake_unsafe_calls();
std::uint64_t fake_calls();
void fake_set_current(CUcontext context);
}
