// What follows from the failures that another tool's file tells of: the same messages as of a trace's failures.
#pragma once

#include <cstddef>
#include <optional>

#include "analysis/contract.h"
#include "analysis/imported_state.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// `index` < states.states.size(). Its id is "failure:N", N counted from 1 over all that the file tells of.
report::Explanation explain_state(const ImportedStates& states, std::size_t index,
                                  std::optional<Shape> contract = std::nullopt);

// What was read, with each failure's cause.
report::Report report_of(const ImportedStates& states);

// Failures in the file, and the number of the first that was kept.
std::uint64_t failures_in(const ImportedStates& states);

}  // namespace fragscope::analysis
