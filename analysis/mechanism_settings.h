// The setting or call that applies a way of backing memory in the software that the trace shows, with what it
// costs or breaks. Nothing is named for software that was not seen, and nothing here is a recommendation.
#pragma once

#include <vector>

#include "analysis/mechanism_ways.h"
#include "proto/mechanisms.pb.h"

namespace fragscope::analysis {

std::vector<report::Setting> settings_of(const Situation& situation, const Way& way);

}  // namespace fragscope::analysis
