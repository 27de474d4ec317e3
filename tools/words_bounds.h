// The largest request by each way of allocating, and what was tried in place, in words.
#pragma once

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

void put_bounds(Page& page, const report::Explanation& explanation);
void put_probes(Page& page, const report::Explanation& explanation);

}  // namespace fragscope::tools
