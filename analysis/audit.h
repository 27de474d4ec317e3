// The audit table: every quantity of the backing model at one moment, from one snapshot, each with its
// definition, the way it is known and its scope. The order is fixed; no definition is left out, and none
// stands there twice for the same thing (`of`). What is not known stands there as unknown, with the reason.
//
// No order between reserved, committed and resident is assumed: sparse mappings, aliases and managed memory
// break every one.
#pragma once

#include <vector>

#include "analysis/situation.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// Every definition that the table has at least one row of, in its order.
const std::vector<Definition>& audit_order();

// `domains` and `bounds`: of the same situation (domains_of, bounds_of); their numbers are rows of the table.
std::vector<report::Quantity> audit_of(const Situation& situation, const std::vector<report::Domain>& domains,
                                       const std::vector<report::Bound>& bounds);

}  // namespace fragscope::analysis
