// Asks the management library (NVML) of the machine, now and then, what it says of the devices, for the
// trace. A thread of its own asks: the library may take long or hang, and nothing here waits for it but
// finish(), and that not beyond its bound.
//
// The library is loaded into this process and never into the program. It is never unloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/trace.pb.h"

namespace fragscope::collector {

inline constexpr std::uint64_t kDefaultNvmlNs = 1'000'000'000;
inline constexpr std::uint64_t kLeastNvmlNs = 10'000'000;

class Management {
  public:
    // What was told at one moment. `start_times` has one entry for each process of each device, in their
    // order: with pid_here that names the process here. 0: not known.
    struct Taken {
        trace::Readings readings;
        std::vector<std::uint64_t> start_times;
    };

    // Loads the library. `period_ns`: longest time between two questions; 0: it is not asked, and not loaded.
    explicit Management(std::uint64_t period_ns, const std::string& library = "libnvidia-ml.so.1");
    // The thread is left to itself where it hangs.
    ~Management();
    Management(const Management&) = delete;
    Management& operator=(const Management&) = delete;

    // "off", "on", or why it cannot be asked.
    const std::string& state() const { return state_; }
    // Begins to ask: at once, then ever more rarely up to the period, so that short programs are met too.
    void start();
    // Asks soon beside that, but not more often than every 20 ms.
    void ask();
    // What was told since the last call, oldest first. Does not wait.
    std::vector<Taken> take();
    // Asks once more, waits for that up to `wait_ns`, and ends the thread. The answer, or a reading that says
    // that there was none in time, is to be taken afterwards.
    void finish(std::uint64_t wait_ns);

  private:
    struct Shared;
    static void work(const std::shared_ptr<Shared>& shared);

    std::string state_;
    std::shared_ptr<Shared> shared_;  // null: it is not asked
    bool started_ = false;
};

class NvmlPids;
// What the library told, with which processes here its numbers mean, made to fit a chunk of the trace: where
// that leaves something out, it is said beside what was said before. `taken` has no start times yet.
void complete(const NvmlPids& pids, Management::Taken& taken);

}  // namespace fragscope::collector
