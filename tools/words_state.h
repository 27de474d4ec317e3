// `fragscope state` in words: what a process held at one moment, from its message.
#pragma once

#include <string>

#include "proto/state.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

std::string render_state(const report::State& state, const Style& style);

}  // namespace fragscope::tools
