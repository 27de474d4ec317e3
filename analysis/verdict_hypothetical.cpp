// Verdicts of a request that nobody made: that it would have been met, and that it cannot be told. That it
// would not have been met has the causes of every request.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/verdict_parts.h"

namespace fragscope::analysis::verdict {

using report::Verdict;
using wire::Kind;

namespace {

// A success of the request's own kind in the same state.
std::uint64_t witnessed(const Situation& s) {
    using wire::ProbeMechanism;
    switch (s.request.kind) {
        case Kind::kLinearAcquired:
            return std::max(s.witnesses.linear, s.probes.granted(ProbeMechanism::kDirect));
        case Kind::kHandleCreated:
            return std::max(s.witnesses.handle, s.probes.granted(ProbeMechanism::kHandleMinimum));
        case Kind::kPoolAcquired:
            return s.witnesses.pool;
        case Kind::kReserved:
            return std::max(s.witnesses.reservation, s.probes.granted(ProbeMechanism::kAddresses));
        case Kind::kBlockRefused:
            return s.witnesses.block;
        case Kind::kHostAcquired:
            return s.probes.granted(ProbeMechanism::kHost);
        case Kind::kManagedAcquired:
            return s.probes.granted(ProbeMechanism::kManaged);
        default:
            return 0;
    }
}

constexpr char kSampled[] =
    "cuMemGetInfo at this moment: a recording with a denser `fragscope run --sample` (every:1ms,bytes:1MiB), "
    "or "
    "this question for one of the moments at which the driver was asked";

Verdict would_fit(const Situation& s, const std::string& summary) {
    Verdict out;
    set(out, Verdict::would_fit, "", summary);
    if (!s.succeeded_later.empty()) out.set_summary(summary + " " + s.succeeded_later);
    return out;
}

Verdict of_addresses(const Situation& s) {
    const std::uint64_t needed = s.request.needed.low.value_or(0);
    const bool pieces = s.contract.allows_pieces();
    const std::uint64_t most = pieces ? s.space.witnessed.sum() : s.space.witnessed.largest();
    if (narrowed(s.losses, Layer::kAddresses).any()) {
        return undetermined(
            "Records of this process are missing: which of its addresses were unused is not known.",
            "the same run without losses (a larger ring, see the warnings above)");
    }
    if (needed != 0 && most >= needed) {
        return would_fit(
            s, fmt::format(
                   "It needs {} of {}addresses, and {} that were reserved before had been given back and "
                   "held nothing recorded.",
                   in_words(needed), pieces ? "" : "consecutive ", in_words(most)));
    }
    return undetermined(
        fmt::format(
            "It needs {} of {}addresses. Of those that this process once reserved and gave back, {} were "
            "unused{}; how much more the driver had to give is not visible.",
            in_words(needed), pieces ? "" : "consecutive ", in_words(most), pieces ? "" : " in one piece"),
        "a reservation of this size at this moment (cuMemAddressReserve), made and freed again by the "
        "program");
}

Verdict not_decided(const Situation& s) {
    const FrameworkAtFailure* own = s.framework ? &*s.framework : nullptr;
    if (s.request.kind == Kind::kBlockRefused && own != nullptr && own->tried != 0 &&
        own->largest_eligible >= own->tried) {
        return undetermined(
            fmt::format(
                "{}. A gap of {} in the allocator's segments of its class is large enough for a block of "
                "{}, if it belongs to no private pool (a CUDA graph's, a MemPool) and to the stream that "
                "the request would be for.",
                free_and_needed(s), in_words(own->largest_eligible), in_words(own->tried)),
            "segment_pool_id and stream of that gap's segment in torch.cuda.memory._snapshot()");
    }
    if (!s.device_free.known()) {
        return undetermined(
            fmt::format(
                "It needs {}. How much of the device was held by nobody at this moment is not known: {}.{}",
                in_words(s.request.needed), s.not_asked,
                s.free_then.known()
                    ? fmt::format(" By the records it was {}.", in_words(s.free_then.interval()))
                    : std::string()),
            kSampled);
    }
    if (!s.contract.allows_stitching()) return one_run_not_seen(s);
    if (s.request.draws == Draws::kPool) {
        return undetermined(
            fmt::format(
                "{}. Whether what the pool keeps unused is in one piece, and open to the stream of the "
                "request, is not visible.",
                free_and_needed(s)),
            "the same request from the same pool at this moment");
    }
    return undetermined(
        fmt::format("{}: whether it fits depends on how the driver rounds this request, or on calls of other "
                    "threads that were under way.",
                    free_and_needed(s)),
        "the drop of device-free memory (cuMemGetInfo) around a successful call of the same size");
}

}  // namespace

std::optional<Verdict> of_a_hypothetical(const Situation& s, const std::vector<Counterfactual>& rows) {
    if (s.refused()) return std::nullopt;
    const std::uint64_t requested = s.request.requested;
    if (requested != 0 && witnessed(s) >= requested && s.contract.allows_stitching()) {
        return would_fit(
            s, fmt::format(
                   "A request of the same kind, of {}, was granted in this very state: after this moment, "
                   "and before this process gave anything back. It needs no more than that, unless another "
                   "process gave memory back meanwhile.",
                   in_words(witnessed(s))));
    }
    switch (s.request.draws) {
        case Draws::kAddressSpace:
            return of_addresses(s);
        case Draws::kPhysical:
        case Draws::kPool:
            break;
        case Draws::kHost:
            return undetermined(
                fmt::format(
                    "It asks for {}; this process holds {} of page-locked host memory in this trace, and no "
                    "limit of the host is in the trace.",
                    s.request.in_words, in_words(s.host_pinned)),
                "the limit of locked memory (ulimit -l, cgroup memory.max) and MemAvailable of /proc/meminfo "
                "at "
                "this moment");
        default:
            return undetermined(
                fmt::format(
                    "It asks for {}. What it draws on (page tables, host memory, address space) is not in "
                    "the trace.",
                    s.request.in_words),
                "the same request at this moment, made and undone by the program");
    }
    switch (rows.front().fit) {
        case Fit::kFits:
            // A handle takes no addresses until it is mapped; every other way needs a range with the memory.
            if (s.reservation_failed_before && s.request.kind != Kind::kHandleCreated)
                return against_the_numbers(s);
            return would_fit(s,
                             fmt::format("{}: that is enough, and nothing in this trace stands against it. A "
                                         "limit that the trace does not show may.",
                                         free_and_needed(s)));
        case Fit::kCannotTell:
            return not_decided(s);
        case Fit::kDoesNotFit:
            return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace fragscope::analysis::verdict
