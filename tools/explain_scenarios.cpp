#include "tools/explain_scenarios.h"

#include <fmt/format.h>

#include "analysis/explain_scenario.h"
#include "analysis/read/scenario_reader.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/objective.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

namespace {

std::string named(report::Verdict::Cause cause, const std::string& constraint) {
    return report::Verdict::Cause_Name(cause) + (constraint.empty() ? "" : " (" + constraint + ")");
}

// Empty: as expected, or nothing is expected; else what differs.
std::string difference(const analysis::Scenario& scenario, const report::Verdict& verdict) {
    const bool same = scenario.expected_cause == report::Verdict::Cause_Name(verdict.cause()) &&
                      scenario.expected_constraint == verdict.constraint();
    if (scenario.expected_cause.empty() || same) return "";
    return fmt::format("{}: expected {}{}, concluded {}", scenario.id, scenario.expected_cause,
                       scenario.expected_constraint.empty() ? "" : " (" + scenario.expected_constraint + ")",
                       named(verdict.cause(), verdict.constraint()));
}

struct Counts {
    std::uint64_t explained = 0;
    std::uint64_t undetermined = 0;
    std::uint64_t expecting = 0;
    std::uint64_t different = 0;
    std::uint64_t unreadable = 0;
    std::uint64_t incomplete = 0;  // explained without a member that the format does not have
};

std::string summary(const Counts& counts, bool check) {
    std::string out = fmt::format("{} explained, {} of them undetermined",
                                  counted(counts.explained, "scenario"), counts.undetermined);
    if (check)
        out += fmt::format("; {} of {} as expected", counts.expecting - counts.different, counts.expecting);
    if (counts.unreadable != 0)
        out += fmt::format("; {} could not be read", counted(counts.unreadable, "line"));
    return out + ".";
}

}  // namespace

int explain_scenarios(const ScenarioOptions& options) {
    analysis::ScenarioFile file;
    if (const std::string problem = file.open(options.file); !problem.empty()) {
        complain(problem);
        return kCannot;
    }
    const Style style = style_of_stdout();
    Counts counts;
    analysis::ScenarioLine line;
    while (file.next(line)) {
        if (!line.text.scenario) {
            complain(fmt::format("{}, line {}, {}", options.file, line.number, line.text.problem));
            ++counts.unreadable;
            continue;
        }
        report::Explanation explanation = analysis::explain_scenario(*line.text.scenario, options.contract);
        order_by(options.objective, explanation);
        explanation.mutable_scenario()->set_file(options.file);
        explanation.mutable_scenario()->set_line(line.number);
        ++counts.explained;
        if (status_of(explanation.health()) != kDone) ++counts.incomplete;
        if (explanation.verdict().cause() == report::Verdict::undetermined) ++counts.undetermined;
        if (options.check && !line.text.scenario->expected_cause.empty()) {
            ++counts.expecting;
            if (const std::string what = difference(*line.text.scenario, explanation.verdict());
                !what.empty()) {
                complain(fmt::format("{}, line {}, {}", options.file, line.number, what));
                ++counts.different;
            }
        }
        const std::string rule =
            counts.explained == 1 ? ""
                                  : "\n" + std::string(static_cast<std::size_t>(style.width), '-') + "\n\n";
        if (!(options.json ? write_json(explanation)
                           : write_answer(rule + render_explanation(explanation, style, options.pages))))
            return kCannot;
    }
    if (!file.problem().empty()) {
        complain(file.problem());
        return kCannot;
    }
    if (counts.explained == 0 && counts.unreadable == 0) {
        complain(fmt::format("{} holds no scenario: expected one JSON object a line (SCENARIOS.md)",
                             options.file));
        return kCannot;
    }
    if (!options.json && !write_answer("\n" + summary(counts, options.check) + "\n")) return kCannot;
    if (counts.unreadable != 0 || counts.different != 0) return kCannot;
    return counts.incomplete != 0 ? kIncompleteTrace : kDone;
}

}  // namespace fragscope::tools
