// Verdicts of limits other than the amount of memory, and of roundings.
#include <fmt/format.h>

#include "analysis/verdict_parts.h"

namespace fragscope::analysis::verdict {

using report::Verdict;

namespace {

const Limit* limit_of(const Situation& s, LimitKind kind) {
    for (const Limit& limit : s.limits) {
        if (limit.kind == kind) return &limit;
    }
    return nullptr;
}

bool on_the_device(const Situation& s) {
    return s.request.draws == Draws::kPhysical || s.request.draws == Draws::kStack ||
           s.request.draws == Draws::kPool || s.request.draws == Draws::kContext;
}

// "The request needs 2 GiB of it; it stands at 34 GiB, and 20 GiB are used."
std::string state_of(const Limit& limit) {
    if (limit.counts) {
        return fmt::format("It stands at {}, {} are there, and the request needs {} more",
                           limit.limit.high().value_or(0), limit.used.low().value_or(0),
                           limit.needed.low().value_or(0));
    }
    return fmt::format("It stands at {}, of which {} are used; the request needs {}",
                       in_words(limit.limit.interval()), in_words(limit.used.interval()),
                       in_words(limit.needed.interval()));
}

}  // namespace

std::string limit_words(const Situation& s, const Counterfactual& main) {
    const Limit* limit = limit_of(s, main.limit);
    if (limit == nullptr) return free_and_needed(s) + ".";
    std::string what = limit->in_words();
    if (!what.empty() && what.front() >= 'a' && what.front() <= 'z') what.front() -= 'a' - 'A';
    std::string out = limit->kind == LimitKind::kHandleType
                          ? fmt::format("{} do not have the one that this request asks for: {}", what,
                                        limit->headroom.reason())
                          : fmt::format("{} refused it. {}", what, state_of(*limit));
    if (on_the_device(s) && s.free_then.known()) out += fmt::format(". Of memory, {}", held_by_nobody(s));
    return out + ".";
}

std::string rounding_words(const Situation& s) {
    if (s.request.draws == Draws::kHost) {
        const Limit* limit = limit_of(s, LimitKind::kPinnedHost);
        if (limit == nullptr) limit = limit_of(s, LimitKind::kHostCommit);
        if (limit == nullptr)
            return fmt::format("{} were asked for, and more are taken.", in_words(s.request.needed));
        return fmt::format(
            "Page-locked sizes are rounded up to powers of two here: with what was asked for, {} and {} "
            "before it, the limit of {} would have been kept; rounded they are {} and {}.",
            in_words(limit->needed_unrounded.interval()), in_words(limit->used_unrounded.interval()),
            in_words(limit->limit.interval()), in_words(limit->needed.interval()),
            in_words(limit->used.interval()));
    }
    const std::string asked = in_words(s.request.unrounded.value_or(s.request.needed));
    if (s.framework && s.framework->layout) {
        const AllocatorLayout& layout = *s.framework->layout;
        return fmt::format(
            "{} were asked for. The allocator rounds that to a block of {}, or "
            "a new segment of {}: it has {} in one piece, and {}.",
            in_words(layout.requested), in_words(layout.block), in_words(layout.segment),
            in_words(layout.views[0].gap_largest), held_by_nobody(s));
    }
    return fmt::format("{} were asked for. Rounded up it needs {}; {}.", asked,
                       in_words(s.request.needed), held_by_nobody(s));
}

}  // namespace fragscope::analysis::verdict
