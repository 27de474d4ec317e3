// The free extents of the segments that a scenario states, as one request of the allocator may use them.
#pragma once

#include <vector>

#include "analysis/framework_at_failure.h"
#include "analysis/scenario.h"

namespace fragscope::analysis {

// `bytes` rounded up to whole units at both ends; `unit` 0: not rounded.
Interval rounded_up(const Interval& bytes, std::uint64_t unit);
// a - b, never below zero; an end that is not known on either side is not known.
Interval less(const Interval& a, const Interval& b);

AllocatorLayout layout_of(const std::vector<ScenarioSegment>& segments, const ScenarioRequest& request,
                          std::uint64_t granularity);
// What the segments hold, whoever asks; exact books where everything in them is.
FrameworkAtFailure framework_of(const Scenario& scenario, const Scope& physical);

}  // namespace fragscope::analysis
