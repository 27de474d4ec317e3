// Where a device's memory was, as a sum that adds up: for `report` (several moments) and `explain` (one).
#pragma once

#include <set>
#include <string>

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// `explained`: ids of parts whose way of knowing was said already; it is said once a page.
void put_balance(Page& page, const report::Balance& balance, std::set<std::string>& explained);

void put_balances(Page& page, const report::Report& report);

}  // namespace fragscope::tools
