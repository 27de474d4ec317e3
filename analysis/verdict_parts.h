// What the verdicts are put together from; for verdict*.cpp only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/removal.h"
#include "analysis/situation.h"

namespace fragscope::analysis::verdict {

const Counterfactual* row_of(const std::vector<Counterfactual>& rows, const std::string& id);
bool fits(const std::vector<Counterfactual>& rows, const std::string& id);
void set(report::Verdict& out, report::Verdict::Cause cause, const std::string& constraint,
         const std::string& summary);
report::Verdict undetermined(const std::string& summary, const std::string& measurement);
// "the exact bytes of capacity, context_bytes": of a state that a person wrote down.
std::string exact_amounts(const Situation& situation);
// "of the device's 8 GiB, 2 GiB were held by nobody (cuMemGetInfo)".
std::string held_by_nobody(const Situation& situation);
// "It needs 4 GiB; of the device's …".
std::string free_and_needed(const Situation& situation);

using Removals = std::vector<const Counterfactual*>;

// What a removal is the cause of, where it is all that has to go.
struct NamedCause {
    report::Verdict::Cause cause = report::Verdict::cause_unspecified;
    std::string constraint;
    bool operator==(const NamedCause&) const = default;
};
NamedCause cause_of(const Situation& situation, const Counterfactual& row);

// What the request would stand before without `removed`.
Standing standing_without(const Situation& situation, const std::vector<Counterfactual>& rows,
                          const Removals& removed);
// In the order in which one of several is named; see verdict.h.
void in_order_of_naming(Removals& candidates);
// The smallest set of removals (among `candidates`, in that order) that fits for certain, or, with `at_least`
// at kCannotTell, that may fit; of several, the one whose members come first. Empty: there is none.
Removals smallest_set(const Situation& situation, const std::vector<Counterfactual>& rows,
                      const Removals& candidates, Fit at_least = Fit::kFits);
// Whether all candidates together might be enough.
bool might_fit(const Situation& situation, const std::vector<Counterfactual>& rows,
               const Removals& candidates);
// The one on which most of the margin rests.
const Counterfactual& main_of(const Situation& situation, const std::vector<Counterfactual>& rows,
                              const Removals& removals);
// Fills in what `removed` of the verdict amounts to: shares and margins.
void add_margins(report::Verdict& out, const Situation& situation, const std::vector<Counterfactual>& rows);

// The program itself held what would have been enough: `removals` names it.
report::Verdict own_cause(const Situation& situation, const std::vector<Counterfactual>& rows,
                          const Removals& removals);
// Why it did not fit, where `main` decides: memory of the framework's allocator, the request's own rounding,
// a limit.
std::string framework_words(const Situation& situation, const Counterfactual& main);
std::string rounding_words(const Situation& situation);
// Where the amounts decide nothing: the word of whoever refused it.
report::Verdict by_its_own_word(const Situation& s, const std::vector<Counterfactual>& rows);
std::string limit_words(const Situation& situation, const Counterfactual& main);
// What has to be one physical piece may not have been there in one, whatever the sum.
report::Verdict one_run_not_seen(const Situation& situation);
// Of a request that nobody made: that it would have been met, or that it cannot be told. Nothing: it would
// not have been met, or there is a failure to decide.
std::optional<report::Verdict> of_a_hypothetical(const Situation& situation,
                                                 const std::vector<Counterfactual>& rows);
// What only the framework's own allocator can have refused; nothing: the driver's answer explains it.
std::optional<report::Verdict> refused_by_allocator(const Situation& situation,
                                                    const std::vector<Counterfactual>& rows);
// The device was full, however it is arranged.
report::Verdict capacity(const Situation& situation, const std::vector<Counterfactual>& rows);
// The driver said no although its own numbers leave room.
report::Verdict against_the_numbers(const Situation& situation);
// The same of a state that a person wrote down.
report::Verdict against_what_is_stated(const Situation& situation, const std::vector<Counterfactual>& rows);
// Shares of what the device is taken by, largest first.
void add_shares(report::Verdict& out, const Situation& situation);

}  // namespace fragscope::analysis::verdict
