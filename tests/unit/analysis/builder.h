// Builds traces in memory for the tests of the analysis: one call, one line.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "analysis/trace.h"

namespace fragscope::test {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;
inline constexpr std::uint64_t kContext = 0xc0;

class SessionBuilder;

// Appends the events of one process. Times go up by one microsecond a call and are shared by the whole
// session.
class ProcessBuilder {
  public:
    ProcessBuilder(SessionBuilder& session, std::uint32_t index) : session_(&session), index_(index) {}

    ProcessBuilder& thread(std::int32_t id);
    ProcessBuilder& linear(std::uint64_t address, std::uint64_t bytes, std::uint64_t context = kContext);
    ProcessBuilder& free(std::uint64_t address);
    ProcessBuilder& reserve(std::uint64_t address, std::uint64_t bytes);
    ProcessBuilder& unreserve(std::uint64_t address, std::uint64_t bytes);
    ProcessBuilder& create(std::uint64_t handle, std::uint64_t bytes);
    ProcessBuilder& release(std::uint64_t handle);
    ProcessBuilder& retain(std::uint64_t handle, std::uint64_t address);
    ProcessBuilder& map(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle);
    ProcessBuilder& unmap(std::uint64_t address, std::uint64_t bytes);
    ProcessBuilder& touch(std::uint64_t address, std::uint64_t bytes);
    ProcessBuilder& pool_take(std::uint64_t address, std::uint64_t bytes, std::uint64_t pool,
                              std::uint64_t stream = 7);
    ProcessBuilder& pool_give(std::uint64_t address, std::uint64_t stream = 7);
    ProcessBuilder& synchronize(std::uint64_t stream);
    // Any other event; sequence, time and thread are filled in.
    ProcessBuilder& event(analysis::Event event);

    // The last call failed instead; memory answers CUDA_ERROR_OUT_OF_MEMORY.
    ProcessBuilder& failed(std::uint16_t result = 2);
    // What the driver said right after it.
    ProcessBuilder& snapshot(std::uint64_t free, std::uint64_t total, std::int16_t device = 0);
    ProcessBuilder& snapshot_pool(std::uint64_t pool, std::uint64_t used, std::uint64_t reserved,
                                  std::uint64_t maximum = 0);
    ProcessBuilder& snapshot_graphs(std::uint64_t used, std::uint64_t reserved, std::int16_t device = 0);
    ProcessBuilder& snapshot_end(unsigned flags = 0, std::uint64_t pools_not_asked = 0);

    // What the shim asked the driver between two calls.
    ProcessBuilder& sample(std::uint64_t free, std::uint64_t total, std::int16_t device = 0);
    ProcessBuilder& sample_pool(std::uint64_t pool, std::uint64_t used, std::uint64_t reserved);
    ProcessBuilder& sample_graphs(std::uint64_t used, std::uint64_t reserved, std::int16_t device = 0);
    ProcessBuilder& sample_end(std::uint64_t pools_not_asked = 0);

    // What the shim tried after the failed call; `result` 0: granted.
    ProcessBuilder& probe(wire::ProbeMechanism mechanism, std::uint64_t bytes, std::uint16_t result);
    ProcessBuilder& probes_end(wire::ProbesEnd end = wire::ProbesEnd::kFinished);

    // Any other call of the program.
    ProcessBuilder& call(wire::Kind kind, std::uint64_t address = 0, std::uint64_t bytes = 0,
                         std::uint64_t object = 0, std::uint64_t extra = 0);

    // The last event was on another device, or on none that is known.
    ProcessBuilder& on(std::int16_t device);
    ProcessBuilder& flagged(unsigned flags);
    // The last call began `early_ns` before it would have, and ended `late_ns` after.
    ProcessBuilder& lasted(std::uint64_t early_ns, std::uint64_t late_ns);
    ProcessBuilder& stack(std::uint32_t id);
    // One more device of this process, with the next ordinal.
    ProcessBuilder& another_device(std::uint64_t capacity, char uuid);

    std::uint64_t last_sequence() const;
    trace::Process& process();
    trace::Loss& loss();

  private:
    ProcessBuilder& add(wire::Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                        std::uint64_t extra);
    ProcessBuilder& ask(wire::Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                        std::uint64_t extra, unsigned flags = wire::kByShim | wire::kSnapshot);

    SessionBuilder* session_;
    std::uint32_t index_;
    std::int32_t thread_ = 1;
    std::uint64_t failed_sequence_ = 0;
};

class SessionBuilder {
  public:
    SessionBuilder();
    // A process with one device of this capacity; all processes share it unless `uuid` differs. Losses:
    // counted, none.
    ProcessBuilder& process(std::uint64_t capacity = 8 * kGiB, char uuid = 'A');
    analysis::Trace& trace() { return trace_; }
    std::uint64_t tick();

  private:
    analysis::Trace trace_;
    std::deque<ProcessBuilder> builders_;
    std::uint64_t now_ = 1'000'000;
};

}  // namespace fragscope::test
