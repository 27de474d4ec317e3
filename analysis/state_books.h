// The driver's layers of a process's state as a message.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/sharing.h"
#include "analysis/state.h"
#include "analysis/trace.h"
#include "proto/state.pb.h"

namespace fragscope::analysis {

// Fills the lists and sums of `out` that speak of the driver's own things, all of them whole.
void show_books(const ProcessState& state, const Trace& trace, ProcessIndex process, report::State& out);

// Adds to such a message who else opened what is in it, as it was at this time of the clock.
void show_sharing(const Sharing& sharing, const Trace& trace, ProcessIndex process, std::uint64_t clock_ns,
                  report::State& out);

// "device 0", "host NUMA node 1": a location as records pack it.
std::string location_in_words(std::uint64_t packed);

}  // namespace fragscope::analysis
