// What to do about limits other than the amount of memory, and about memory that others keep.
#pragma once

#include <string>
#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis {

// Empty: there is nothing of that kind to say.
std::vector<std::string> limit_actions(const Situation& situation, const report::Verdict& verdict);

}  // namespace fragscope::analysis
