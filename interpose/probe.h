// Probes (--probe-on-oom): after an allocation failed, the largest one that the driver still grants by each
// mechanism, found by trying and undoing. What this costs, and what of it can be noticed, is in README.md
// beside this file.
#pragma once

#include <cstdint>

#include "interpose/ask.h"

namespace fragscope::interpose {

// After the snapshot of the failed call number `sequence`, while the driver may be asked.
void probe(Questions& questions, Place place, std::uint64_t sequence);
// A jump has left probes: what they held is not given back, and nothing is probed any more.
void probe_left();

}  // namespace fragscope::interpose
