// `fragscope report`: what a recording holds, in words or as one JSON object.
#include <optional>
#include <string>

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
        "  fragscope report train.fst --json\n\n"
        "For the sizes that most bytes were asked for it compares the ways of backing\n"
        "them: none is a default, and without --objective none is put first.\n\n"
        "--json prints one object, the message Report of proto/report.proto.\n\n"
        "Exit status: 0 done; 1 the trace cannot be read; 2 wrong usage; 3 answered,\n"
        "but the trace is incomplete (said at the top).");
    std::string path;
    bool json = false;
    app.add_option("TRACE", path, "the trace file")->required();
    app.add_flag("--json", json, "one JSON object instead of words");
    std::string objective;
    add_objective(app, objective);
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;

    const std::optional<analysis::Trace> trace = read_or_complain(path);
    if (!trace) return kCannot;
    analysis::Symbolizer symbolizer;
    analysis::ReportOptions options;
    options.stack_words = stack_words(symbolizer);
    report::Report report = analysis::make_report(*trace, options);
    order_by(objective, report);
    if (!(json ? write_json(report) : write_answer(render_report(report, style_of_stdout())))) return kCannot;
    return status_of(report.health());
}

}  // namespace fragscope::tools
