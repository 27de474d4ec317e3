// The ways of backing a request, side by side: which can serve it and why, what each takes in memory and
// costs in time, what would apply it. Reads the situation only. No row is a default, and none is recommended:
// what is not established is a hypothesis with the measurement that would show it wrong.
#pragma once

#include <vector>

#include "analysis/situation.h"
#include "proto/mechanisms.pb.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// `bounds`: of the same situation. A comparison without mechanisms says in its `pareto_note` why there is
// none.
report::Comparison mechanisms_of(const Situation& situation, const std::vector<report::Bound>& bounds);

// The same for allocations of this kind in general, at no moment: nothing is said of what was there to be
// had.
report::Comparison mechanisms_for_a_run(const Situation& situation);

}  // namespace fragscope::analysis
