// The two answers of the analysis, as messages: what a trace holds, and why one call of it failed. Pure
// functions; no printing, no files.
#pragma once

#include <cstdint>

#include "analysis/callers.h"
#include "analysis/failures.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

struct ReportOptions {
    // Failures beyond this number are listed without a verdict; `explain_failure` has one for each.
    std::uint32_t verdicts = 100;
    // What the frames of call stacks are called; nothing: files and offsets.
    StackWords stack_words;
};

report::Report make_report(const Trace& trace, const ReportOptions& options = {});

// Failure `number` (from 1) of `list_failures`; 0: the last failed allocation. Verdict::no_failure where
// there is no such failure, and Verdict::not_an_allocation where the call failed for another reason than
// memory.
report::Explanation explain_failure(const Trace& trace, std::uint32_t number = 0,
                                    const ReportOptions& options = {});

}  // namespace fragscope::analysis
