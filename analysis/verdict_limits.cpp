// Verdicts of limits other than the amount of memory, and of roundings.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "analysis/verdict_parts.h"

namespace fragscope::analysis::verdict {

using report::Verdict;

namespace {

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

// `main` lifts one of the situation's limits.
std::string limit_words(const Situation& s, const Counterfactual& main) {
    const Limit& limit = *std::find_if(s.limits.begin(), s.limits.end(),
                                       [&](const Limit& each) { return each.kind == main.limit; });
    std::string what = limit.in_words();
    what.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(what.front())));
    std::string out = limit.kind == LimitKind::kHandleType
                          ? fmt::format("{} do not have the one that this request asks for: {}", what,
                                        limit.headroom.reason())
                          : fmt::format("{} refused it. {}", what, state_of(limit));
    if (on_the_device(s.request.draws) && s.free_then.known())
        out += fmt::format(". Of memory, {}", held_by_nobody(s));
    return out + ".";
}

Verdict by_its_own_word(const Situation& s, const std::vector<Counterfactual>& rows) {
    const LimitFacts& facts = facts_of(*s.refused_by);
    const auto limit = std::find_if(s.limits.begin(), s.limits.end(),
                                    [&](const Limit& each) { return each.kind == *s.refused_by; });
    const bool stated = limit != s.limits.end();
    Verdict out;
    set(out, facts.cause, facts.name,
        fmt::format("Whoever refused it says itself that it was because of {}. {}Whether the device would have had the "
                    "memory without that limit, and whether what is held was full, is not told.",
                    facts.what, stated ? state_of(*limit) + ". " : std::string()));
    out.set_deciding_measurement(
        "what the allocator holds unused and in how large pieces, and what of the device nobody held, at that moment");
    if (stated && row_of(rows, limit->row()) != nullptr) out.add_removed(limit->row());
    return out;
}

// Where the rounding of the request decides: of a framework's allocator, or under a limit of host memory.
std::string rounding_words(const Situation& s) {
    if (s.request.draws == Draws::kHost) {
        // The limit that is kept without it.
        const Limit& limit = *std::find_if(s.limits.begin(), s.limits.end(), [](const Limit& each) {
            return fit_of(each.headroom.interval(), each.needed.interval()) != Fit::kFits;
        });
        return fmt::format(
            "Page-locked sizes are rounded up to powers of two here: with what was asked for, {} and {} "
            "before it, the limit of {} would have been kept; rounded they are {} and {}.",
            in_words(limit.needed_unrounded.interval()), in_words(limit.used_unrounded.interval()),
            in_words(limit.limit.interval()), in_words(limit.needed.interval()),
            in_words(limit.used.interval()));
    }
    const AllocatorLayout& layout = *s.framework->layout;
    return fmt::format(
        "{} were asked for. The allocator rounds that to a block of {}, or "
        "a new segment of {}: it has {} in one piece, and {}.",
        in_words(layout.requested), in_words(layout.block), in_words(layout.segment),
        in_words(layout.views[0].gap_largest), held_by_nobody(s));
}

}  // namespace fragscope::analysis::verdict
