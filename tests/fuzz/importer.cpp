// Any bytes as a file of one kind (FRAGSCOPE_FUZZ_KIND, as `import --kind` takes it): they are imported, or refused in
// one sentence, and what was imported is told and replayed.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "analysis/explain.h"
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const int file = ::memfd_create("fuzz", MFD_CLOEXEC);
    must(file >= 0 && ::write(file, data, size) == static_cast<ssize_t>(size), "no memory for a file");
    const analysis::ReadResult result =
        analysis::import_file("/proc/self/fd/" + std::to_string(file), FRAGSCOPE_FUZZ_KIND);
    ::close(file);
    must(result.trace.has_value() != !result.error.empty(), "neither a trace nor a reason, or both");
    if (!result.trace) {
        must(result.error.find('\n') == std::string::npos, "a reason of several lines");
        return 0;
    }
    const analysis::Trace& trace = *result.trace;
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
    return 0;
}
