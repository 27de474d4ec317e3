// Why one request failed, as a message: what is known at its moment (a Situation), and what follows from it.
#pragma once

#include <cstdint>

#include "analysis/report.h"
#include "analysis/situation.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// What follows from a situation alone, wherever it came from: verdict, audit, domains, counterfactuals,
// bounds, trials, actions, and what is not known. Adds to `out`.
void conclude(const Situation& situation, report::Explanation& out);

// Failure `number` (from 1) of `list_failures`; 0: the last failed allocation. Verdict::no_failure where
// there is no such failure, and Verdict::not_an_allocation where the call failed for another reason than
// memory.
report::Explanation explain_failure(const Trace& trace, std::uint32_t number = 0,
                                    const ReportOptions& options = {});

}  // namespace fragscope::analysis
