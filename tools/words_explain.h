// `fragscope explain` in words: one failed call, from an explanation message. The verdict comes first, then
// what proves it, then what to do, then what is not known.
#pragma once

#include <string>

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

std::string render_explanation(const report::Explanation& explanation, const Style& style);

}  // namespace fragscope::tools
