// `fragscope explain`: why a call failed, in words or as JSON, one object a line.
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "analysis/explain.h"
#include "analysis/explain_if.h"
#include "analysis/explain_state.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/explain_scenarios.h"
#include "tools/explain_states.h"
#include "tools/frame_line.h"
#include "tools/objective.h"
#include "tools/size_text.h"
#include "tools/words_explain.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

namespace {

// Empty, or what is wrong with what was typed: CLI11's way.
std::string not_a_size(const std::string& text) {
    const auto bytes = parse_size(text);
    if (bytes && *bytes != 0) return "";
    return fmt::format(
        "'{}' is no size of a request: expected bytes, or a whole number with a unit, as 3GiB or 512MiB",
        text);
}
std::string not_a_moment(const std::string& text) {
    return analysis::where_of(text)
               ? ""
               : fmt::format("'{}' is no moment: expected {}", text, analysis::kWhereForms);
}
std::string not_a_mechanism(const std::string& text) {
    return analysis::mechanism_named(text)
               ? ""
               : fmt::format("'{}' is no way of allocating: expected {}", text, analysis::kMechanismForms);
}
std::string not_a_contract(const std::string& text) {
    return analysis::shape_named(text)
               ? ""
               : fmt::format("'{}' is no contract: expected physical, virtual or segmented", text);
}

// What stands between one explanation and the next.
std::string rule_before(bool first, const Style& style) {
    return first ? "" : "\n" + std::string(static_cast<std::size_t>(style.width), '-') + "\n\n";
}

int explain_requests(const analysis::Trace& trace, const analysis::RequestQuestion& question,
                     const analysis::StackWords& words, const std::string& objective, bool json, Pages pages) {
    const Style style = style_of_stdout();
    int status = kDone;
    bool first = true;
    bool written = true;
    const std::string why_not =
        analysis::answer_requests(trace, question, words, [&](report::Explanation explanation) {
            order_by(objective, explanation);
            status = status_of(explanation.health());
            written =
                json
                    ? write_json(explanation)
                    : write_answer(rule_before(first, style) + render_explanation(explanation, style, pages));
            first = false;
            return written;
        });
    if (!written) return kCannot;
    if (why_not.empty()) return status;
    complain(fmt::format("--if-request at {}: {}", question.at, why_not));
    return kWrongUsage;
}

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
        "  fragscope explain train.fst --if-request 3GiB --at end --as vmm\n"
        "  fragscope explain stderr.log\n"
        "  fragscope explain - < message.txt\n"
        "  fragscope explain --scenario states.jsonl\n\n"
        "Where nobody was recording, it takes what the failed job left behind: the error\n"
        "message, pasted or anywhere in a log, the dump of an allocator, a file of another\n"
        "tool. Its kind is found by the content (--kind forces one, below); its numbers\n"
        "are taken as exactly as they are written, and what it does not say is listed.\n\n"
        "--if-request asks what would have come of a request that nobody made: whether\n"
        "it would have been met at that moment, and if not, why not. WHERE is as for\n"
        "`fragscope state`: a sequence number, a time (1.5s), mark:TEXT, failure:N,\n"
        "peak:DEVICE or end.\n"
        "MECHANISM is linear (cuMemAlloc), vmm (cuMemCreate), pool (cuMemAllocAsync;\n"
        "pool:0x... for one of several), address (cuMemAddressReserve), framework (a\n"
        "block of PyTorch's allocator), host or managed; without it, the one by which\n"
        "the program had asked for most on that device. What the driver said counts only\n"
        "if it was asked at that very moment (`fragscope run --sample`, a failed call, or\n"
        "the program's own cuMemGetInfo).\n\n"
        "--contract says what the request's memory has to look like: physical (one\n"
        "physical piece), virtual (one range of addresses) or segmented (pieces that the\n"
        "program finds by itself). Without it that is inferred from the call.\n\n"
        "--scenario takes no trace but a file of states that a person wrote down from\n"
        "the numbers of a report, one JSON object a line: analysis/SCENARIOS.md has\n"
        "the format and an example. It ends with status 1 where a line cannot be read\n"
        "(standard error says where and why; the others are explained), or, with\n"
        "--check, where a conclusion is not the one that the line expects.\n\n"
        "Below the bounds it compares other ways of backing the request. None of them is\n"
        "a default, and without --objective none is put first.\n\n"
        "--json prints one object a line, the message Explanation of\n"
        "proto/report.proto. Where nothing failed, verdict.cause is no_failure; where\n"
        "that cannot be known, because something is missing, it is undetermined. Of a\n"
        "request that nobody made it is would_fit, undetermined, or what would have\n"
        "refused it.\n\n"
        "Exit status: 0 done; 1 the file cannot be read; 2 wrong usage, or no such\n"
        "moment in the trace; 3 answered, but the file is incomplete (said at the top).");
    std::string path, kind;
    std::uint32_t number = 0;
    bool all = false;
    bool json = false;
    bool brief = false;
    ScenarioOptions scenarios;
    CLI::Option* trace_option =
        app.add_option("FILE", path, "a trace, or what another tool left behind (- for standard input)");
    app.add_option("--kind", kind, "take it as this, whatever it looks like: " + analysis::kinds_in_words())
        ->needs(trace_option);
    CLI::Option* scenario =
        app.add_option("--scenario", scenarios.file,
                       "explain the states in this file (- for standard input) instead of a trace")
            ->type_name("FILE")
            ->excludes(trace_option);
    app.add_flag("--check", scenarios.check, "compare with what each scenario expects")->needs(scenario);
    std::string size, at, mechanism, device, contract;
    std::uint32_t process = 0;
    CLI::Option* failure = app.add_option("--failure", number,
                                          "the failed call of this number, as `fragscope report` lists them")
                               ->type_name("N")
                               ->check(not_a_failure_number);
    failure->excludes(scenario);
    CLI::Option* all_option = app.add_flag("--all", all, "explain every failed call, in order of time")
                                  ->excludes(failure)
                                  ->excludes(scenario);
    CLI::Option* if_request =
        app.add_option("--if-request", size, "would a request of so many bytes have been met")
            ->type_name("SIZE")
            ->check(not_a_size)
            ->excludes(failure)
            ->excludes(all_option)
            ->excludes(scenario);
    CLI::Option* at_option = app.add_option("--at", at, "at this moment")
                                 ->type_name("WHERE")
                                 ->check(not_a_moment)
                                 ->needs(if_request);
    if_request->needs(at_option);
    app.add_option("--as", mechanism, "by this way of allocating")
        ->type_name("MECHANISM")
        ->check(not_a_mechanism)
        ->needs(if_request);
    app.add_option("--device", device, "on this device: its number in the process, or its UUID")
        ->type_name("D")
        ->needs(if_request);
    CLI::Option* process_option =
        app.add_option("--process", process, "in this process of the trace, by its number")
            ->type_name("N")
            ->needs(if_request);
    app.add_option("--contract", contract, "what the request's memory has to look like, if not as inferred")
        ->type_name("physical|virtual|segmented")
        ->check(not_a_contract);
    CLI::Option* json_option = app.add_flag("--json", json, "one JSON object a line instead of words");
    app.add_flag("--brief", brief, "words for the cause, what to do, and what-if; not what they rest on")
        ->excludes(json_option);
    std::string objective;
    add_objective(app, objective);
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;
    if (scenario->count() != 0) {
        scenarios.json = json;
        scenarios.objective = objective;
        scenarios.contract = analysis::shape_named(contract);
        scenarios.pages = brief ? Pages::kBrief : Pages::kWhole;
        return explain_scenarios(scenarios);
    }
    if (trace_option->count() == 0) {
        complain("FILE is required (`fragscope explain --help` lists the options)");
        return kWrongUsage;
    }

    const std::optional<analysis::InputResult> input = read_input_or_complain(path, kind);
    if (!input) return kCannot;
    if (input->states) {
        if (if_request->count() != 0) {
            complain(fmt::format("--if-request: {} tells of failures only; a trace tells of other moments",
                                 input->states->file));
            return kWrongUsage;
        }
        StateOptions options;
        options.json = json;
        options.all = all;
        if (failure->count() != 0) options.number = number;
        options.pages = brief ? Pages::kBrief : Pages::kWhole;
        options.objective = objective;
        options.contract = analysis::shape_named(contract);
        return explain_states(*input->states, options);
    }
    const std::optional<analysis::Trace>& trace = input->trace;
    const Pages pages = brief ? Pages::kBrief : Pages::kWhole;
    analysis::Symbolizer symbolizer;
    const auto shape = analysis::shape_named(contract);
    if (if_request->count() != 0) {
        analysis::RequestQuestion question;
        question.bytes = *parse_size(size);
        question.at = at;
        question.where = *analysis::where_of(at);
        if (process_option->count() != 0) question.process = process;
        if (!device.empty()) question.device = device;
        question.mechanism = analysis::mechanism_named(mechanism);
        question.contract = shape;
        return explain_requests(*trace, question, stack_words(symbolizer), objective, json, pages);
    }
    const auto failures = static_cast<std::uint32_t>(analysis::list_failures(*trace).size());
    if (number > failures || (failure->count() != 0 && number == 0)) {
        complain(failures == 0 ? fmt::format("--failure {}: no call failed in this trace", number)
                               : fmt::format("--failure {}: this trace holds {}, numbered from 1", number,
                                             failures == 1 ? "1 failed call"
                                                           : fmt::format("{} failed calls", failures)));
        return kWrongUsage;
    }
    analysis::ReportOptions options;
    options.stack_words = stack_words(symbolizer);
    options.contract = shape;
    const Style style = style_of_stdout();
    int status = kDone;
    bool first = true;
    bool explained = false;
    for (const std::uint32_t n : chosen(all, number, failures)) {
        report::Explanation explanation = analysis::explain_failure(*trace, n, options);
        order_by(objective, explanation);
        status = status_of(explanation.health());
        explained = explanation.has_request();
        if (!(json ? write_json(explanation)
                   : write_answer(rule_before(first, style) +
                                  render_explanation(explanation, style, pages)))) {
            return kCannot;
        }
        first = false;
    }
    if (!json && !all && !write_answer(others_words(failures, explained, style))) return kCannot;
    return status;
}

}  // namespace fragscope::tools
