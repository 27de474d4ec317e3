// The largest request that each mechanism would have satisfied at the failure, as an interval with the
// evidence of each end. The lower end is what was witnessed to fit in that very state (a later success of the
// same mechanism before anything was released); nothing above the upper end fits, and the upper end itself
// may. Where the failed request bounds a mechanism, the upper end is one byte below it. Stitching draws on
// the same free bytes as direct backing: it joins addresses, and makes no physical extent larger.
#pragma once

#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis {

std::vector<report::Bound> bounds_of(const Situation& situation);

}  // namespace fragscope::analysis
