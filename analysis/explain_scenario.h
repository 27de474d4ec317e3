// What follows from a state that was written by hand, as the message that a failure of a trace gets too.
#pragma once

#include <optional>

#include "analysis/contract.h"
#include "analysis/scenario.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// `Explanation::id` is the scenario's own. Who read it fills in the file and the line.
// `contract`: declared in place of the one that its request shows.
report::Explanation explain_scenario(const Scenario& scenario,
                                     std::optional<Shape> contract = std::nullopt);

}  // namespace fragscope::analysis
