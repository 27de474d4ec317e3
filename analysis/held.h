// What an imported profile says was alive when it was taken (trace::Held), as messages: by kind and device,
// with the places that hold most.
#pragma once

#include <string>
#include <vector>

#include "analysis/callers.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// The largest first.
std::vector<report::HeldAtMoment> held_in(const Trace& trace, const StackWords& words);

// What such a profile is good for where a failure is to be explained; empty: the trace holds no profile.
std::string held_instead_of_failure(const Trace& trace);

}  // namespace fragscope::analysis
