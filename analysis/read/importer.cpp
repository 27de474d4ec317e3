#include "analysis/read/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "analysis/read/clean_text.h"
#include "analysis/read/ingero_sqlite.h"
#include "analysis/read/jax_profile.h"
#include "analysis/read/message_log.h"
#include "analysis/read/nsight_sqlite.h"
#include "analysis/read/rmm_log.h"
#include "analysis/read/torch_snapshot.h"
#include "proto/chunk.h"

namespace fragscope::analysis {

namespace {

constexpr std::size_t kLongestReason = 4096;

// Messages take any text, so they come last.
constexpr std::array<const Importer*, 6> kImporters{&kRmmLog,     &kIngeroSqlite,  &kNsightSqlite,
                                                    &kJaxProfile, &kTorchSnapshot, &kMessages};

const Importer* recognizing(std::string_view head) {
    const auto found = std::find_if(kImporters.begin(), kImporters.end(),
                                    [&](const Importer* importer) { return importer->recognizes(head); });
    return found == kImporters.end() ? nullptr : *found;
}

bool is_trace(std::string_view head) {
    const std::string_view magic(reinterpret_cast<const char*>(trace::kFileMagic), sizeof trace::kFileMagic);
    return head.substr(0, magic.size()) == magic;
}

// Lines and offsets of what an importer says are those of the content.
void say_decompressed(const ImportSource& source, InputResult& result) {
    constexpr const char* kSaid = "the file is gzipped, and places in it are those of its decompressed data";
    if (!result.error.empty()) {
        if (result.error != source.problem()) result.error += fmt::format(" ({})", kSaid);
    } else if (result.trace && !result.trace->end.warnings().empty()) {
        result.trace->end.add_warnings(fmt::format("Where lines or offsets are named: {}.", kSaid));
    }
}

InputResult import_with(const Importer& importer, ImportSource& source) {
    InputResult result;
    try {
        if (importer.read_states != nullptr) {
            ImportedStates& states = result.states.emplace();
            states.kind = importer.kind;
            states.file = source.path();
            result.error = importer.read_states(source, states);
        } else {
            Trace& trace = result.trace.emplace();
            trace.path = source.path();
            trace::Provenance& provenance = *trace.session.mutable_provenance();
            provenance.set_kind(importer.kind);
            provenance.set_file(source.path());
            result.error = importer.read(source, trace);
        }
    } catch (const std::bad_alloc&) {
        result.error = fmt::format("cannot read {}: its content does not fit into memory", source.path());
    }
    // A reason may quote the file, and SQLite's own words do.
    result.error = clean_text(result.error, kLongestReason);
    if (source.gzipped()) say_decompressed(source, result);
    if (!result.error.empty()) {
        result.trace.reset();
        result.states.reset();
    }
    return result;
}

InputResult import_as(ImportSource& source, const std::string& kind) {
    for (const Importer* importer : kImporters)
        if (kind == importer->kind) return import_with(*importer, source);
    return {std::nullopt, std::nullopt,
            fmt::format("there is no kind '{}'; these can be imported: {}", kind, kinds_in_words())};
}

ReadResult events_of(InputResult input) {
    if (input.states) {
        return {std::nullopt,
                fmt::format("{} tells of {} failed request{} and holds no events: `fragscope explain` and "
                            "`report` take it, nothing else can",
                            input.states->file, input.states->states.size(),
                            input.states->states.size() == 1 ? "" : "s")};
    }
    return {std::move(input.trace), std::move(input.error)};
}

}  // namespace

std::span<const Importer* const> importers() { return kImporters; }

std::string kinds_in_words() {
    std::string out;
    for (const Importer* importer : kImporters)
        out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", importer->kind, importer->in_words);
    return out;
}

ReadResult import_file(const std::string& path, const std::string& kind) {
    ImportSource source;
    if (std::string error = source.open(path); !error.empty()) return {std::nullopt, std::move(error)};
    if (!kind.empty()) return events_of(import_as(source, kind));
    if (const Importer* importer = recognizing(source.head())) {
        InputResult input = import_with(*importer, source);
        // A text without any message is of no kind at all.
        if (importer->read != nullptr || input.states) return events_of(std::move(input));
    }
    return {std::nullopt,
            fmt::format("{}{} is of no kind that can be imported; these can: {}",
                        source.gzipped() ? "decompressed, " : "", path, kinds_in_words())};
}

InputResult read_input(const std::string& path, const std::string& kind) {
    ImportSource source;
    if (std::string error = source.open(path); !error.empty())
        return {std::nullopt, std::nullopt, std::move(error)};
    if (!kind.empty()) return import_as(source, kind);
    if (const Importer* importer = recognizing(source.head())) return import_with(*importer, source);
    if (path == "-") {
        return {std::nullopt, std::nullopt,
                is_trace(source.head())
                    ? "a trace cannot be read from standard input: name its file"
                    : "standard input is of no kind that can be read; these can: " + kinds_in_words()};
    }
    if (source.gzipped()) {
        return {std::nullopt, std::nullopt,
                fmt::format("{} is gzipped, and what it holds is of no kind that can be imported; these can: {}", path,
                            kinds_in_words())};
    }
    if (!is_trace(source.head()) && !source.head().empty()) {
        return {std::nullopt, std::nullopt,
                fmt::format("{} is not a Fragscope trace, nor of another kind that can be read: {}", path,
                            kinds_in_words())};
    }
    ReadResult read = read_trace(path);
    return {std::move(read.trace), std::nullopt, std::move(read.error)};
}

ReadResult read_trace_or_import(const std::string& path) { return events_of(read_input(path, "")); }

}  // namespace fragscope::analysis
