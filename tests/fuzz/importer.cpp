// Any bytes as a file of one kind (FRAGSCOPE_FUZZ_KIND, as `import --kind` takes it): they are imported, or refused in
// one sentence, and what was imported is told and replayed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "analysis/explain.h"
#include "analysis/explain_state.h"
#include "analysis/failures.h"
#include "analysis/health.h"
#include "analysis/read/importer.h"
#include "analysis/session.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace fragscope;

void must(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "%s\n", what);
    std::abort();
}

// A file with a name, gone with the object: SQLite looks for its neighbours.
class File {
  public:
    File(const std::uint8_t* data, std::size_t size) {
        const int file = ::mkstemp(path_.data());
        must(file >= 0 && ::write(file, data, size) == static_cast<ssize_t>(size), "no room for a file");
        ::close(file);
    }
    ~File() { ::unlink(path_.c_str()); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_ = (std::filesystem::temp_directory_path() / "fragscope-fuzz-XXXXXX").string();
};

void look_at(const analysis::Trace& trace) {
    must(trace.session.has_provenance(), "a trace that does not say where it is from");
    (void)analysis::health_of(trace);
    analysis::SessionWalk walk(trace);
    for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
        std::uint64_t last = 0;
        for (const analysis::Event& event : trace.events[process]) {
            must(event.sequence.value >= last, "sequence numbers fall");
            last = event.sequence.value;
        }
        (void)walk.at_the_end({process});
    }
    if (!analysis::list_failures(trace).empty()) (void)analysis::explain_failure(trace, 0, {});
}

void look_at(const analysis::Interval& amount) {
    must(!amount.low || !amount.high || *amount.low <= *amount.high, "an amount whose ends are not in order");
}

void look_at(const analysis::ImportedStates& states) {
    constexpr std::size_t kExplained = 8;  // the same again and again shows nothing new
    for (std::size_t i = 0; i < states.states.size(); ++i) {
        const analysis::ImportedState& state = states.states[i];
        must(!state.kind.empty() && !state.scenario.title.empty(), "a state without a kind or a title");
        look_at(state.scenario.request.bytes);
        look_at(state.scenario.device.capacity);
        for (const analysis::ScenarioSegment& segment : state.scenario.segments) {
            look_at(segment.bytes);
            for (const analysis::ScenarioBlock& block : segment.blocks) look_at(block.bytes);
        }
        if (i < kExplained) (void)analysis::explain_state(states, i);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const File file(data, size);
    const analysis::InputResult result = analysis::read_input(file.path(), FRAGSCOPE_FUZZ_KIND);
    const int answers = (result.trace ? 1 : 0) + (result.states ? 1 : 0) + (result.error.empty() ? 0 : 1);
    must(answers == 1, "not exactly one of a trace, states, and a reason");
    must(result.error.find('\n') == std::string::npos, "a reason of several lines");
    if (result.trace) look_at(*result.trace);
    if (result.states) look_at(*result.states);
    return 0;
}
