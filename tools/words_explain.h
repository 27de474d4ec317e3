// `fragscope explain` in words: one failed call, from an explanation message. The verdict comes first, then
// what proves it, then what to do, then what is not known.
#pragma once

#include <string>

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// kBrief: what a person came for, the cause, what to do and what-if, without what it rests on.
enum class Pages { kWhole, kBrief };

std::string render_explanation(const report::Explanation& explanation, const Style& style,
                               Pages pages = Pages::kWhole);

}  // namespace fragscope::tools
