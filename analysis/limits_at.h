// The limits that the records of a trace show to stand against its failed request.
#pragma once

#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis {

// `situation`: all of it but its limits.
std::vector<Limit> limits_at(const Situation& situation);

}  // namespace fragscope::analysis
