// Eligibility domains at one moment, each measured by itself: physical memory, the process's addresses, each
// pool, each class and stream of a framework's segments. F = sum of what is usable of its free extents, L =
// the largest of them, external ratio = 1 - L/F: a diagnostic, no promise. Numbers of two domains never meet
// in one ratio.
#pragma once

#include <vector>

#include "analysis/situation.h"
#include "proto/measures.pb.h"

namespace fragscope::analysis {

// Those that have a row of their own in the message; a framework with many streams may have more.
inline constexpr std::size_t kAllocatorDomains = 256;

std::vector<report::Domain> domains_of(const Situation& situation);

// Whether VMM handles are held, or may be: then what is known of physical memory's payload is what was
// written.
bool holds_handles(const Situation& situation);
// What was written to VMM allocations, as far as that is known.
Quantity handles_written(const Situation& situation);

// "framework's allocator: large segments, stream 0x…"
std::string name_of(const FrameworkDomain& domain);

}  // namespace fragscope::analysis
