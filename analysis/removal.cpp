#include "analysis/removal.h"

#include <algorithm>

#include "analysis/scenario_layout.h"

namespace fragscope::analysis {
namespace {

// What the removals amount to, all of them together.
struct Changes {
    Interval given_back = Interval::exactly(0);       // to the device
    Interval by_this_process = Interval::exactly(0);  // of that
    Interval by_allocator = Interval::exactly(0);     // of that, by the allocator whose request it is
    bool cached = false;
    bool pending = false;
    bool unrounded = false;
    bool no_stack = false;
    bool runs_merged = false;
    bool gaps_merged = false;
    bool segments_returned = false;
    bool waits_over = false;
    bool any_owner = false;
    bool any_stream = false;
    bool no_waste = false;
    std::vector<LimitKind> lifted;

    bool lifts(LimitKind kind) const { return std::find(lifted.begin(), lifted.end(), kind) != lifted.end(); }
};

bool of_this_process(Blame blame) { return blame != Blame::kOthers && blame != Blame::kUnexplained; }

Changes changes_of(const std::vector<const Counterfactual*>& removed) {
    Changes out;
    for (const Counterfactual* row : removed) {
        out.cached = out.cached || row->blame == Blame::kCached;
        out.pending = out.pending || row->blame == Blame::kPending;
        switch (row->change) {
            case Change::kNone:
                break;
            case Change::kAdds:
                out.given_back = out.given_back + row->freed.interval();
                if (of_this_process(row->blame))
                    out.by_this_process = out.by_this_process + row->freed.interval();
                break;
            case Change::kLifts:
                out.lifted.push_back(row->limit);
                break;
            case Change::kUnrounds:
                out.unrounded = true;
                break;
            case Change::kDropsStack:
                out.no_stack = true;
                break;
            case Change::kMergesRuns:
                out.runs_merged = true;
                break;
            case Change::kMergesGaps:
                out.gaps_merged = true;
                break;
            case Change::kReturnsSegments:
                out.segments_returned = true;
                break;
            case Change::kEndsWaits:
                out.waits_over = true;
                break;
            case Change::kSharesOwners:
                out.any_owner = true;
                break;
            case Change::kSharesStreams:
                out.any_stream = true;
                break;
            case Change::kWastesNothing:
                out.no_waste = true;
                break;
        }
    }
    return out;
}

std::optional<std::uint64_t> smaller(const std::optional<std::uint64_t>& a,
                                     const std::optional<std::uint64_t>& b) {
    if (!a || !b) return a ? a : b;
    return std::min(*a, *b);
}

// At most `most` of it: ends that are not known stay so below, and are bounded above.
Interval capped(const Interval& amount, const Interval& most) {
    Interval out{amount.low && most.low ? smaller(amount.low, most.low) : std::nullopt,
                 smaller(amount.high, most.high)};
    return out;
}

// The limits that still stand, applied to what memory there is.
void under_limits(const Situation& s, const Changes& changes, Standing& out) {
    for (const Limit& limit : s.limits) {
        if (changes.lifts(limit.kind)) continue;
        const bool unrounded = changes.unrounded && limit.needed_unrounded.known();
        const Interval back = limit.grows == Limit::Grows::kWithProcess     ? changes.by_this_process
                              : limit.grows == Limit::Grows::kWithAllocator ? changes.by_allocator
                                                                            : Interval::exactly(0);
        const Interval used = unrounded ? limit.used_unrounded.interval() : limit.used.interval();
        // A limit that is exceeded already has no room until so much is given back.
        const Interval room = limit.limit.known() && used.known()
                                  ? less(limit.limit.interval(), less(used, back))
                                  : limit.headroom.interval() + back;
        const Interval needed = limit.counts ? limit.needed.interval() : out.needed;
        const Fit here = fit_of(room, needed);
        if (limit.counts) {
            if (both(out.fit, here) != out.fit) out.limited_by = &limit;
            out.fit = both(out.fit, here);
            continue;
        }
        const Interval left = capped(out.available, room);
        if (left.high != out.available.high) out.limited_by = &limit;
        out.available = left;
        out.fit = both(out.fit, here);
    }
}

const AllocatorView& view_of(const AllocatorLayout& layout, const Changes& changes) {
    return layout.views[AllocatorLayout::index(changes.waits_over, changes.any_owner, changes.any_stream,
                                               changes.no_waste)];
}

// By way of memory that nobody on the device holds.
Standing from_device(const Situation& s, const Interval& base, Changes& changes) {
    Standing out;
    if (s.framework && s.framework->layout) {
        const AllocatorLayout& layout = *s.framework->layout;
        const AllocatorView& view = view_of(layout, changes);
        // Moved together, live blocks still take whole pages.
        const auto whole_pages = [&](const std::optional<std::uint64_t>& bytes) {
            return bytes ? std::optional(*bytes - *bytes % s.page) : bytes;
        };
        const Interval back = changes.gaps_merged ? Interval{whole_pages(view.gap_sum.low), whole_pages(view.gap_sum.high)}
                              : layout.may_release || changes.segments_returned ? view.wholly_free
                                                                                : Interval::exactly(0);
        changes.given_back = changes.given_back + back;
        changes.by_this_process = changes.by_this_process + back;
        changes.by_allocator = changes.by_allocator + back;
    }
    out.available = base + changes.given_back;
    // Trimmed after the streams got there, a pool gives back what a trim alone may have to leave.
    if (changes.cached && changes.pending && out.available.low && s.request.draws != Draws::kPool) {
        *out.available.low +=
            s.reclaimable_when_done - std::min(s.reclaimable.low().value_or(0), s.reclaimable_when_done);
    }
    if (s.capacity.high() && on_the_device(s.request.draws)) {
        // A sum that is larger than the device for certain shows that one of the numbers is wrong.
        if (out.available.low.value_or(0) > *s.capacity.high()) out.available.low.reset();
        if (out.available.high) out.available.high = smaller(out.available.high, s.capacity.high());
    }
    if (s.one_run_needed && !changes.runs_merged) {
        // Where what is given back would lie is not known: beside a run, or anywhere else.
        const Interval run = s.runs ? s.runs->largest : Interval{0, base.high};
        out.available = capped(out.available, run + Interval{0, changes.given_back.high});
    }
    out.needed = changes.no_stack                           ? Interval::exactly(0)
                 : changes.unrounded && s.request.unrounded ? *s.request.unrounded
                                                            : s.request.needed;
    out.fit = fit_of(out.available, out.needed);
    under_limits(s, changes, out);
    return out;
}

// By way of a gap that the framework's allocator has already.
Standing in_a_gap(const AllocatorLayout& layout, const Changes& changes) {
    const AllocatorView& view = view_of(layout, changes);
    Standing out;
    out.available = changes.gaps_merged ? view.gap_sum : view.gap_largest;
    out.needed = changes.unrounded ? layout.requested : layout.block;
    if (layout.gaps_refused && !changes.gaps_merged && !changes.waits_over && !changes.no_waste &&
        !changes.unrounded) {
        // Its own gaps are too small whatever they are: only those of others are left.
        Interval others = Interval::exactly(0);
        if (changes.any_owner) others = others + layout.of_other_owners;
        if (changes.any_stream) others = others + layout.of_other_streams;
        out.fit = fit_of({0, others.high}, out.needed);
        if (out.fit == Fit::kDoesNotFit && out.available.high && out.needed.high)
            out.available.high = std::min(*out.available.high, *out.needed.high - 1);
        return out;
    }
    out.fit = fit_of(out.available, out.needed);
    return out;
}

std::int64_t rank(Fit fit) { return fit == Fit::kFits ? 2 : fit == Fit::kCannotTell ? 1 : 0; }

}  // namespace

bool on_the_device(Draws draws) {
    return draws == Draws::kPhysical || draws == Draws::kContext || draws == Draws::kStack || draws == Draws::kPool;
}

Fit both(Fit a, Fit b) { return rank(a) < rank(b) ? a : b; }

Standing standing_with(const Situation& s, const Interval& base,
                       const std::vector<const Counterfactual*>& removed) {
    Changes changes = changes_of(removed);
    const Standing device = from_device(s, base, changes);
    if (!s.framework || !s.framework->layout) return device;
    const Standing gap = in_a_gap(*s.framework->layout, changes);
    if (gap.fit != device.fit) return rank(gap.fit) > rank(device.fit) ? gap : device;
    // Of two ways that are equally open the one that misses by less is shown.
    const auto missing = [](const Standing& way) {
        const std::uint64_t most = way.available.high.value_or(UINT64_MAX);
        const std::uint64_t least = way.needed.low.value_or(0);
        return least - std::min(least, most);
    };
    return missing(gap) < missing(device) ? gap : device;
}

}  // namespace fragscope::analysis
