// The smallest set of removals that lets a request fit, and what each of its members stands for.
#include <algorithm>

#include "analysis/verdict.h"
#include "analysis/verdict_parts.h"

namespace fragscope::analysis::verdict {

using report::Verdict;

NamedCause cause_of(const Situation& s, const Counterfactual& row) {
    switch (row.blame) {
        case Blame::kStack:
            return {Verdict::other_constraint, "stack_reservation"};
        case Blame::kCached:
            return {Verdict::other_constraint, "cached_by_pool"};
        case Blame::kPending:
        case Blame::kFrameworkWaiting:
            return {Verdict::other_constraint, "pending_frees"};
        case Blame::kGraphs:
            return {Verdict::other_constraint, "kept_by_graphs"};
        case Blame::kFrameworkCached:
            // An allocator that keeps its segments has free extents that lie apart. PyTorch's gives them back
            // before it gives up, so those that it still has are not its to give.
            if (s.framework && s.framework->layout) return {Verdict::allocator_external_fragmentation, ""};
            return {Verdict::other_constraint,
                    s.framework && s.framework->gave_up ? "pool_ownership" : "cached_by_allocator"};
        case Blame::kImporter:
            return {Verdict::other_constraint, "IPC_import_keeps_memory"};
        case Blame::kLeaked:
            return {Verdict::other_constraint, "leaked_handles"};
        case Blame::kOwners:
            return {Verdict::other_constraint, "pool_ownership"};
        case Blame::kStreams:
            return {Verdict::other_constraint, "stream_ownership"};
        case Blame::kRounding:
        case Blame::kWaste:
            return {Verdict::internal_fragmentation, ""};
        case Blame::kFrameworkGaps:
            return {Verdict::allocator_external_fragmentation, ""};
        case Blame::kGaps:
            return {Verdict::physical_external_fragmentation, ""};
        case Blame::kLimit: {
            const LimitFacts& facts = facts_of(row.limit);
            return {facts.cause, facts.cause == Verdict::other_constraint ? facts.name : ""};
        }
        default:
            return {Verdict::capacity_exhaustion, ""};
    }
}

Standing standing_without(const Situation& s, const std::vector<Counterfactual>& rows,
                          const Removals& removed) {
    return standing_with(s, row_of(rows, "as_it_was")->by_bytes.interval(), removed);
}

void in_order_of_naming(Removals& candidates) {
    const auto place = [](const Counterfactual* row) {
        return std::find(kOrderOfNaming.begin(), kOrderOfNaming.end(), row->blame) - kOrderOfNaming.begin();
    };
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const Counterfactual* a, const Counterfactual* b) { return place(a) < place(b); });
}

Removals smallest_set(const Situation& s, const std::vector<Counterfactual>& rows, const Removals& candidates,
                      Fit at_least) {
    const std::size_t count = std::min<std::size_t>(candidates.size(), 63);
    for (std::size_t size = 1; size <= std::min(count, kLargestSet); ++size) {
        // Every set of this size, those of the first candidates first.
        std::uint64_t mask = (std::uint64_t{1} << size) - 1;
        while (mask < std::uint64_t{1} << count) {
            Removals members;
            for (std::size_t i = 0; i < count; ++i) {
                if ((mask >> i & 1U) != 0) members.push_back(candidates[i]);
            }
            const Fit fit = standing_without(s, rows, members).fit;
            if (fit == Fit::kFits || (fit == Fit::kCannotTell && at_least == Fit::kCannotTell))
                return members;
            const std::uint64_t lowest = mask & (~mask + 1);
            const std::uint64_t carried = mask + lowest;
            mask = carried | (((carried ^ mask) >> 2) / lowest);
        }
    }
    return {};
}

bool might_fit(const Situation& s, const std::vector<Counterfactual>& rows, const Removals& candidates) {
    return standing_without(s, rows, candidates).fit != Fit::kDoesNotFit;
}

namespace {

// How much less would be available, against what is needed, with this member still there.
Interval rests_on(const Situation& s, const std::vector<Counterfactual>& rows, const Removals& set,
                  const Counterfactual* member) {
    Removals rest = set;
    std::erase(rest, member);
    const Standing with = standing_without(s, rows, rest);
    const Standing without = standing_without(s, rows, set);
    const Margin before = margin_of(with.available, with.needed);
    const Margin after = margin_of(without.available, without.needed);
    const auto more = [](const std::optional<std::int64_t>& a, const std::optional<std::int64_t>& b) {
        if (!a || !b) return std::optional<std::uint64_t>();
        return std::optional(*a <= *b ? std::uint64_t{0}
                                      : static_cast<std::uint64_t>(*a) - static_cast<std::uint64_t>(*b));
    };
    Interval out{more(after.low, before.low), more(after.high, before.high)};
    if (out.low && out.high && *out.low > *out.high) std::swap(out.low, out.high);
    return out;
}

}  // namespace

const Counterfactual& main_of(const Situation& s, const std::vector<Counterfactual>& rows,
                              const Removals& removals) {
    const Counterfactual* main = removals.front();
    std::uint64_t most = 0;
    for (const Counterfactual* row : removals) {
        const std::uint64_t share = rests_on(s, rows, removals, row).low.value_or(0);
        if (share > most) {
            most = share;
            main = row;
        }
    }
    return *main;
}

void add_margins(Verdict& out, const Situation& s, const std::vector<Counterfactual>& rows) {
    const Counterfactual* base = row_of(rows, "as_it_was");
    if (base == nullptr) return;
    // A limit on a number of things has no margin in bytes.
    const bool in_bytes = fit_of(base->available.interval(), base->needed.interval()) == base->fit;
    const Margin as_it_was =
        in_bytes ? margin_of(base->available.interval(), base->needed.interval()) : Margin{};
    // At the ends of its range a margin stands for more than it can hold.
    const auto told = [](const std::optional<std::int64_t>& end) { return end && *end != -INT64_MAX; };
    if (told(as_it_was.low)) out.set_short_low(*as_it_was.low);
    if (told(as_it_was.high)) out.set_short_high(*as_it_was.high);
    Removals set;
    for (const std::string& id : out.removed()) {
        const Counterfactual* row = row_of(rows, id);
        if (row == nullptr || !row->combines()) {
            // A row that stands for itself has its own margin.
            if (row == nullptr || out.removed_size() != 1) return;
            const Margin margin = margin_of(row->available.interval(), row->needed.interval());
            if (told(margin.low)) out.set_margin_low(*margin.low);
            if (told(margin.high)) out.set_margin_high(*margin.high);
            return;
        }
        set.push_back(row);
    }
    if (set.empty()) return;
    const Standing standing = standing_without(s, rows, set);
    const Margin margin = margin_of(standing.available, standing.needed);
    if (fit_of(standing.available, standing.needed) == standing.fit) {
        if (told(margin.low)) out.set_margin_low(*margin.low);
        if (told(margin.high)) out.set_margin_high(*margin.high);
    }
    for (const Counterfactual* row : set) {
        Verdict::Share& share = *out.add_shares();
        share.set_removed(row->id);
        share.set_in_words(row->removed);
        const NamedCause named = cause_of(s, *row);
        share.set_cause(named.cause);
        share.set_constraint(named.constraint);
        const Interval bytes = rests_on(s, rows, set, row);
        if (bytes.low) share.set_bytes_low(*bytes.low);
        if (bytes.high) share.set_bytes_high(*bytes.high);
    }
}

}  // namespace fragscope::analysis::verdict
