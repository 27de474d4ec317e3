// What the driver's management library (NVML) said, in words: beside the driver's own numbers, never together
// with them.
#pragma once

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// A section of the report; nothing where the library was not to be asked.
void put_management(Page& page, const report::Report& report);
// A section of an explanation: the reading nearest in time.
void put_management(Page& page, const report::Explanation& explanation);

}  // namespace fragscope::tools
