// The option by which a person declares what matters to them among the ways of backing memory.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "proto/report.pb.h"

namespace fragscope::tools {

void add_objective(CLI::App& app, std::string& objective);
// Without an objective nothing is ordered: what is left is the Pareto set.
void order_by(const std::string& objective, report::Explanation& explanation);
void order_by(const std::string& objective, report::Report& report);

}  // namespace fragscope::tools
