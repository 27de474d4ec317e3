// Fragmentation in words: the domains of one moment, what is charged and holds nothing, the definitions that
// others use, and all of it over time.
#pragma once

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// Nothing where the explanation has no domain.
void put_domains(Page& page, const report::Explanation& explanation);
// Internal fragmentation by allocator, size class and call site, and the other definitions.
void put_measures(Page& page, const report::Measures& measures);
// Frameworks' allocators and domains over time, and the measures when devices held most.
void put_curves(Page& page, const report::Report& report);
void put_measures_at_peaks(Page& page, const report::Report& report);

}  // namespace fragscope::tools
