// JAX's device memory profile (jax.profiler.save_device_memory_profile). See jax_profile.cpp.
#pragma once

#include "analysis/read/importer.h"

namespace fragscope::analysis {

inline constexpr std::size_t kMaxJaxProfileBytes = std::size_t{1} << 28;  // decompressed
inline constexpr std::size_t kMaxJaxPlaces = 32768;  // kinds, devices and call stacks that differ

extern const Importer kJaxProfile;

}  // namespace fragscope::analysis
