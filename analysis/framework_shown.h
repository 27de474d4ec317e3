// A framework allocator's books as a message.
#pragma once

#include <vector>

#include "analysis/framework.h"
#include "analysis/trace.h"
#include "proto/state.pb.h"

namespace fragscope::analysis {

// One for each device that the framework's allocator told of, by ordinal.
std::vector<report::FrameworkAllocator> framework_shown(const FrameworkState& books, const Trace& trace,
                                                        ProcessIndex process);

}  // namespace fragscope::analysis
