// Measures of fragmentation beside those of the domains: internal by allocator, size class and call site, and
// the definitions that are in use elsewhere, each under its own name.
#pragma once

#include <string>
#include <vector>

#include "analysis/callers.h"
#include "analysis/internal_parts.h"
#include "analysis/situation.h"
#include "proto/measures.pb.h"

namespace fragscope::analysis {

// What a page about one failure shows and a summary of many goes without: internal parts, and what calls
// cost. `walk` stands at the situation's moment.
void measure(Situation& situation, const SessionWalk& walk);

// All but call sites.
report::Measures measures_of(const Situation& situation);
// At most kSitesShown of them.
void add_call_sites(const InternalParts& parts, const Trace& trace, ProcessIndex process,
                    const StackWords& words, report::Measures& out);

// What the calls say of one device after the event: addresses, a framework's segments, and what is charged
// inside. The driver's word on pools and on the device is of other moments, and not in it.
report::MeasuresAtPeak measures_at_peak(const Trace& trace, ProcessIndex process, const ProcessState& state,
                                        const FrameworkState& framework, int device, const Event& event,
                                        const StackWords& words);

report::InternalRow message_of(const InternalPart& part);

// The two definitions of a caching allocator's fragmentation that its users compare. `of`: what the allocator
// is called. Quantities of a whole run have a scope without a moment.
report::OtherMeasure peaks_measure(const std::string& of, const Quantity& peak_active,
                                   const Quantity& peak_reserved);
report::OtherMeasure kept_measure(const std::string& of, const Quantity& reserved, const Quantity& allocated);

}  // namespace fragscope::analysis
