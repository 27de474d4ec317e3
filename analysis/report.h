// What a trace holds, as a message. A pure function; no printing, no files.
#pragma once

#include <cstdint>

#include "analysis/callers.h"
#include "analysis/contract.h"
#include "analysis/failures.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

struct ReportOptions {
    // Failures beyond this number are listed without a verdict; `explain_failure` has one for each.
    std::uint32_t verdicts = 100;
    // What the frames of call stacks are called; nothing: files and offsets.
    StackWords stack_words;
    // What a failed request's memory has to look like; nothing: what is inferred.
    std::optional<Shape> contract;
};

report::Report make_report(const Trace& trace, const ReportOptions& options = {});

}  // namespace fragscope::analysis
