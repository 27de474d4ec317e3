#include "analysis/counterfactual_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/removal.h"

namespace fragscope::analysis {

CounterfactualTable::CounterfactualTable(const Situation& situation, Quantity base, Quantity needed)
    : situation_(situation), base_(std::move(base)), needed_(std::move(needed)) {
    Counterfactual& row = start("as_it_was", "nothing", Blame::kNone);
    row.by_bytes = base_;
    row.reason = base_.reason();
    decide(row, base_, {});
    if (row.fit == Fit::kFits && situation.refused())
        row.reason += "; by bytes only, as the call failed all the same";
}

void CounterfactualTable::bound_by_the_failure() {
    Counterfactual& row = rows_.front();
    const std::uint64_t needed = needed_.low().value_or(0);
    if (row.fit != Fit::kCannotTell || needed == 0) return;
    row.available = Quantity::bounded(
        report::Quantity::eligible_free, {std::min(base_.low().value_or(0), needed - 1), needed - 1},
        base_.scope(), base_.reason() + "; less than the request in one piece, as it failed");
    row.reason = row.available.reason();
    row.fit = fit_of(row.available.interval(), row.needed.interval());
}

void CounterfactualTable::add(const char* id, const std::string& removed, Blame blame, const Quantity& freed,
                              const std::string& call) {
    change(id, removed, blame, Change::kAdds, freed.reason(), call, freed);
}

void CounterfactualTable::change(const std::string& id, const std::string& removed, Blame blame,
                                 Change change, const std::string& reason, const std::string& call,
                                 const Quantity& speaks_of) {
    Counterfactual& row = start(id, removed, blame);
    row.change = change;
    row.freed = speaks_of;
    row.call = call;
    row.reason = reason;
    Quantity sum = base_;
    if (row.adds()) {
        const auto both_known = plus(base_, speaks_of, report::Quantity::eligible_free, reason);
        sum = both_known ? *both_known
                         : Quantity::unknown(report::Quantity::eligible_free, base_.scope(), "another scope");
    }
    decide(row, sum, {&row});
}

void CounterfactualTable::lift(const Limit& limit) {
    Counterfactual& row = start(limit.row(), limit.in_words(), Blame::kLimit);
    row.change = Change::kLifts;
    row.limit = limit.kind;
    row.call = facts_of(limit.kind).lifted_by;
    row.reason = "what there is besides: " + base_.reason();
    decide(row, base_, {&row});
}

void CounterfactualTable::instead(const char* id, const std::string& removed, Blame blame,
                                  const Quantity& available, const std::string& call) {
    Counterfactual& row = start(id, removed, blame);
    row.available = available;
    row.call = call;
    row.reason = available.reason();
    row.fit = fit_of(row.available.interval(), row.needed.interval());
}

void CounterfactualTable::not_applicable(const char* id, const std::string& removed, Blame blame,
                                         const std::string& reason) {
    Counterfactual& row = start(id, removed, blame);
    row.applicable = false;
    row.reason = reason;
}

void CounterfactualTable::all_removed(const char* id, const std::string& removed, const std::string& reason) {
    std::vector<const Counterfactual*> all;
    Quantity sum = base_;
    for (const Counterfactual& row : rows_) {
        // What importers hold is among what no record of a trace explains, and counts once.
        if (!row.adds() || (row.blame == Blame::kImporter && !situation_.stated)) continue;
        all.push_back(&row);
        if (const auto more = plus(sum, row.freed, report::Quantity::eligible_free, reason)) sum = *more;
    }
    for (const Counterfactual& row : rows_) {
        if (row.combines() && !row.adds() && row.change != Change::kUnrounds &&
            row.change != Change::kDropsStack && row.change != Change::kLifts)
            all.push_back(&row);
    }
    Counterfactual out;
    out.id = id;
    out.removed = removed;
    out.blame = Blame::kWhole;
    out.needed = needed_;
    out.reason = reason;
    decide(out, sum.as(report::Quantity::eligible_free, reason), all);
    rows_.push_back(std::move(out));
}

Counterfactual& CounterfactualTable::start(const std::string& id, const std::string& removed, Blame blame) {
    rows_.push_back({});
    rows_.back().id = id;
    rows_.back().removed = removed;
    rows_.back().blame = blame;
    rows_.back().needed = needed_;
    return rows_.back();
}

// `as_known`: the same by bytes alone; it keeps its evidence where nothing stands against it.
void CounterfactualTable::decide(Counterfactual& row, Quantity as_known,
                                 const std::vector<const Counterfactual*>& removed) {
    const Standing standing = standing_with(situation_, base_.interval(), removed);
    row.fit = standing.fit;
    if (standing.needed != needed_.interval()) {
        row.needed = standing.needed.exact()
                         ? Quantity::derived(report::Quantity::needed, *standing.needed.low, needed_.scope(),
                                             "what it needs in this case")
                         : Quantity::bounded(report::Quantity::needed, standing.needed, needed_.scope(),
                                             "what it needs in this case");
    }
    if (standing.limited_by != nullptr) row.reason = standing.limited_by->headroom.reason();
    if (standing.available == as_known.interval()) {
        row.available = std::move(as_known);
        return;
    }
    if (situation_.capacity.high() && standing.available.high == situation_.capacity.high()) {
        row.reason += !standing.available.low && as_known.low()
                          ? "; the numbers contradict each other, as the sum is more than the device has"
                          : "; no more than the device has";
    }
    row.available = !standing.available.known()
                        ? Quantity::unknown(report::Quantity::eligible_free, base_.scope(), row.reason)
                    : as_known.evidence() == report::Quantity::assumed
                        ? Quantity::assumed(report::Quantity::eligible_free, standing.available,
                                            base_.scope(), row.reason)
                    : standing.available.exact()
                        ? Quantity::derived(report::Quantity::eligible_free, *standing.available.low,
                                            base_.scope(), row.reason)
                        : Quantity::bounded(report::Quantity::eligible_free, standing.available,
                                            base_.scope(), row.reason);
}

}  // namespace fragscope::analysis
