// What to do about a failure, most useful first, and what is not known, each with what would tell. For a
// person; every number stands with what it counts.
#pragma once

#include <string>
#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

std::vector<std::string> actions_for(const Situation& situation, const std::vector<Counterfactual>& rows,
                                     const report::Verdict& verdict);
std::vector<std::string> not_known_in(const Situation& situation);

}  // namespace fragscope::analysis
