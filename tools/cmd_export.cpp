// `fragscope export`: a trace in another tool's format.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "analysis/health.h"
#include "collector/sink.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/torch_export.h"
#include "tools/words.h"

namespace fragscope::tools {

namespace {

constexpr char kTorchSnapshot[] = "torch-snapshot";

std::string not_a_format(const std::string& text) {
    return text == kTorchSnapshot ? "" : fmt::format("'{}' is no format: expected {}", text, kTorchSnapshot);
}

}  // namespace

int cmd_export(int argc, char** argv) {
    CLI::App app(
        "Writes a trace in another tool's format, so that it can be looked at there.",
        "fragscope export");
    app.footer(
        "Formats:\n"
        "  torch-snapshot  a memory snapshot of PyTorch, as its own _dump_snapshot() writes\n"
        "                  one: torch/cuda/_memory_viz.py and pytorch.org/memory_viz read it.\n"
        "                  It holds what a framework's allocator held at the trace's end and\n"
        "                  did before, with call stacks; nothing else of the trace.\n\n"
        "Example:\n"
        "  fragscope export train.fst --to torch-snapshot -o train.pickle\n\n"
        "Exit status: 0 done; 1 the trace cannot be read, or nothing of it be written so;\n"
        "2 wrong usage; 3 done, but the trace is incomplete.");
    std::string path, format, output;
    std::uint32_t process = 0;
    bool force = false;
    app.add_option("TRACE", path, "the trace, or another tool's file")->required();
    app.add_option("--to", format, "the format")->type_name("FORMAT")->required()->check(not_a_format);
    app.add_option("-o,--output", output, "the file to write")->required();
    app.add_option("--process", process, "of this process of the trace, by its number")->type_name("N");
    app.add_flag("--force", force, "replace the file if there is one of that name");
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;

    const std::optional<analysis::Trace> trace = read_or_complain(path);
    if (!trace) return kCannot;
    if (process >= trace->events.size()) {
        complain(fmt::format("--process {}: the trace holds {}, numbered from 0", process,
                             counted(trace->events.size(), "process", "processes")));
        return kWrongUsage;
    }
    collector::FileSink::Opened opened = collector::FileSink::open(
        output, force ? collector::Existing::kReplace : collector::Existing::kRefuse);
    if (!opened.sink) {
        complain(opened.error);
        return kCannot;
    }
    PickleWriter pickle([&](std::string_view bytes) {
        return opened.sink->append(std::as_bytes(std::span(bytes)), collector::Room::kReserve);
    });
    analysis::Symbolizer symbolizer;
    const ExportedSnapshot written = write_snapshot(*trace, {process}, symbolizer, pickle);
    const bool whole = written.problem.empty() && pickle.finish();
    opened.sink->finish();
    if (!whole) {
        const std::string why = written.problem.empty() ? opened.sink->problem() : written.problem;
        opened.sink->discard();
        complain(fmt::format("cannot write {}: {}", output, why));
        return kCannot;
    }
    std::string said =
        fmt::format("{}, {} and {} of {} to {}\n", counted(written.segments, "segment"),
                    counted(written.blocks, "block in use", "blocks in use"),
                    counted(written.entries, "trace entry", "trace entries"), path, output);
    if (written.outside != 0)
        said += fmt::format("{} lie in no memory that a record shows the allocator take: the format has no place for "
                            "them, and they are left out.\n",
                            counted(written.outside, "block"));
    if (!write_answer(said)) return kCannot;
    return written.outside != 0 ? kIncompleteTrace : status_of(analysis::health_of(*trace));
}

}  // namespace fragscope::tools
