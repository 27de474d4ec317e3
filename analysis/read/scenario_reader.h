// Reads scenarios (SCENARIOS.md): one JSON object a line, each a memory state and one failed request.
//
// A line is taken whole or not at all: what is unknown in it, contradicts itself or cannot be, is answered by
// one sentence that says where, what was expected and what stands there. Nothing is silently ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/read/importer.h"
#include "analysis/read/line_reader.h"
#include "analysis/scenario.h"

namespace fragscope::analysis {

// A longer line is refused: a case of ten thousand blocks takes one megabyte.
inline constexpr std::size_t kMaxScenarioBytes = std::size_t{16} << 20;

struct ScenarioText {
    std::optional<Scenario> scenario;
    std::string problem;  // "column 12, events[3].bytes: expected …"; empty: it was read
};

// One line without its end.
ScenarioText read_scenario(std::string_view line);
// An amount in words, "15.90 GiB": the interval of its last decimal place. Nothing: it is none.
std::optional<Interval> amount_in_words(std::string_view text);

struct ScenarioLine {
    std::uint64_t number = 0;
    ScenarioText text;
};

class ScenarioFile {
  public:
    // Empty: opened; else the reason, in one sentence. "-" is standard input.
    std::string open(const std::string& path);
    // The next line that is not empty. False: there are none, or reading failed (`problem`).
    bool next(ScenarioLine& out);
    const std::string& problem() const { return source_.problem(); }

  private:
    ImportSource source_;
    LineReader lines_{source_, kMaxScenarioBytes};
};

}  // namespace fragscope::analysis
