// A recording from beginning to end: shared memory, file, program, drain. What `fragscope run` does apart
// from words.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collector/launch.h"
#include "collector/management.h"
#include "collector/ring_host.h"
#include "collector/sink.h"

namespace fragscope::collector {

struct RecordOptions {
    std::vector<std::string> program;  // with its arguments; not empty
    // Empty: fragscope-<program>-<its pid>.fst, numbered if that exists.
    std::string output;
    bool replace_output = false;
    std::string shim;  // path of libfragscope.so
    bool nvtx = true;  // have the program's NVTX calls come to the shim
    SessionOptions session;
    std::uint64_t nvml_ns = kDefaultNvmlNs;  // how often the management library is asked; 0: never
    std::uint64_t linger_ns = 1'000'000'000;  // how long to go on for processes that outlive the program
};

struct RecordOutcome {
    // Of fragscope itself: the program's, or 125 to 127 where it did not start and `error` says why.
    int status = 0;
    std::string error;
    // Why nothing, or not all, could be recorded, one sentence each; in the trace too.
    std::vector<std::string> warnings;
    bool started = false;
    std::optional<Ended> program;
    std::string file;
    std::uint64_t file_bytes = 0;
    std::uint32_t processes = 0;
    std::uint32_t processes_refused = 0;
    std::uint32_t still_running = 0;
    std::uint64_t events = 0;  // in the file
    std::uint64_t failures = 0;
    std::uint64_t records_lost = 0;
    std::uint64_t records_refused = 0;
    std::uint64_t rings_damaged = 0;
    std::uint64_t events_not_written = 0;
    std::string write_problem;  // why the file is not complete; empty: it is
};

// `say` gets sentences that the user should read before the program starts.
RecordOutcome record(const RecordOptions& options, const std::function<void(const std::string&)>& say);

}  // namespace fragscope::collector
