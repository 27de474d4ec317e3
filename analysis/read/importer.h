// Other tools' files: each kind has one importer, which tells its files by their content and reads them into
// the same Trace as a recording's, so that everything behind the readers works on it. What the file does not
// say is listed in the trace's provenance; what could not be read of it stands in SessionEnd::warnings and
// Loss. Nothing is made up: a number that the file lacks stays absent.
//
// A file that tells of failures but of no events (an error message, an allocator's dump) is read into states
// instead, one for each failure, with the same lists.
//
// To add one: a file here that defines an Importer, and its row in importer.cpp.
//
// The files are hostile: a reader holds no more than a stated multiple of what it has read, and answers with
// one sentence that says where it stopped and what it expected there.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/imported_state.h"
#include "analysis/read/trace_reader.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

class Inflater;

// A file or pipe, read once from its beginning. What is gzipped is decompressed on the way: head() and read()
// give the content, and places in it are those of the decompressed data.
class ImportSource {
  public:
    static constexpr std::size_t kHeadBytes = 65536;

    ImportSource();
    ~ImportSource();
    ImportSource(const ImportSource&) = delete;
    ImportSource& operator=(const ImportSource&) = delete;

    // Empty: opened; else the reason, in one sentence. "-" is standard input.
    std::string open(const std::string& path);
    const std::string& path() const { return path_; }
    bool is_input() const { return input_; }  // standard input: path() names no file
    // The first kHeadBytes, fewer if there are not so many. Reading begins before them all the same.
    std::string_view head() const { return {head_.data(), head_.size()}; }
    // So many bytes as are there, at least one; 0 at the end or where the file cannot be read, and then
    // problem() says which.
    std::size_t read(std::span<char> to);
    const std::string& problem() const { return problem_; }
    bool gzipped() const { return inflater_ != nullptr; }

  private:
    std::size_t read_content(std::span<char> to);
    std::size_t read_file(std::span<char> to);
    std::vector<char> first_bytes();

    std::string path_;
    bool input_ = false;
    int fd_ = -1;
    std::vector<char> head_;
    std::size_t taken_of_head_ = 0;
    std::string problem_;
    std::unique_ptr<Inflater> inflater_;  // null: the file is taken as it is
};

struct Importer {
    const char* kind;      // as `--kind` and Provenance.kind name it: "rmm-csv"
    const char* in_words;  // "RMM's CSV log"
    // Whether a file that begins so is of this kind. Never true of a trace file. Importers are asked in the
    // order of their rows, so that one that takes any text stands last.
    bool (*recognizes)(std::string_view head);
    // One of the two. Empty: read, and the trace, or each state, says what is missing from it. Else why nothing
    // of it can be used, in one sentence.
    std::string (*read)(ImportSource& source, Trace& trace) = nullptr;
    std::string (*read_states)(ImportSource& source, ImportedStates& states) = nullptr;
};

std::span<const Importer* const> importers();
// "rmm-csv (RMM's CSV log), …"
std::string kinds_in_words();

// What a file holds: a trace, or states, or neither and the reason in one sentence.
struct InputResult {
    std::optional<Trace> trace;
    std::optional<ImportedStates> states;
    std::string error;
};

// Reads a file as what it is, or as `kind` where one is named.
ReadResult import_file(const std::string& path, const std::string& kind);
// A trace, or any file that an importer takes; as `kind` where one is named. "-" is standard input.
InputResult read_input(const std::string& path, const std::string& kind);
// The same for those who need events.
ReadResult read_trace_or_import(const std::string& path);

}  // namespace fragscope::analysis
