// `fragscope import`: another tool's file to a trace, so that every command works on it.
#include <fmt/format.h>

#include <optional>
#include <string>

#include "analysis/health.h"
#include "analysis/read/importer.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/words.h"
#include "tools/write_trace.h"

namespace fragscope::tools {

namespace {

std::string kinds_in_lines() {
    std::string out;
    for (const analysis::Importer* importer : analysis::importers())
        if (importer->read != nullptr)
            out += fmt::format("  {:<12} {}\n", importer->kind, importer->in_words);
    return out;
}

std::string without_folders(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

int cmd_import(int argc, char** argv) {
    CLI::App app(
        "Makes a trace of what another tool has written, so that every command works\n"
        "on it. The trace says where it comes from, and what that file does not say.",
        "fragscope import");
    app.footer("Kinds:\n" + kinds_in_lines() +
               "\nThe kind is found by the file's content. `report`, `explain` and `dump` take such\n"
               "a file directly, too.\n\n"
               "Example:\n"
               "  fragscope import rmm.dev0.csv -o rmm.fst\n\n"
               "Exit status: 0 done; 1 it cannot be read, or the trace not be written; 2 wrong\n"
               "usage; 3 done, but something is missing from the file (said, and kept in the\n"
               "trace).");
    std::string path;
    std::string output;
    std::string kind;
    bool force = false;
    app.add_option("FILE", path, "what to import")->required();
    app.add_option("-o,--output", output, "the trace to write (FILE.fst, here, unless said otherwise)");
    app.add_option("--kind", kind, "take it as this, whatever it looks like");
    app.add_flag("--force", force, "replace the trace if there is one of that name");
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;

    const analysis::ReadResult read = analysis::import_file(path, kind);
    if (!read.trace) {
        complain(read.error);
        return kCannot;
    }
    if (output.empty()) output = without_folders(path) + ".fst";
    collector::FileSink::Opened opened = collector::FileSink::open(
        output, force ? collector::Existing::kReplace : collector::Existing::kRefuse);
    if (!opened.sink) {
        complain(opened.error);
        return kCannot;
    }
    const std::string problem = write_trace(*read.trace, *opened.sink);
    opened.sink->finish();
    if (!problem.empty()) {
        opened.sink->discard();
        complain(fmt::format("cannot write {}: {}", output, problem));
        return kCannot;
    }
    for (const std::string& warning : read.trace->end.warnings()) complain(warning);
    if (!write_answer(fmt::format("{} from {} ({}) to {}\n", counted(read.trace->end.events(), "event"), path,
                                  read.trace->session.provenance().kind(), output)))
        return kCannot;
    return status_of(analysis::health_of(*read.trace));
}

}  // namespace fragscope::tools
