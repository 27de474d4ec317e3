// What the verdicts are put together from; for verdict*.cpp only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/situation.h"

namespace fragscope::analysis::verdict {

const Counterfactual* row_of(const std::vector<Counterfactual>& rows, const std::string& id);
bool fits(const std::vector<Counterfactual>& rows, const std::string& id);
void set(report::Verdict& out, report::Verdict::Cause cause, const std::string& constraint,
         const std::string& summary);
report::Verdict undetermined(const std::string& summary, const std::string& measurement);
// "of the device's 8 GiB, 2 GiB were held by nobody (cuMemGetInfo)".
std::string held_by_nobody(const Situation& situation);
// "It needs 4 GiB; of the device's …".
std::string free_and_needed(const Situation& situation);

// The smallest set of removals (among `candidates`) that fits for certain; of several, the one whose kinds
// come first in the list of Blame. Empty: there is none.
std::vector<const Counterfactual*> smallest_set(const Situation& situation,
                                                const std::vector<Counterfactual>& rows,
                                                const std::vector<const Counterfactual*>& candidates);
// Whether all candidates together might be enough.
bool might_fit(const Situation& situation, const std::vector<Counterfactual>& rows,
               const std::vector<const Counterfactual*>& candidates);

// The program itself held what would have been enough: `removals` names it.
report::Verdict own_cause(const Situation& situation, const std::vector<const Counterfactual*>& removals);
// The same where it is memory of the framework's allocator.
report::Verdict framework_cause(const Situation& situation, const Counterfactual& main);
// What only the framework's own allocator can have refused; nothing: the driver's answer explains it.
std::optional<report::Verdict> refused_by_allocator(const Situation& situation,
                                                    const std::vector<Counterfactual>& rows);
// The device was full, however it is arranged.
report::Verdict capacity(const Situation& situation, const std::vector<Counterfactual>& rows);
// The driver said no although its own numbers leave room.
report::Verdict against_the_numbers(const Situation& situation);
// Shares of what the device is taken by, largest first.
void add_shares(report::Verdict& out, const Situation& situation);

}  // namespace fragscope::analysis::verdict
