// Fragmentation in words: the domains of one moment, what is charged and holds nothing, the definitions that others
// use, and all of it over time.
#pragma once

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// Nothing where the explanation has no domain.
void put_domains(Page& page, const report::Explanation& explanation);
// Internal fragmentation by allocator, size class and call site, and the other definitions.
void put_measures(Page& page, const report::Measures& measures);

}  // namespace fragscope::tools
