// What was read of a file that tells of failures and of no events, in words.
#pragma once

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

void put_states(Page& page, const report::Report& report);

}  // namespace fragscope::tools
