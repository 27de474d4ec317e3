// Call stacks and phases in words: where in the program something happened, for `report` and `explain`.
#pragma once

#include <cstddef>
#include <string>

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// At most `most` frames, the innermost first; how many were left out is said.
void put_stack(Page& page, const report::CallStack& stack, int indent, std::size_t most);

// What a device's memory was held by when most of it was.
void put_live_at_peaks(Page& page, const report::Report& report);
// What an imported profile says was alive, by kind and device.
void put_held(Page& page, const report::Report& report);

}  // namespace fragscope::tools
