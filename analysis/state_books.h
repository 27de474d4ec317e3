// The driver's layers of a process's state as a message.
#pragma once

#include "analysis/state.h"
#include "analysis/trace.h"
#include "proto/state.pb.h"

namespace fragscope::analysis {

// Fills the lists and sums of `out` that speak of the driver's own things, all of them whole.
void show_books(const ProcessState& state, const Trace& trace, ProcessIndex process, report::State& out);

}  // namespace fragscope::analysis
