// One domain of a process at a moment in words: its free extents by kind, and what lies between them.
#pragma once

#include "proto/state.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

void put_domain(Page& page, const report::DomainExtents& domain);

}  // namespace fragscope::tools
