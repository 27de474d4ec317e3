// The report's section on what CUPTI said; nothing where it was not wanted.
#pragma once

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

void put_activities(Page& page, const report::Report& report);

}  // namespace fragscope::tools
