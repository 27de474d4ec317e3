// `fragscope state` in words: what a process held at one moment, from its message.
#pragma once

#include <string>

#include "proto/state.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// `only`: "driver" or "framework", where the message was asked for with that part only.
std::string render_state(const report::State& state, const Style& style, const std::string& only = "");

}  // namespace fragscope::tools
