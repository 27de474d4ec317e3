// What has to be so for each way of backing a request to serve it: capability, contract, backing, addresses,
// relocation. Each is established, refuted, or not known with what would tell; a way with one that is not
// established is never more than a hypothesis.
#pragma once

#include <vector>

#include "analysis/mechanism_ways.h"
#include "analysis/situation.h"
#include "proto/mechanisms.pb.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// `bounds`: of the same situation. Without a failed request (`of_a_moment` false) nothing is said of what was
// there to be had.
std::vector<report::Prerequisite> needs_of(const Situation& situation, const Way& way,
                                           const std::vector<report::Bound>& bounds, bool of_a_moment);

report::Mechanism::Standing standing_of(const std::vector<report::Prerequisite>& needs);
// One sentence: what fails, or what is not established.
std::string reason_of(const std::vector<report::Prerequisite>& needs);

}  // namespace fragscope::analysis
