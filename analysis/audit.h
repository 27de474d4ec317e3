// The audit table: every quantity of the backing model at one failure, from one snapshot, each with its
// definition, the way it is known and its scope. What is not known stands there as unknown, with the reason.
#pragma once

#include <vector>

#include "analysis/situation.h"

namespace fragscope::analysis {

std::vector<report::Quantity> audit_of(const Situation& situation);
// Physical, virtual, and each pool; never two of them in one ratio.
std::vector<report::Domain> domains_of(const Situation& situation);

}  // namespace fragscope::analysis
