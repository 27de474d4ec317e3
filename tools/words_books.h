// The driver's layers of one process at one moment, in words: address space, physical memory, who may reach
// it, pools, and memory of others. The framework's layer is in words_state.cpp.
#pragma once

#include "proto/state.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// Sums by device, then the largest of each layer; where a list is cut that is said.
void put_books(Page& page, const report::State& state);

}  // namespace fragscope::tools
