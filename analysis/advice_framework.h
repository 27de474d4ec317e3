// What to do about memory that a framework's own allocator holds on to.
#pragma once

#include <string>
#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis {

// Empty where the verdict has nothing to do with the framework's allocator. Settings are PyTorch's.
std::vector<std::string> framework_actions(const Situation& situation, const report::Verdict& verdict);
// What its books cannot tell.
std::vector<std::string> framework_not_known(const Situation& situation);

}  // namespace fragscope::analysis
