// The largest request that each mechanism would have satisfied at the failure, as an interval with the
// evidence of each end. The lower end is what was witnessed to fit in that very state (a later success before
// anything was released), the upper end what is proven not to fit. Stitching draws on the same free bytes as
// direct backing: it joins addresses, and makes no physical extent larger.
#pragma once

#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis {

std::vector<report::Bound> bounds_of(const Situation& situation);

}  // namespace fragscope::analysis
