// Which places of the program held the memory when a device held most of this process's: by call stack, with
// what has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "analysis/callers.h"
#include "analysis/session.h"
#include "analysis/state.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

inline constexpr std::size_t kSitesShown = 10;

// Finds the moment of each device, in the replay of one process.
class FullestMoment {
  public:
    // `state` after the event. Every event, in order.
    void add(const ProcessState& state, const Event& event);
    // Index of the event after which most was live, by device.
    std::map<int, std::size_t> moments() const;

  private:
    struct Most {
        std::uint64_t bytes = 0;
        std::size_t index = 0;
    };
    std::map<int, Most> most_;
    std::size_t index_ = 0;
};

// What the program asked for and holds on the device, as far as a call stack could say who did.
std::uint64_t live_bytes(const ProcessState& state, int device);

// Moves the walk to those moments; `visit` gets the states after the event.
void at_moments(
    const Trace& trace, SessionWalk& walk, ProcessIndex process, const std::map<int, std::size_t>& moments,
    const std::function<void(int device, const ProcessState&, const FrameworkState&, const Event&)>& visit);

// Nothing where the process has no call stacks.
std::optional<report::LiveAtPeak> live_at_peak(const Trace& trace, ProcessIndex process,
                                               const ProcessState& state, int device, const Event& event,
                                               const StackWords& words);

}  // namespace fragscope::analysis
