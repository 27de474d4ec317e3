// Verdicts about a framework's own allocator: what it held on to, and what it refused by itself.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/verdict_parts.h"

namespace fragscope::analysis::verdict {

using report::Verdict;

namespace {

bool records_missing(const Situation& s) {
    return !s.framework->agrees || narrowed(s.losses, Layer::kFramework).any();
}

// Whether the driver may have refused in a call that is not in the trace, or told by no record at all.
bool refusal_may_be_lost(const Situation& s) {
    for (const Layer layer : {Layer::kBlocks, Layer::kHandles, Layer::kPools, Layer::kAddresses}) {
        if (with_contradictions(narrowed(s.losses, layer), s.contradictions).any()) return true;
    }
    return false;
}

// "4 GiB, of which 3 GiB are in live blocks".
std::string held_in_words(const FrameworkAtFailure& own) {
    return fmt::format("The framework's allocator holds {} in segments, of which {} are in live blocks",
                       in_words(own.reserved.interval()), in_words(own.live.interval()));
}

std::uint64_t largest_gap(const FrameworkAtFailure& own) {
    std::uint64_t largest = 0;
    for (const FrameworkDomain& domain : own.domains) largest = std::max(largest, domain.gaps.largest());
    return largest;
}

// Where it gave up because of a limit of its own.
Verdict limited(const Situation& s, const std::vector<Counterfactual>& rows) {
    const FrameworkAtFailure& own = *s.framework;
    const std::string what = fmt::format(
        "The framework's allocator gave up a block of {} by itself: on this thread it asked the driver for "
        "no memory before",
        in_words(own.tried));
    const Counterfactual* lifted = row_of(rows, "with_process_fraction_lifted");
    const bool missing = records_missing(s) || refusal_may_be_lost(s) || !own.reserved.exact();
    if (missing || lifted == nullptr || !s.device_free.known() || lifted->fit == Fit::kCannotTell) {
        return undetermined(
            fmt::format("{}, as far as the records tell. Whether a limit of its own was the reason is not "
                        "known: {}.",
                        what,
                        missing ? "records of the allocator or of the driver are missing"
                        : !s.device_free.known()
                            ? "what nobody on the device held then was not asked"
                            : "what nobody on the device held lies close to what it needs"),
            "torch.cuda.get_per_process_memory_fraction() in the program, and the same request with the "
            "fraction at 1.0");
    }
    if (lifted->fit == Fit::kDoesNotFit) {
        Verdict out = capacity(s, rows);
        out.set_summary(
            fmt::format("{}. Without that limit the device would not have had the memory either. {}", what,
                        out.summary()));
        return out;
    }
    Verdict out;
    set(out, facts_of(LimitKind::kProcessFraction).cause, facts_of(LimitKind::kProcessFraction).name,
        fmt::format("{}, and {}. A limit of its own stands below {}, which is what it holds and this request "
                    "together: torch.cuda.set_per_process_memory_fraction sets such a limit.",
                    what, held_by_nobody(s),
                    in_words(*own.reserved.low() + s.request.needed.high.value_or(0))));
    out.add_removed(lifted->id);
    return out;
}

}  // namespace

// Where its extents are known, and by them it need not have given up.
std::optional<Verdict> not_by_its_extents(const Situation& s) {
    const FrameworkAtFailure& own = *s.framework;
    const AllocatorLayout& layout = *own.layout;
    if (s.stated || records_missing(s)) return std::nullopt;
    const std::uint64_t gap = layout.views[0].gap_largest.low.value_or(0);
    if (gap >= own.tried && own.tried != 0) {
        return undetermined(
            fmt::format("{}. A gap of {} lies in segments of this request's pool, class and stream, and is large enough "
                        "for the block of {} that it gave up: {}max_split_size_mb keeps large gaps whole, and a block "
                        "of an older size than this file tells may have been there.",
                        held_in_words(own), in_words(gap), in_words(own.tried),
                        own.pool_assumed ? "the request may have been for a private pool, which is not told; " : ""),
            "the allocator_settings of a snapshot that is taken at the failure (torch.cuda.memory._snapshot() in an "
            "out-of-memory observer)");
    }
    if (s.device_free.known() && s.device_free.low().value_or(0) >= s.request.needed.high.value_or(UINT64_MAX)) {
        return undetermined(
            fmt::format("{}, which is enough for the segment of {} that it needed. Either a limit of its own stood in the "
                        "way (torch.cuda.set_per_process_memory_fraction sets one), or the driver refused although it "
                        "had the memory: the snapshot does not say whether it was asked.",
                        held_by_nobody(s), in_words(s.request.needed)),
            "torch.cuda.get_per_process_memory_fraction() in the program, and the same request with the fraction at 1.0");
    }
    return std::nullopt;
}

std::optional<Verdict> refused_by_allocator(const Situation& s, const std::vector<Counterfactual>& rows) {
    if (s.framework && s.framework->gave_up && s.framework->layout) return not_by_its_extents(s);
    if (!s.framework || !s.framework->gave_up || s.framework->layout) return std::nullopt;
    const FrameworkAtFailure& own = *s.framework;
    if (!records_missing(s) && own.largest_eligible >= own.tried && own.tried != 0) {
        return undetermined(
            fmt::format("{}. A gap of {} is in segments of the class and stream of this request, and large "
                        "enough for the block of {} that it gave up: it may belong to a private pool (a CUDA "
                        "graph's, a MemPool), or max_split_size_mb keeps it whole.",
                        held_in_words(own), in_words(own.largest_eligible), in_words(own.tried)),
            "segment_pool_id of that gap's segment in torch.cuda.memory._snapshot(), and its "
            "allocator_settings");
    }
    if (!own.driver_asked) return limited(s, rows);
    const Counterfactual* base = row_of(rows, "as_it_was");
    if (!records_missing(s) && own.largest_of_other_streams >= own.tried && own.tried != 0 &&
        base != nullptr && base->fit == Fit::kDoesNotFit) {
        return undetermined(
            fmt::format("{}. {}. A gap of {} would hold the block, but lies in a segment of another stream, "
                        "and PyTorch's allocator gives a gap to its own stream only. Whether this stream "
                        "would have been given it is not known: it may belong to a private pool (a CUDA "
                        "graph's, a MemPool), or max_split_size_mb keeps it whole.",
                        free_and_needed(s), held_in_words(own), in_words(own.largest_of_other_streams)),
            "segment_pool_id and stream of that gap's segment in torch.cuda.memory._snapshot(), and its "
            "allocator_settings");
    }
    return std::nullopt;
}

std::string framework_words(const Situation& s, const Counterfactual& main) {
    const FrameworkAtFailure& own = *s.framework;
    const std::string before = fmt::format("{}. {}", free_and_needed(s), held_in_words(own));
    switch (main.blame) {
        case Blame::kFrameworkWaiting:
            if (own.layout) {
                return fmt::format(
                    "{}, and {} are in blocks that the program freed and whose stream has not got "
                    "there yet: a synchronisation lets them go.",
                    before, in_words(own.waiting.interval()));
            }
            return fmt::format(
                "{}, and {} are in blocks that the program freed and that wait for other "
                "streams (record_stream): once those have come that far, {} go back to the device.",
                before, in_words(own.waiting.interval()), in_words(main.freed.interval()));
        case Blame::kOwners:
            return fmt::format(
                "{}. {} lie in no block of another pool of the same allocator, which keeps them for its "
                "own requests; this request's pool has {} in no block, the largest piece {}.",
                before, in_words(main.freed.interval()), in_words(own.layout->views[0].gap_sum),
                in_words(own.layout->views[0].gap_largest));
        case Blame::kStreams:
            return fmt::format(
                "{}. {} lie in no block of segments of another stream: the allocator gives them to "
                "that stream only.",
                before, in_words(main.freed.interval()));
        case Blame::kFrameworkCached:
            if (own.layout) {
                return fmt::format(
                    "{}, and {} are in segments without any block, which it does not give back: no "
                    "one of them is large enough.",
                    before, in_words(own.layout->views[0].wholly_free));
            }
            return own.gave_up
                       ? fmt::format(
                             "{}, and {} are in segments without any block. PyTorch returns such "
                             "segments before it gives up; those that are left belong to a private pool (a "
                             "CUDA graph's, a MemPool), or a stream was being captured.",
                             before, in_words(own.reclaimable.interval()))
                       : fmt::format(
                             "{}, and {} are in segments without any block, which "
                             "torch.cuda.empty_cache() would have given back.",
                             before, in_words(own.reclaimable.interval()));
        default:
            if (own.layout) {
                const AllocatorView& view = own.layout->views[0];
                const char* together = fit_of(view.gap_sum, own.layout->block) == Fit::kFits
                                           ? ""
                                           : ", with what nobody on the device holds";
                if (own.layout->gaps_refused) {
                    return fmt::format(
                        "{}. {} of it lie in no block: the allocator looked there first and found no piece for this "
                        "request, together they are enough{}. How large each piece is, and whether some serve "
                        "another stream only, is not told.",
                        before, in_words(view.gap_sum), together);
                }
                return fmt::format(
                    "{}. {} of it lie in no block, in {}, the largest of {}: no piece is large "
                    "enough, together they are{}.",
                    before, in_words(view.gap_sum),
                    own.gaps == 0 ? std::string("pieces that are not listed")
                                  : fmt::format("{} piece{}", own.gaps, own.gaps == 1 ? "" : "s"),
                    in_words(view.gap_largest), together);
            }
            return fmt::format(
                "{}, and {} lie in gaps between blocks, the largest of {}: no gap is large "
                "enough, and a segment with a live block in it does not go back to the device.",
                before, in_words(own.in_gaps.interval()), in_words(largest_gap(own)));
    }
}

}  // namespace fragscope::analysis::verdict
