// From the ticks that the traced processes read to CLOCK_MONOTONIC nanoseconds.
//
// With an invariant time-stamp counter the shim reads only that. Here pairs of both clocks are taken over the
// session (one a second is kept, the latest one always) and ticks are interpolated between the two pairs
// around them. Each pair is the narrowest of several bracketed readings, so a converted time is off by half
// of that bracket (some tens of nanoseconds) plus what the kernel's rate correction changes within one second
// (at most 0.5 ppm per second of adjustment in practice).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/wire.h"

namespace fragscope::collector {

struct ClockPair {
    std::uint64_t ticks = 0;
    std::uint64_t ns = 0;
};

// kTsc where the processor's counter runs at one rate through all power states, as the kernel's flags say.
wire::Clock best_clock();
// True if the text of /proc/cpuinfo says so of every processor.
bool has_invariant_tsc(const std::string& cpuinfo);

std::uint64_t monotonic_ns();
std::uint64_t unix_ns();
ClockPair read_clock_pair(wire::Clock clock);

class TickConverter {
  public:
    TickConverter(wire::Clock clock, ClockPair first) : clock_(clock), kept_{first}, latest_(first) {}

    // A newer pair; pairs must not run backwards. Call before ticks read since the last call are converted.
    void add(ClockPair pair);
    // Time of a reading, or nothing where it cannot be: before the session or in the future.
    std::optional<std::uint64_t> to_ns(std::uint64_t ticks) const;
    std::uint64_t duration_ns(std::uint64_t ticks) const;
    // Over the whole session so far; 0 while not known.
    double ticks_per_ns() const;
    std::size_t pairs_kept() const { return kept_.size(); }

  private:
    wire::Clock clock_;
    std::vector<ClockPair> kept_;  // at least one, increasing
    ClockPair latest_;
};

}  // namespace fragscope::collector
