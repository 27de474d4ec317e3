// A collector for tests: makes a session's shared memory, starts a program under the shim, and keeps what
// arrives, as it arrived. Single-threaded; a test decides when the rings are emptied.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/ring.h"
#include "proto/wire.h"

namespace fragscope::preload_test {

struct Options {
    std::uint32_t process_slots = 8;
    std::uint32_t ring_count = 4;
    std::uint32_t ring_records = 4096;
    std::uint64_t wait_ns = 2'000'000'000;
    bool touches = true;
    bool calls = false;
    bool probe_on_oom = false;
    std::uint64_t probe_ns = 1'000'000'000, probe_bytes = UINT64_MAX;
    std::uint64_t sample_ns = UINT64_MAX, sample_bytes = UINT64_MAX;  // never
    std::uint64_t stack_bytes = UINT64_MAX;  // no stacks
    bool stack_failures = false;
    std::int64_t collector_pid = 0;  // 0: this process
};

// Texts of kind kModule and kStack, taken apart.
struct SentModule {
    wire::ModuleText head{};
    std::string build_id, path;
};
struct SentStack {
    wire::StackText head{};
    std::vector<std::uint64_t> frames;
};

// What one process sent.
struct Sent {
    std::int32_t pid = 0;
    std::vector<wire::Record> records;               // in the order of their numbers, without texts
    std::map<std::uint16_t, std::string> functions;  // names by number
    std::map<wire::TextKind, std::string> texts;     // whole ones, but for those with an id
    std::map<std::uint32_t, std::string> strings;    // kString by id
    std::vector<std::string> thread_names;           // as they came
    std::map<std::uint32_t, SentModule> modules;     // by id
    std::map<std::uint32_t, SentStack> stacks;       // by id
    std::map<std::uint32_t, int> stack_texts;        // how often each was told
    std::uint64_t launches = 0, opaque_writes = 0, lookups = 0, lookups_hooked = 0, lookups_unmatched = 0;
    std::uint64_t threads_without_ring = 0, records_without_ring = 0;
    std::uint64_t lost_acquisitions = 0, lost_releases = 0, lost_others = 0, lost_acquired_bytes = 0;
    std::vector<wire::Record> of(wire::Kind kind) const;
};

struct Outcome {
    int status = 0;      // of the program: exit status, or 128 + signal
    std::string output;  // its stdout and stderr
};

class Session {
  public:
    explicit Session(const Options& options = {});
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const std::string& name() const { return name_; }
    wire::SessionHeader& header() { return *header_; }
    wire::ProcessSlot& process(std::uint32_t index) { return processes_[index]; }
    wire::RingHeader& ring(std::uint32_t index) { return rings_[index]; }

    // Takes everything out of the rings, and rings and slots that were given back into use again.
    void drain();
    // Runs to its end with the shim and this session, emptying the rings all the while unless `collect` is
    // false.
    Outcome run(const std::vector<std::string>& command, const std::vector<std::string>& variables = {},
                bool collect = true);
    // As the last one, with these libraries preloaded, in this order.
    Outcome run_preloaded(const std::string& libraries, const std::vector<std::string>& command);
    // The texts of kind kString that the process in the slot has sent by now.
    const std::map<std::uint32_t, std::string>& strings(std::uint32_t index) const { return live_.at(index).strings; }
    // In the order of their first appearance, after drain().
    std::vector<Sent> sent();

  private:
    struct Text;
    void take(std::uint32_t ring, const wire::Record& record);
    void finish_process(std::uint32_t index);

    std::string name_;
    Options options_;
    unsigned char* memory_ = nullptr;
    std::size_t size_ = 0;
    wire::SessionHeader* header_ = nullptr;
    wire::ProcessSlot* processes_ = nullptr;
    wire::RingHeader* rings_ = nullptr;
    std::vector<wire::RingReader> readers_;
    std::vector<std::string> partial_;  // by ring: the text being put together
    std::vector<Sent> finished_;
    std::vector<Sent> live_;  // by slot
};

// Starts a program with the shim preloaded and FRAGSCOPE_SESSION set to `session` (empty: not set).
Outcome run_with_shim(const std::string& session, const std::vector<std::string>& command,
                      const std::vector<std::string>& variables = {});
Outcome run_plain(const std::vector<std::string>& command, const std::vector<std::string>& variables = {});

// Paths that the build passes to the test program.
struct Paths {
    std::string shim, victim, families, probe, lookups, driver, old_driver, simulated_driver, rival,
        rival_without_dlsym, marks, moments, nvtx_tool, blocks, framework;
};
Paths& paths();

}  // namespace fragscope::preload_test
