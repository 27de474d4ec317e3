#include "analysis/bounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/kinds.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

std::string nothing_witnessed(const Situation& s) {
    return fmt::format("nothing of this kind succeeded between {} and this process's next release",
                       s.moment_in_words());
}

class Bound {
  public:
    Bound(const Situation& s, const char* mechanism, const Scope& scope) : s_(s), scope_(scope) {
        out_.set_mechanism(mechanism);
        out_.set_low_evidence(nothing_witnessed(s_));
        low_ = 0;
    }
    // Successes of this mechanism in the same state, one call or several together.
    Bound& witnessed(std::uint64_t bytes, bool together = false) {
        if (bytes > low_) {
            low_ = bytes;
            out_.set_low_evidence(fmt::format(
                "{} {} after {}, before this process released anything", in_words(bytes),
                together ? "in all, of one call or several, succeeded" : "succeeded", s_.moment_in_words()));
        }
        return *this;
    }
    Bound& at_least(std::uint64_t bytes, const std::string& why) {
        if (bytes > low_) {
            low_ = bytes;
            out_.set_low_evidence(why);
        }
        return *this;
    }
    Bound& at_most(const std::optional<std::uint64_t>& bytes, const std::string& limit,
                   const std::string& why) {
        if (bytes && (!high_ || *bytes < *high_)) {
            high_ = bytes;
            out_.set_limited_by(limit);
            out_.set_high_evidence(why);
        }
        return *this;
    }
    // What was granted in place after the failure, and undone.
    Bound& granted(std::uint64_t most, const char* how) {
        if (most > low_) {
            low_ = most;
            tried_ = true;
            out_.set_low_evidence(
                fmt::format("{} {} right after the failure, and undone", in_words(most), how));
        }
        return *this;
    }
    // What was refused then.
    Bound& refused(wire::ProbeMechanism mechanism) {
        if (const auto least = s_.probes.refused(mechanism)) {
            at_most(
                *least - std::min<std::uint64_t>(*least, 1), "a trial that was refused",
                fmt::format("{} was refused when it was tried right after the failure", in_words(*least)));
        }
        return *this;
    }
    // What was tried in place after the failure, by this very mechanism.
    Bound& probed(wire::ProbeMechanism mechanism) {
        return granted(s_.probes.granted(mechanism), "was granted when it was tried").refused(mechanism);
    }
    // The failed call itself bounds its own mechanism, size and moment, and nothing else.
    Bound& failed(bool same_mechanism) {
        const std::uint64_t bytes = s_.refused_then ? s_.refused_then->bytes : s_.request.requested;
        if (same_mechanism && s_.refused() && bytes != 0) {
            at_most(bytes - 1, "the request that failed",
                    fmt::format("{} failed at this moment", in_words(bytes)));
        }
        return *this;
    }
    // It comes in pieces: what the memory has to look like bounds it as much as how much there is.
    Bound& in_pieces() {
        // That the driver needs one run for a request, as a scenario says, is not what its consumers need.
        if (s_.contract.allows_stitching() || (s_.stated && !s_.contract.declared)) return *this;
        low_ = 0;
        high_ = 0;
        tried_ = false;
        out_.set_limited_by("the contract");
        out_.set_low_evidence("no success in pieces counts for it");
        out_.set_high_evidence(
            "the memory has to be one physical piece, and pieces that are joined by addresses stay pieces");
        return *this;
    }
    report::Bound done(const std::string& note = "") {
        if (!high_ && out_.mechanism() == "framework") {
            out_.set_limited_by("not known");
            out_.set_high_evidence("which gaps there were is not known for certain");
        } else if (!high_) {
            out_.set_limited_by("not known");
            out_.set_high_evidence(fmt::format("how much of the device was held by nobody at {} is not known",
                                               s_.moment_in_words()));
        }
        if (high_ && low_ > *high_ && tried_) {
            // Granted right after what bounds it from above: not of that moment, and worth its word.
            out_.set_low_evidence(
                fmt::format("nothing that stands beside the upper end: {} were granted when they were tried "
                            "right after it",
                            in_words(low_)));
            low_ = 0;
        } else if (high_ && low_ > *high_) {
            // More than there was: others gave something back in between, so it is no witness of that moment.
            low_ = 0;
            out_.set_low_evidence(nothing_witnessed(s_));
        }
        *out_.mutable_largest() =
            Quantity::bounded(report::Quantity::largest_allocatable, {low_, high_}, scope_, note).message();
        return out_;
    }

  private:
    const Situation& s_;
    Scope scope_;
    report::Bound out_;
    std::uint64_t low_ = 0;
    std::optional<std::uint64_t> high_;
    bool tried_ = false;  // `low_` comes from a trial
};

std::optional<std::uint64_t> in_whole(const std::optional<std::uint64_t>& bytes, std::uint64_t unit) {
    return bytes ? std::optional(round_down(*bytes, unit)) : std::nullopt;
}

// What a way of allocating is bounded by, beside the amount of memory.
struct Bounded {
    bool one_piece = false;  // it is one allocation of the driver
    bool addresses = false;  // it needs consecutive addresses of its whole size
};

// Limits that stand against the request, each where it touches this way.
Bound& limits(Bound& bound, const Situation& s, const Bounded& way) {
    const bool frameworks = s.framework && s.framework->gave_up;
    for (const Limit& limit : s.limits) {
        bool touches = false;
        switch (limit.kind) {
            case LimitKind::kHostCommit:
                touches = true;
                break;
            case LimitKind::kProcessFraction:
            case LimitKind::kAllocatorLimit:
                touches = frameworks;
                break;
            case LimitKind::kPerAllocation:
                touches = way.one_piece;
                break;
            case LimitKind::kAddressSpace:
                touches = way.addresses;
                break;
            default:
                break;
        }
        if (touches && !limit.counts)
            bound.at_most(limit.headroom.high(), limit.in_words(), limit.headroom.reason());
    }
    return bound;
}

// Where the runs of physical memory that nobody holds are known: one piece takes one run only if the driver
// needs one, and pieces of whole units fill each run for itself. Joining addresses makes no run larger.
Bound& runs_in_one_piece(Bound& bound, const Situation& s, std::uint64_t unit) {
    if (!s.runs) return bound;
    constexpr char kLargest[] = "the largest run of physical memory that nobody holds";
    if (s.runs->largest.low) bound.at_least(round_down(*s.runs->largest.low, unit), kLargest);
    if (s.one_run_needed)
        bound.at_most(in_whole(s.runs->largest.high, unit), kLargest,
                      "the driver needs one physical run for it");
    return bound;
}

Bound& runs_in_pieces(Bound& bound, const Situation& s, const Interval& sum) {
    if (!s.runs) return bound;
    if (sum.low)
        bound.at_least(*sum.low,
                       fmt::format("all of {} runs of physical memory that nobody holds", s.runs->count));
    return bound.at_most(sum.high, "the runs of physical memory that nobody holds",
                         fmt::format("{} of them, each filled for itself", s.runs->count));
}

// What the framework's allocator could have given out of what it keeps. Where it refused the request, no gap
// that it may use was large enough; which private pool a gap belongs to is not known, so none is sure to be
// eligible.
report::Bound of_the_framework(const Situation& s, const FrameworkAtFailure& own) {
    Bound out(s, "framework", own.scope);
    std::optional<std::uint64_t> largest;
    if (own.layout) {
        // Whose each gap is, and that no other is meant, is stated.
        const Interval& gaps = own.layout->views[0].gap_largest;
        largest = gaps.high;
        if (gaps.low)
            out.at_least(*gaps.low, "a gap of the request's class, owner and stream, as it is stated");
    } else if (own.agrees && own.cached.exact()) {
        largest = own.largest_eligible;
    }
    out.at_most(
        largest, "the largest gap of the request's class and stream",
        "between blocks in segments that serve such a request, by what the allocator tells of its blocks");
    const std::uint64_t refused = s.refused_then ? s.refused_then->bytes : own.tried;
    if (refused != 0 && s.refused()) {
        out.at_most(refused - 1, "the request that failed",
                    fmt::format("its allocator gave {} up at this moment", in_words(refused)));
    }
    return out.done(own.layout
                        ? "one block of the framework's own allocator, from what it keeps already"
                        : "one block of the framework's own allocator, from what it keeps already; which "
                          "private pool a gap belongs to is not told");
}

// `direct`: what is witnessed to fit as it is.
report::Bound after_compaction(const Situation& s, std::uint64_t direct) {
    Bound out(s, "compaction", s.physical);
    out.at_least(direct, "what fitted without any move");
    const auto free = s.free_then.high();
    out.at_most(free, "device-free memory", s.free_then.reason());
    std::string moved = "nothing here says which memory could be moved";
    if (s.movable && s.movable->count == 0) {
        moved = s.movable->shared == 0
                    ? "nothing of this process can be moved: none of it is reached through a mapping"
                    : fmt::format(
                          "nothing of this process can be moved: its mapped memory ({}) is "
                          "shared with others",
                          in_words(s.movable->shared));
    } else if (s.movable) {
        moved = fmt::format(
            "{} in {} mapped physical allocation{} could be moved at their addresses (copied, unmapped, "
            "mapped anew) while nothing uses them, {} of linear memory and pools not",
            in_words(s.movable->bytes), s.movable->count, s.movable->count == 1 ? "" : "s",
            in_words(s.movable->fixed));
        if (free && *free < s.movable->smallest) {
            moved += fmt::format(
                "; but the smallest of them needs {} for its copy, and no more than {} were held by "
                "nobody",
                in_words(s.movable->smallest), in_words(*free));
        }
    }
    return out.done(
        "moving live allocations together adds no bytes to what nobody holds, it only joins them; pointers "
        "of linear memory are known to the program. " +
        moved);
}

}  // namespace

std::vector<report::Bound> bounds_of(const Situation& s) {
    std::vector<report::Bound> out;
    const Kind kind = s.request.kind;
    const auto free = s.free_then.high();
    const std::string sum = "device-free memory";
    const std::string said = s.free_then.reason();
    const Witnesses& seen = s.witnesses;

    if (s.request.draws == Draws::kAddressSpace) {
        // With records missing, something may lie in a gap.
        const std::uint64_t gap =
            narrowed(s.books, Layer::kAddresses).any() ? 0 : s.space.small_witnessed_largest;
        out.push_back(Bound(s, "reservation", s.address)
                          .witnessed(seen.reservation)
                          .at_least(s.refused() ? std::min(gap, s.request.requested - 1) : gap,
                                    "the largest gap that was reserved before and was given back")
                          .failed(true)
                          .probed(wire::ProbeMechanism::kAddresses)
                          .done("one cuMemAddressReserve; memory behind it comes on top"));
        return out;
    }
    if (s.request.device == kNoDevice) return out;

    constexpr Bounded kPlain = {true, true};
    constexpr Bounded kStitched = {false, true};
    constexpr Bounded kPieces = {false, false};
    Bound direct(s, "direct", s.physical);
    direct.witnessed(seen.linear)
        .at_most(free, sum, said)
        .failed(kind == Kind::kLinearAcquired)
        .probed(wire::ProbeMechanism::kDirect);
    limits(runs_in_one_piece(direct, s, 1), s, kPlain);
    out.push_back(direct.done("one cuMemAlloc"));
    const std::uint64_t minimum = s.page;
    Bound handle(s, "vmm", s.physical);
    handle.witnessed(seen.handle)
        .at_most(in_whole(free, minimum), sum, said + ", in whole units of " + in_words(minimum))
        .failed(kind == Kind::kHandleCreated)
        .probed(wire::ProbeMechanism::kHandleMinimum);
    limits(runs_in_one_piece(handle, s, minimum), s, kPlain);
    out.push_back(
        handle.done("one cuMemCreate at the minimum granularity; it needs an address range to be mapped"));
    if (s.recommended_granularity > minimum) {
        const std::uint64_t unit = s.recommended_granularity;
        Bound larger(s, "vmm_recommended", s.physical);
        // A handle of whole units is one of this granularity, whichever the program meant.
        larger.witnessed(seen.handle % unit == 0 ? seen.handle : 0)
            .at_most(in_whole(free, unit), sum, said + ", in whole units of " + in_words(unit))
            .failed(kind == Kind::kHandleCreated && s.request.requested % unit == 0)
            .probed(wire::ProbeMechanism::kHandleRecommended);
        limits(runs_in_one_piece(larger, s, unit), s, kPlain);
        out.push_back(larger.done("one cuMemCreate at the recommended granularity"));
    }
    Bound stitched(s, "stitched", s.physical);
    stitched.witnessed(seen.handles_together, true)
        .at_most(in_whole(free, minimum), sum, said + ", in whole units of " + in_words(minimum));
    if (kind == Kind::kHandleCreated && s.request.requested == minimum) stitched.failed(true);
    // The trial makes the handles and maps none: it speaks of a mapped range only with the trial of
    // addresses.
    const std::uint64_t handles = s.probes.granted(wire::ProbeMechanism::kStitched);
    stitched
        .granted(std::min(handles, s.probes.granted(wire::ProbeMechanism::kAddresses)),
                 "in all were granted as handles, and as much in one address range, though not mapped, when "
                 "they were tried")
        .refused(wire::ProbeMechanism::kStitched);
    if (s.runs) runs_in_pieces(stitched, s, s.runs->in_units);
    limits(stitched, s, kStitched);
    stitched.in_pieces();
    out.push_back(
        stitched.done("many small cuMemCreate mapped side by side: consecutive addresses, no larger physical "
                      "extent and no more bytes "
                      "than nobody holds; it needs an address range, and a mapping call for each unit"));
    Bound segmented(s, "segmented", s.physical);
    segmented.witnessed(seen.pieces_together, true);
    if (s.framework && s.framework->gave_up) {
        // Its pieces may come out of the allocator's gaps as well.
        std::optional<std::uint64_t> together;
        if (free && s.framework->agrees && s.framework->cached.high())
            together = *free + std::min(s.framework->cached.high().value_or(0), UINT64_MAX - *free);
        segmented.at_most(
            together, "device-free memory and what the framework's allocator keeps",
            said + "; and what lies in its segments and in no block");
    } else {
        segmented.at_most(free, sum, said);
    }
    segmented.granted(handles, "in all were granted as separate handles when they were tried");
    if (kind == Kind::kLinearAcquired && s.request.requested <= kPackedUpTo) segmented.failed(true);
    if (s.runs) runs_in_pieces(segmented, s, s.runs->sum);
    limits(segmented, s, kPieces);
    segmented.in_pieces();
    out.push_back(segmented.done(
        s.contract.allows_pieces()
            ? "several allocations that the program addresses through a table, as its contract allows"
            : "several allocations that the program addresses through a table: every consumer of the pointer "
              "has to be changed"));

    if (s.used_pools) {
        Bound pool(s, "pool", s.physical);
        const auto cached = s.cached.high();
        pool.witnessed(seen.pool)
            .at_most(free && cached ? std::optional(*free + *cached) : std::nullopt,
                     "device-free memory and what pools keep", "as the driver said " + s.when)
            .failed(kind == Kind::kPoolAcquired);
        // The trial has a pool of its own, with nothing kept in it and no maximum: a refusal bounds this one
        // only where nothing is kept either, and a grant shows what fits where no maximum stands against it.
        const bool limited = std::any_of(s.pools.begin(), s.pools.end(), [&](const PoolAtFailure& each) {
            return each.pool == s.request.pool && each.said.maximum.has_value();
        });
        if (!limited && cached == std::optional<std::uint64_t>(0)) pool.probed(wire::ProbeMechanism::kPool);
        for (const PoolAtFailure& each : s.pools) {
            if (each.pool == s.request.pool && each.said.maximum) {
                pool.at_most(*each.said.maximum, "the pool's maximum size", "CUmemPoolProps::maxSize");
            }
        }
        limits(pool, s, kPlain);
        out.push_back(pool.done("one cuMemAllocAsync"));
    }
    const auto only_tried = [&](wire::ProbeMechanism mechanism, const Scope& scope, const char* note) {
        if (s.probes.granted(mechanism) == 0 && !s.probes.refused(mechanism)) return;
        out.push_back(Bound(s, mechanism_id(mechanism).c_str(), scope).probed(mechanism).done(note));
    };
    only_tried(wire::ProbeMechanism::kManaged, s.physical.in_domain("managed"),
               "one cuMemAllocManaged: addresses now, pages of host or device as they are used");
    only_tried(wire::ProbeMechanism::kHost, s.physical.in_domain("host"), "one cuMemHostAlloc: host memory");
    only_tried(wire::ProbeMechanism::kAddresses, s.address, "one cuMemAddressReserve: addresses, no memory");
    if (s.framework && s.framework->gave_up) out.push_back(of_the_framework(s, *s.framework));
    out.push_back(after_compaction(s, out.front().largest().low_bytes()));
    return out;
}

}  // namespace fragscope::analysis
