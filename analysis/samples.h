// The balances between the program's calls: what the shim asked the driver at its samples (kSampleEnd).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "analysis/activity.h"
#include "analysis/balance.h"
#include "analysis/state.h"

namespace fragscope::analysis {

// A readable number of balances of one device.
inline constexpr std::size_t kReadableSamples = 256;

// Watches the replay of one process and keeps a balance of each device at its samples: the first, the last,
// the one with the most taken, and `kept` to twice as many of the others, evenly thinned. Without the other
// processes' parts.
class SampleRecorder {
  public:
    // `activity` is the process's, and outlives this.
    SampleRecorder(const Trace& trace, ProcessIndex process, const Activity& activity,
                   std::size_t kept = kReadableSamples);
    ~SampleRecorder();
    SampleRecorder(SampleRecorder&&) noexcept;

    // `state` after the event. Every event, in order.
    void add(const ProcessState& state, const Event& event);
    // In order of time.
    std::vector<Balance> take();

  private:
    struct Work;
    std::unique_ptr<Work> work_;
};

// Adds what other processes held at each balance's moment.
void add_neighbours(const Trace& trace, std::vector<Balance>& balances);

}  // namespace fragscope::analysis
