// What calls of each kind cost a process in this very trace: what it would cost to make such a call again.
// Whole traces are looked at, calls after a moment too: a duration is no state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/costs.h"
#include "analysis/trace.h"
#include "proto/quantity.pb.h"

namespace fragscope::analysis {

// By kind, the times of that function of the kind that was called most. Calls that failed, the shim's own and
// those without a measured duration do not count.
using TimesByKind = std::map<wire::Kind, report::CallTimes>;

class CallTimesWatch {
  public:
    // Every event of the process.
    void add(const Event& event);
    TimesByKind times(const std::vector<std::string>& functions) const;  // names by FunctionId

  private:
    struct Timed {
        FunctionId function;
        DurationHistogram durations;
    };
    std::array<std::vector<Timed>, static_cast<std::size_t>(wire::kLastKind) + 1> by_kind_;
};

report::CallTimes times_in(const DurationHistogram& durations, const std::string& function);

}  // namespace fragscope::analysis
