#include "analysis/verdict_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis::verdict {

using report::Verdict;

const Counterfactual* row_of(const std::vector<Counterfactual>& rows, const std::string& id) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const Counterfactual& row) { return row.id == id; });
    return found == rows.end() ? nullptr : &*found;
}
bool fits(const std::vector<Counterfactual>& rows, const std::string& id) {
    const Counterfactual* row = row_of(rows, id);
    return row != nullptr && row->applicable && row->fit == Fit::kFits;
}

void set(Verdict& out, Verdict::Cause cause, const std::string& constraint, const std::string& summary) {
    out.set_cause(cause);
    out.set_constraint(constraint);
    out.set_summary(summary);
}

Verdict undetermined(const std::string& summary, const std::string& measurement) {
    Verdict out;
    set(out, Verdict::undetermined, "", summary);
    out.set_deciding_measurement(measurement);
    return out;
}

std::string exact_amounts(const Situation& s) {
    std::string names;
    for (const std::string& name : s.inexact) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? std::string("the exact bytes of every amount") : "the exact bytes of " + names;
}

std::string held_by_nobody(const Situation& s) {
    const std::string bytes = in_words_beside(s.free_then.interval(), s.request.needed);
    const char* how = s.stated                ? "by the numbers that are stated"
                      : s.device_free.known() ? "cuMemGetInfo"
                                              : "what the records leave; the driver was not asked";
    return s.capacity.known() ? fmt::format("of the device's {}, {} were held by nobody ({})",
                                            in_words(s.capacity.interval()), bytes, how)
                              : fmt::format("{} of the device were held by nobody ({})", bytes, how);
}

std::string free_and_needed(const Situation& s) {
    return fmt::format("It needs {}; {}", in_words_beside(s.request.needed, s.free_then.interval()),
                       held_by_nobody(s));
}

Verdict one_run_not_seen(const Situation& s) {
    return undetermined(
        fmt::format("{}. Whether so much of it lay in one physical piece is not visible to a program.",
                    free_and_needed(s)),
        "the same request at this moment, by the call whose memory is known to be of one piece");
}

}  // namespace fragscope::analysis::verdict
