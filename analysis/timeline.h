// The run of one process over time, thinned to a readable number of points that keep every peak.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "analysis/state.h"
#include "analysis/thinner.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// Bytes held at one moment, by series; see report::TimelinePoint.
struct Moment {
    std::uint64_t time_ns = 0;
    std::uint64_t sequence = 0;
    std::uint64_t handles = 0;
    std::uint64_t linear = 0;
    std::uint64_t pool_live = 0;
    std::uint64_t reserved = 0;
    std::uint64_t mapped = 0;
    std::uint64_t arrays = 0;
    std::optional<std::uint64_t> pool_reserved;
    std::optional<std::uint64_t> device_free;

    // What the moment weighs against its neighbours when one of them has to go.
    std::uint64_t weight() const {
        return handles + linear + arrays + std::max(pool_live, pool_reserved.value_or(0));
    }
};

inline constexpr std::size_t kTimelinePoints = 200;

// The whole run of a process: time lines and peaks by device, and what was never released.
struct RunOfProcess {
    std::vector<report::Timeline> timelines;
    std::vector<report::Peak> peaks;
    std::vector<report::Leak> left;
};

// Watches the replay of one process; its memory does not grow with the number of events.
class RunRecorder {
  public:
    RunRecorder(const Trace& trace, ProcessIndex process);
    ~RunRecorder();
    RunRecorder(RunRecorder&&) noexcept;

    // `state` after the event. Every event, in order.
    void add(const ProcessState& state, const Event& event);
    // `state` after the last one.
    RunOfProcess result(const ProcessState& state) const;

  private:
    struct Lines;
    const Trace* trace_;
    ProcessIndex process_;
    std::unique_ptr<Lines> lines_;
};

}  // namespace fragscope::analysis
