// See answer.h.
#include "tools/answer.h"

#include <cstdio>

#include "tools/command.h"
#include "tools/words_json.h"

namespace fragscope::tools {

std::optional<analysis::Trace> read_or_complain(const std::string& path) {
    analysis::ReadResult read = analysis::read_trace_or_import(path);
    if (!read.trace) complain(read.error);
    return std::move(read.trace);
}

std::optional<analysis::InputResult> read_input_or_complain(const std::string& path, const std::string& kind) {
    analysis::InputResult read = analysis::read_input(path, kind);
    if (read.trace || read.states) return read;
    complain(read.error);
    return std::nullopt;
}

bool write_answer(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
        return true;
    complain("the answer cannot be written to standard output");
    return false;
}

bool write_json(const google::protobuf::Message& message) {
    const std::optional<std::string> line = json_line(message);
    if (line) return write_answer(*line + "\n");
    complain("the answer holds text that is not UTF-8, and cannot be written as JSON");
    return false;
}

int status_of(const report::Health& health) { return health.complete() ? kDone : kIncompleteTrace; }

}  // namespace fragscope::tools
