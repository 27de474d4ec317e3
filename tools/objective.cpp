#include "tools/objective.h"

#include <fmt/format.h>

#include "analysis/mechanism_order.h"

namespace fragscope::tools {
namespace {

// Empty, or what is wrong with it: CLI11's way.
std::string not_an_objective(const std::string& text) {
    if (analysis::is_objective(text)) return "";
    return fmt::format("'{}' is none of {}", text, analysis::objectives_in_words());
}

}  // namespace

void add_objective(CLI::App& app, std::string& objective) {
    app.add_option("--objective", objective,
                   "order the ways of backing memory by this: " + analysis::objectives_in_words())
        ->type_name("WHAT")
        ->check(not_an_objective);
}

void order_by(const std::string& objective, report::Explanation& explanation) {
    if (!objective.empty() && explanation.has_mechanisms())
        analysis::rank(*explanation.mutable_mechanisms(), objective);
}

void order_by(const std::string& objective, report::Report& report) {
    if (objective.empty()) return;
    for (report::Comparison& comparison : *report.mutable_mechanisms()) analysis::rank(comparison, objective);
}

}  // namespace fragscope::tools
