// Allocations that the shim tried right after a failed call and undid (--probe-on-oom). Each speaks of its
// own mechanism, size and moment, and of nothing else: one that was granted witnesses that so much fitted,
// one that was refused bounds that mechanism from above. They are no failures of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/trace.h"

namespace fragscope::analysis {

struct Probe {
    wire::ProbeMechanism mechanism = wire::ProbeMechanism::kDirect;
    std::uint64_t bytes = 0;
    std::uint16_t result = 0;
    std::uint64_t duration_ns = 0;
    std::uint64_t granularity = 0;
    // Other threads gave something back, or took something, between the failure and the trial: a grant, or a
    // refusal, then says nothing of the failure's moment.
    bool after_a_release = false;
    bool after_an_acquisition = false;

    bool granted() const { return result == 0; }
};

struct Probes {
    std::vector<Probe> tried;  // in order
    std::optional<wire::ProbesEnd> end;
    std::uint64_t took_ns = 0;
    std::uint64_t most_at_once = 0;  // bytes

    // Largest that was granted, in the state of the failure; 0: none.
    std::uint64_t granted(wire::ProbeMechanism mechanism) const;
    // Smallest that was refused for want of memory, in the state of the failure, and is larger than what was
    // granted; nothing: none.
    std::optional<std::uint64_t> refused(wire::ProbeMechanism mechanism) const;
};

// `failed`: index of the failed call.
Probes probes_of(const EventLog& events, std::size_t failed);

// As report::Bound names it: "direct", "vmm", …; empty for a number that is none.
std::string mechanism_id(wire::ProbeMechanism mechanism);
// How the trials ended, for people; empty where there were none.
std::string ended_in_words(const Probes& probes);

}  // namespace fragscope::analysis
