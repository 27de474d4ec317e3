// A framework allocator's books as a message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/framework.h"
#include "analysis/trace.h"
#include "proto/state.pb.h"

namespace fragscope::analysis {

// One for each device that the framework's allocator told of, by ordinal.
std::vector<report::FrameworkAllocator> framework_shown(const FrameworkState& books, const Trace& trace,
                                                        ProcessIndex process);

// A segment's pool by its name, "default"; empty: not told.
std::string pool_in_words(const Trace& trace, ProcessIndex process, std::uint32_t pool);

}  // namespace fragscope::analysis
