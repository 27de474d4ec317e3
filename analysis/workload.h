// The ways of backing what a run allocated most: for each process and device, its requests of the sizes for
// which most bytes were asked for. A comparison for a whole run, at no moment: nothing in it says what was
// there to be had.
#pragma once

#include <cstddef>
#include <vector>

#include "analysis/trace.h"
#include "proto/mechanisms.pb.h"

namespace fragscope::analysis {

inline constexpr std::size_t kSizesCompared = 3;  // of each process and device

std::vector<report::Comparison> workload_mechanisms(const Trace& trace);

}  // namespace fragscope::analysis
