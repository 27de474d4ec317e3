// What CUPTI said, as the report shows it.
#pragma once

#include <optional>
#include <string>

#include "analysis/activity.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// Nothing where CUPTI was not wanted in the process.
std::optional<report::ActivitySummary> activity_shown(const Trace& trace, ProcessIndex process,
                                                      const Activity& activity);

// What went past the recording, by CUPTI's word, or was lost by it: a sentence for each file that it came
// from.
std::vector<std::string> unseen_in_words(const Activity& activity);

}  // namespace fragscope::analysis
