// The comparison of ways of backing memory, in words.
#pragma once

#include "proto/mechanisms.pb.h"
#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// Nothing is written where the comparison was never filled in.
void put_mechanisms(Page& page, const report::Explanation& explanation);
void put_mechanisms(Page& page, const report::Report& report);

}  // namespace fragscope::tools
