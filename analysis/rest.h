// What may lie in the rest of a balance: the device memory that no record states.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/state.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// Things that take device memory whose size no call states, and that exist now; for people, without full
// stops.
std::vector<std::string> in_the_rest(const ProcessState& state, int device);

// What the records of the process between two events (by index, `to` excluded) can have changed in the rest,
// in words. It happened in between; that it is the cause is not proven by that.
std::vector<std::string> happened_between(const Trace& trace, ProcessIndex process, std::size_t from,
                                          std::size_t to);

}  // namespace fragscope::analysis
