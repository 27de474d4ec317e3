// Fragmentation over time: what a framework's allocator held, after every event, thinned; and F, L and the
// external ratio of each domain, at samples.
//
// A sample walks over all that is live, so where much is live, half as many events lie between two of them as
// the last one visited extents: the price for each event stays constant. Memory is constant too: samples are
// thinned as they come. What lies between two of them was not looked at.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/framework.h"
#include "analysis/free_extents.h"
#include "analysis/state.h"
#include "analysis/thinner.h"
#include "analysis/trace.h"
#include "proto/measures.pb.h"

namespace fragscope::analysis {

inline constexpr std::size_t kCurvePoints = 200;

// Watches the replay of one process.
class CurveRecorder {
  public:
    CurveRecorder(const Trace& trace, ProcessIndex process) : trace_(&trace), process_(process) {}

    // The states after the event. Every event, in order.
    void add(const ProcessState& state, const FrameworkState& framework, const Event& event);
    // After the last event.
    void finish(const ProcessState& state, const FrameworkState& framework);

    std::vector<report::DomainCurve> domains(const ProcessState& at_end,
                                             const FrameworkState& framework) const;
    std::vector<report::AllocatorCurve> allocators(const FrameworkState& framework) const;

    // Extents that all samples together looked at.
    std::uint64_t visited() const { return all_visited_; }
    // A sample that visits no more than this may be taken after every event, as long as they are not thinned.
    static constexpr std::uint64_t kSmall = 256;

  private:
    struct AllocatorPoint {
        std::uint64_t time_ns = 0;
        std::uint64_t sequence = 0;
        std::uint64_t live = 0;
        std::uint64_t waiting = 0;
        std::uint64_t cached = 0;
        std::uint64_t reserved = 0;
        std::uint64_t weight() const { return reserved; }
    };
    struct Allocator {
        Thinner<AllocatorPoint> thinner{kCurvePoints - 4};
        AllocatorPoint most_reserved, most_live, most_cached, last;
    };
    // One domain at one sample.
    struct Measured {
        std::uint64_t sum = 0;
        std::uint64_t largest = 0;
        std::uint64_t count = 0;
    };
    struct Sample {
        std::uint64_t time_ns = 0;
        std::uint64_t sequence = 0;
        bool cut = false;  // there were more domains than are looked at: one that is not here may have been
        std::map<std::pair<int, std::string>, Measured>
            domains;  // by ordinal (kNoDevice: addresses) and name
    };
    struct PoolPoint {
        std::uint64_t time_ns = 0;
        std::uint64_t sequence = 0;
        std::uint64_t kept = 0;
        std::uint64_t weight() const { return kept; }
    };

    void follow_allocators(const FrameworkState& framework, const Event& event);
    void follow_pool(const ProcessState& state, const Event& event);
    void sample(const ProcessState& state, const FrameworkState& framework);

    const Trace* trace_;
    ProcessIndex process_;
    std::map<int, Allocator> allocators_;
    std::map<ObjectId, Thinner<PoolPoint>> pools_;
    std::vector<Sample> samples_;
    std::uint64_t stride_ = 1;   // events between two samples, at least
    std::uint64_t visited_ = 0;  // extents, by the last sample
    std::uint64_t all_visited_ = 0;
    std::uint64_t since_ = 0;    // events since then
    std::uint64_t longest_ = 0;  // events that lay between two samples that are kept
    TimeNs now_;
    Sequence sequence_;
};

}  // namespace fragscope::analysis
