// Which of the compared mechanisms are worth a look: the Pareto set where no objective is declared, and an
// order by a declared one. Both use what is established only: a part that is a hypothesis orders nothing, and
// two intervals that overlap are not ordered. No weights are made up.
#pragma once

#include <string>

#include "proto/mechanisms.pb.h"

namespace fragscope::analysis {

// "memory", or a part of the cost, as report::CostPart names it ("steady" stands for "steady_state").
std::string objectives_in_words();  // "memory, setup, …"
bool is_objective(const std::string& name);

// Fills `pareto`, `dominated` and `pareto_note`.
void find_pareto_set(report::Comparison& comparison);
// Fills `ranking`. `objective`: one that is_objective().
void rank(report::Comparison& comparison, const std::string& objective);

}  // namespace fragscope::analysis
