// `fragscope explain`: why a call failed, in words or as JSON, one object a line.
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "analysis/explain.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/explain_scenarios.h"
#include "tools/frame_line.h"
#include "tools/objective.h"
#include "tools/words_explain.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

namespace {

// Which failures to explain, in the order of their numbers; 0 stands for the one that the analysis chooses.
std::vector<std::uint32_t> chosen(bool all, std::uint32_t number, std::uint32_t failures) {
    if (!all || failures == 0) return {number};
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t n = 1; n <= failures; ++n) numbers.push_back(n);
    return numbers;
}

// Empty, or what is wrong with the number of a failure: CLI11's way.
std::string not_a_failure_number(const std::string& text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return "";
    return fmt::format("'{}' is no number of a failed call; `fragscope report TRACE` lists them", text);
}

// What the page does not speak of; `explained`: it speaks of one failed call.
std::string others_words(std::uint32_t failures, bool explained, const Style& style) {
    const std::uint32_t others = failures - (explained ? 1 : 0);
    if (others == 0) return "";
    Page page(style);
    page.paragraph(fmt::format(
        "This trace holds {}{} failed {}: `fragscope report TRACE` lists {}, `--failure N` explains "
        "one, `--all` all.",
        others, explained ? " other" : "", others == 1 ? "call" : "calls", others == 1 ? "it" : "them"));
    return "\n" + page.text();
}

}  // namespace

int cmd_explain(int argc, char** argv) {
    CLI::App app(
        "Explains why a request for GPU memory failed: the cause and the numbers that\n"
        "prove it, what would have to change for it to fit, what to do, and what is\n"
        "not known.",
        "fragscope explain");
    app.footer(
        "Without --failure it explains the last request for memory that failed, which\n"
        "is usually the one that ended the program, and says how many others failed.\n\n"
        "Example:\n"
        "  fragscope explain train.fst\n"
        "  fragscope explain train.fst --failure 2\n"
        "  fragscope explain train.fst --all --json\n"
        "  fragscope explain --scenario states.jsonl\n\n"
        "--scenario takes no trace but a file of states that a person wrote down from\n"
        "the numbers of a report, one JSON object a line: analysis/SCENARIOS.md has\n"
        "the format and an example. It ends with status 1 where a line cannot be read\n"
        "(standard error says where and why; the others are explained), or, with\n"
        "--check, where a conclusion is not the one that the line expects.\n\n"
        "Below the bounds it compares other ways of backing the request. None of them is\n"
        "a default, and without --objective none is put first.\n\n"
        "--json prints one object a line, the message Explanation of\n"
        "proto/report.proto. Where nothing failed, verdict.cause is no_failure; where\n"
        "that cannot be known, because something is missing, it is undetermined.\n\n"
        "Exit status: 0 done; 1 the trace cannot be read; 2 wrong usage; 3 answered,\n"
        "but the trace is incomplete (said at the top).");
    std::string path;
    std::uint32_t number = 0;
    bool all = false;
    bool json = false;
    bool brief = false;
    ScenarioOptions scenarios;
    CLI::Option* trace_option = app.add_option("TRACE", path, "the trace file");
    CLI::Option* scenario =
        app.add_option("--scenario", scenarios.file,
                       "explain the states in this file (- for standard input) instead of a trace")
            ->type_name("FILE")
            ->excludes(trace_option);
    app.add_flag("--check", scenarios.check, "compare with what each scenario expects")->needs(scenario);
    CLI::Option* failure = app.add_option("--failure", number,
                                          "the failed call of this number, as `fragscope report` lists them")
                               ->type_name("N")
                               ->check(not_a_failure_number);
    failure->excludes(scenario);
    app.add_flag("--all", all, "explain every failed call, in order of time")->excludes(failure)->excludes(scenario);
    CLI::Option* json_option = app.add_flag("--json", json, "one JSON object a line instead of words");
    app.add_flag("--brief", brief, "words for the cause, what to do, and what-if; not what they rest on")
        ->excludes(json_option);
    std::string objective;
    add_objective(app, objective);
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;
    if (scenario->count() != 0) {
        scenarios.json = json;
        scenarios.objective = objective;
        scenarios.pages = brief ? Pages::kBrief : Pages::kWhole;
        return explain_scenarios(scenarios);
    }
    if (trace_option->count() == 0) {
        complain("TRACE is required (`fragscope explain --help` lists the options)");
        return kWrongUsage;
    }

    const std::optional<analysis::Trace> trace = read_or_complain(path);
    if (!trace) return kCannot;
    const auto failures = static_cast<std::uint32_t>(analysis::list_failures(*trace).size());
    if (number > failures || (failure->count() != 0 && number == 0)) {
        complain(failures == 0 ? fmt::format("--failure {}: no call failed in this trace", number)
                               : fmt::format("--failure {}: this trace holds {}, numbered from 1", number,
                                             failures == 1 ? "1 failed call"
                                                           : fmt::format("{} failed calls", failures)));
        return kWrongUsage;
    }
    analysis::Symbolizer symbolizer;
    analysis::ReportOptions options;
    options.stack_words = stack_words(symbolizer);
    const Style style = style_of_stdout();
    int status = kDone;
    bool first = true;
    bool explained = false;
    for (const std::uint32_t n : chosen(all, number, failures)) {
        report::Explanation explanation = analysis::explain_failure(*trace, n, options);
        order_by(objective, explanation);
        status = status_of(explanation.health());
        explained = explanation.has_request();
        const std::string rule =
            first ? "" : "\n" + std::string(static_cast<std::size_t>(style.width), '-') + "\n\n";
        if (!(json ? write_json(explanation) : write_answer(rule + render_explanation(explanation, style,
                                                       brief ? Pages::kBrief : Pages::kWhole)))) {
            return kCannot;
        }
        first = false;
    }
    if (!json && !all && !write_answer(others_words(failures, explained, style))) return kCannot;
    return status;
}

}  // namespace fragscope::tools
