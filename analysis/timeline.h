// The run of one process over time, thinned to a readable number of points that keep every peak.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "analysis/state.h"
#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// Keeps at most `limit` points of any number, in order: neighbours are merged in pairs, and of each pair the higher stays.
// The point of the highest weight of every series is kept apart and never lost.
class Thinner {
  public:
    explicit Thinner(std::size_t limit) : limit_(limit) {}
    void add(const report::TimelinePoint& point);
    std::vector<report::TimelinePoint> points() const;

  private:
    void take(const report::TimelinePoint& point);

    std::size_t limit_;
    std::uint64_t stride_ = 1;  // points that go into one kept point
    std::uint64_t pending_ = 0;
    report::TimelinePoint pending_point_;
    std::vector<report::TimelinePoint> kept_;
    std::map<int, report::TimelinePoint> peaks_;  // by series
};

inline constexpr std::size_t kTimelinePoints = 200;

// The whole run of a process: time lines and peaks by device, and what was never released.
struct RunOfProcess {
    std::vector<report::Timeline> timelines;
    std::vector<report::Peak> peaks;
    std::vector<report::Leak> left;
};
RunOfProcess run_of(const Trace& trace, ProcessIndex process);

}  // namespace fragscope::analysis
