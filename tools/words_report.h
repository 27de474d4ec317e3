// `fragscope report` in words: the whole run, from a report message.
#pragma once

#include <string>

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

std::string render_report(const report::Report& report, const Style& style);

// The lines at the top of both report and explain: what is missing, before anything that rests on it.
void put_health(Page& page, const report::Health& health);

}  // namespace fragscope::tools
