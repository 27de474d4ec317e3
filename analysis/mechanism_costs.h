// What a way of backing a request costs in time, part by part, from the durations of its calls in this very
// trace.
//
// Percentiles only: a mean hides the tail. A sum of calls that were each measured is called a sum, not a
// measurement; a call that was seen at other sizes only, or less often than it would be made, makes it a
// hypothesis; a call that was never seen leaves no number at all. No cost is taken to grow with the number of
// pages: what is multiplied is the number of calls.
#pragma once

#include <vector>

#include "analysis/mechanism_facts.h"
#include "analysis/mechanism_ways.h"
#include "proto/mechanisms.pb.h"

namespace fragscope::analysis {

// In the order of report::CostPart::part: setup, steady_state, tail, translation, indirection, allocator,
// synchronisation. `times`: null where nothing was timed.
std::vector<report::CostPart> cost_parts_of(const Way& way, const SizedTimes* times);

// If the backing were kept between uses, against the present way, which gives it back. Nothing where no reuse
// was observed or a needed duration is only a hypothesis.
std::optional<report::Amortisation> amortised(const Way& way, const std::vector<report::CostPart>& costs,
                                              const std::vector<report::CostPart>* present_costs,
                                              const Recurrence& reuse);

}  // namespace fragscope::analysis
