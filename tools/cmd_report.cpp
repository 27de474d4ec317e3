// `fragscope report`: what a recording holds, in words or as one JSON object.
#include <optional>
#include <string>

#include "analysis/explain_state.h"
#include "analysis/report.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/frame_line.h"
#include "tools/objective.h"
#include "tools/words_report.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

int cmd_report(int argc, char** argv) {
    CLI::App app(
        "Tells what a recording holds: what ran, how much memory was reserved, charged\n"
        "and requested over time, peaks, failed calls with their causes, what was left\n"
        "at the end, what the calls cost, and what could not be seen.",
        "fragscope report");
    app.footer(
        "Example:\n"
        "  fragscope report train.fst\n"
        "  fragscope report train.fst --objective steady\n"
        "  fragscope report train.fst --json\n"
        "  fragscope report stderr.log\n\n"
        "Of a file that tells of failures and of no events (an error message, a log with\n"
        "one in it, an allocator's dump) it tells what was read from it.\n\n"
        "For the sizes that most bytes were asked for it compares the ways of backing\n"
        "them: none is a default, and without --objective none is put first.\n\n"
        "--json prints one object, the message Report of proto/report.proto.\n\n"
        "Exit status: 0 done; 1 the file cannot be read; 2 wrong usage; 3 answered,\n"
        "but the file is incomplete (said at the top).");
    std::string path, kind;
    bool json = false;
    app.add_option("FILE", path, "a trace, or what another tool left behind (- for standard input)")->required();
    app.add_option("--kind", kind, "take it as this, whatever it looks like (`fragscope explain --help`)");
    app.add_flag("--json", json, "one JSON object instead of words");
    std::string objective;
    add_objective(app, objective);
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;

    const std::optional<analysis::InputResult> input = read_input_or_complain(path, kind);
    if (!input) return kCannot;
    if (input->states) {
        const report::Report report = analysis::report_of(*input->states);
        if (!(json ? write_json(report) : write_answer(render_report(report, style_of_stdout())))) return kCannot;
        return status_of(report.health());
    }
    const std::optional<analysis::Trace>& trace = input->trace;
    analysis::Symbolizer symbolizer;
    analysis::ReportOptions options;
    options.stack_words = stack_words(symbolizer);
    report::Report report = analysis::make_report(*trace, options);
    order_by(objective, report);
    if (!(json ? write_json(report) : write_answer(render_report(report, style_of_stdout())))) return kCannot;
    return status_of(report.health());
}

}  // namespace fragscope::tools
