// The contiguity contract of a request as a section of a page.
#pragma once

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

// Nothing where the explanation has no contract.
void put_contract(Page& page, const report::Explanation& explanation);

}  // namespace fragscope::tools
