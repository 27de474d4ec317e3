// What is missing from a trace and so weakens what is concluded from it.
#pragma once

#include <string>
#include <vector>

#include "analysis/activity.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

report::Health health_of(const Trace& trace);
// What cannot be seen in this process by its nature or its recording, one sentence each.
std::vector<std::string> blind_spots_of(const Trace& trace, ProcessIndex process, const Activity& activity);

}  // namespace fragscope::analysis
