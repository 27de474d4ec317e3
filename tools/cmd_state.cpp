// `fragscope state`: what a program held at a moment, in words or as JSON, one object a line.
#include <fmt/format.h>

#include <optional>
#include <string>

#include "analysis/state_shown.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/frame_line.h"
#include "tools/words_state.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

namespace {

// Empty, or what is wrong with the moment: CLI11's way.
std::string not_a_moment(const std::string& text) {
    if (analysis::where_of(text)) return "";
    return fmt::format("'{}' is no moment: expected {}", text, analysis::kWhereForms);
}

std::string not_a_domain(const std::string& text) {
    if (analysis::domain_in(text)) return "";
    return fmt::format("'{}' is no domain: expected physical, virtual, pool:0x..., framework or host", text);
}

}  // namespace

int cmd_state(int argc, char** argv) {
    CLI::App app(
        "Says what a program held at a moment: address space, physical memory, blocks,\n"
        "pools, and the segments, blocks and gaps of its framework's own allocator.",
        "fragscope state");
    app.footer(
        "WHERE is one of\n"
        "  17            after the event of this sequence number (`fragscope dump`)\n"
        "  mark:TEXT     at each mark (NVTX) whose text is TEXT; a * at its end stands\n"
        "                for anything\n"
        "  failure:2     when that call failed, as `fragscope report` lists them\n"
        "  1.5s          that long after the start of the recording, in every process; the\n"
        "                units are ns, us, ms, s and min. time:1.5s is the same\n"
        "  peak:0        when most was held on that device, by the records of all\n"
        "                processes together (or of --process); a device is named by its\n"
        "                ordinal or by the beginning of its UUID\n"
        "  end           after the last event\n\n"
        "Between processes there is nothing but the clock: at a time or a peak each is\n"
        "shown as it was after its last call that counted by then.\n\n"
        "DOMAIN is one of virtual (the process's address space), physical, pool:0x7f00,\n"
        "framework (its allocator's segments) and host (page-locked memory). Extents of\n"
        "different kinds are never added up.\n\n"
        "Examples:\n"
        "  fragscope state train.fst --at end\n"
        "  fragscope state train.fst --at 1.5s --process 0\n"
        "  fragscope state train.fst --at peak:GPU-3f2a\n"
        "  fragscope state train.fst --at failure:1 --domain virtual\n"
        "  fragscope state train.fst --at 'mark:step*' --json\n\n"
        "--json prints one object a line, one for each moment, the message State of\n"
        "proto/state.proto.\n\n"
        "Exit status: 0 done; 1 the trace cannot be read; 2 wrong usage, or no such\n"
        "moment in the trace; 3 answered, but the trace is incomplete (said at the\n"
        "top).");
    std::string path;
    std::string at;
    std::uint32_t process = 0;
    std::string only;
    std::string domain;
    bool json = false;
    app.add_option("TRACE", path, "the trace file")->required();
    app.add_option("--at", at, "the moment")->type_name("WHERE")->required()->check(not_a_moment);
    CLI::Option* process_option =
        app.add_option("--process", process, "only this process of the trace, by its number")->type_name("N");
    app.add_option("--only", only, "only this part: the driver's things, or the framework's allocator")
        ->type_name("driver|framework")
        ->check(CLI::IsMember({"driver", "framework"}));
    app.add_option("--domain", domain, "only this domain: its eligible free extents by kind, and what lies between them")
        ->type_name("DOMAIN")
        ->check(not_a_domain);
    app.add_flag("--json", json, "one JSON object a line instead of words");
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;

    const std::optional<analysis::Trace> trace = read_or_complain(path);
    if (!trace) return kCannot;
    analysis::StateQuestion question{at, *analysis::where_of(at), {}};
    if (process_option->count() != 0) question.process = process;
    analysis::Symbolizer symbolizer;
    question.stack_words = stack_words(symbolizer);
    if (!domain.empty()) question.domain = analysis::domain_in(domain);
    question.driver = only != "framework";
    question.framework = only != "driver";
    const Style style = style_of_stdout();
    int status = kDone;
    bool first = true;
    bool written = true;
    const std::string why_not = analysis::answer_states(*trace, question, [&](const report::State& state) {
        status = status_of(state.health());
        const std::string rule =
            first ? "" : "\n" + std::string(static_cast<std::size_t>(style.width), '-') + "\n\n";
        first = false;
        written = json ? write_json(state) : write_answer(rule + render_state(state, style, only));
        return written;
    });
    if (!written) return kCannot;
    if (why_not.empty()) return status;
    complain(fmt::format("--at {}: {}", at, why_not));
    return kWrongUsage;
}

}  // namespace fragscope::tools
