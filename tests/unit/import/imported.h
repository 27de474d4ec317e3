// Files of other tools for tests: text in, the importer's answer out.
#pragma once

#include <string>
#include <string_view>

#include "analysis/read/importer.h"

namespace fragscope::test {

// Writes the text to a file of this name in a folder that is gone at the end, and imports it.
analysis::ReadResult import_text(std::string_view text, const std::string& kind = "",
                                 const std::string& name = "log.csv");

// The text as one member of gzip, made by zlib.
std::string gzipped(std::string_view text);

// The same for what may be a trace or states.
analysis::InputResult read_text(std::string_view text, const std::string& kind = "",
                                const std::string& name = "job.log");

// One event a line, in short: "allocate 7f00 1024 @4711 +1000" with times in ns since the first one.
std::string events_in_words(const analysis::Trace& trace);

// All warnings, one a line.
std::string warnings_of(const analysis::Trace& trace);

}  // namespace fragscope::test
