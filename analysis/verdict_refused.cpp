// Verdicts of a request that the driver refused although its own numbers left room.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/verdict.h"
#include "analysis/verdict_parts.h"

namespace fragscope::analysis::verdict {

using report::Verdict;
using wire::ProbeMechanism;

namespace {

// The trials that use the failed call's own mechanism.
std::optional<ProbeMechanism> own_mechanism(const Situation& s) {
    switch (s.request.kind) {
        case wire::Kind::kLinearAcquired:
            return ProbeMechanism::kDirect;
        case wire::Kind::kHandleCreated:
            return ProbeMechanism::kHandleMinimum;
        default:
            return std::nullopt;
    }
}

// What the trials after the failure decide; nothing where they leave it open. A trial speaks of its mechanism
// only: that the bytes were there in handles of the smallest size is said of handles.
std::optional<Verdict> tried_in_place(const Situation& s) {
    const std::uint64_t requested = s.request.requested;
    const auto own = own_mechanism(s);
    if (!own || requested == 0) return std::nullopt;
    const auto refused = [&](ProbeMechanism mechanism) {
        return s.probes.refused(mechanism).value_or(UINT64_MAX) <= requested;
    };
    Verdict out;
    if (s.probes.granted(*own) >= requested) {
        set(out, Verdict::other_constraint, "gone_at_once",
            fmt::format(
                "{}. The same amount, tried by the same kind of call right after the failure, was granted: "
                "what refused it was gone by then.",
                free_and_needed(s)));
        out.set_deciding_measurement(
            "what other threads, and other processes of the device, gave back at that moment: record all of "
            "them "
            "in one session");
        return out;
    }
    const std::uint64_t stitched = s.probes.granted(ProbeMechanism::kStitched);
    if (s.tried_in_pieces) {
        set(out, Verdict::physical_external_fragmentation, "",
            fmt::format(
                "{}, which is enough. Tried in place right after the failure and undone: one physical "
                "handle of that size was refused, and handles of the smallest size ({}) were granted, {} "
                "in all. The bytes were there, but not in one piece.",
                free_and_needed(s), in_words(s.page), in_words(stitched)));
        out.add_removed("with_physical_merged");
        return out;
    }
    if (stitched >= requested && refused(ProbeMechanism::kAddresses)) {
        set(out, Verdict::other_constraint, "address_space",
            fmt::format(
                "{}, which is enough, and {} were granted in handles of the smallest size when they were "
                "tried right after the failure; but a reservation of that many addresses was refused.",
                free_and_needed(s), in_words(stitched)));
        return out;
    }
    if (refused(ProbeMechanism::kStitched)) {
        set(out, Verdict::other_constraint, "less_than_said",
            fmt::format(
                "{}. But tried in place right after the failure, even handles of the smallest size reached "
                "no more than {} together: what is counted as device-free memory was not to be had.",
                free_and_needed(s), in_words(stitched)));
        out.set_deciding_measurement(
            "limits on this process or container (MPS memory limit, MIG, cgroup), and the kernel log (dmesg, "
            "Xid)");
        return out;
    }
    return std::nullopt;
}

}  // namespace

Verdict against_the_numbers(const Situation& s) {
    const std::uint64_t free = s.free_then.low().value_or(0);
    const std::uint64_t needed = s.request.needed.high.value_or(UINT64_MAX);
    const std::uint64_t whole = s.capacity.high().value_or(UINT64_MAX);
    if (s.reservation_failed_before) {
        Verdict out;
        set(out, Verdict::other_constraint, "address_space",
            fmt::format(
                "{}, which is enough; but an address reservation of no more than this size had failed just "
                "before, and no address space was given back in between.",
                free_and_needed(s)));
        return out;
    }
    if (s.came_in_pieces) {
        Verdict out;
        set(out, Verdict::physical_external_fragmentation, "",
            fmt::format("{}, which is enough; a physical allocation of this size had succeeded before, and "
                        "right after the failure smaller ones took as many bytes in all, with nothing given "
                        "back in between: the bytes were there, but not in one piece.",
                        free_and_needed(s)));
        out.add_removed("with_physical_merged");
        return out;
    }
    if (auto tried = tried_in_place(s)) return *tried;
    if (free / kRefusedTimes >= needed && free - needed >= whole / kRefusedShare) {
        Verdict out;
        set(out, Verdict::other_constraint, "driver_refused",
            fmt::format("{}: far more than any rounding could take. The driver refused for a reason that "
                        "this trace does "
                        "not show; that is not fragmentation until something shows it.",
                        free_and_needed(s)));
        out.set_deciding_measurement(
            "the same bytes as several smaller cuMemCreate calls at this moment: if they succeed, the memory "
            "is there, but not in one piece; a reservation of the same size by cuMemAddressReserve at this "
            "moment tells whether address "
            "space is short; "
            "the kernel log (dmesg, Xid), process limits and what the host may still commit tell of other "
            "refusals");
        return out;
    }
    return undetermined(
        fmt::format("{}: by the numbers it should have fitted, but the margin is within what the driver "
                    "may need for itself.",
                    free_and_needed(s)),
        "an allocation probe at the failure: the same bytes as several smaller cuMemCreate calls tell "
        "whether "
        "they are there in pieces; the largest cuMemCreate and the largest cuMemAddressReserve "
        "that succeed then tell memory and address space apart; a limit of what the host may commit shows "
        "in neither. `fragscope run --probe-on-oom` tries them in place");
}

Verdict against_what_is_stated(const Situation& s, const std::vector<Counterfactual>& rows) {
    const Counterfactual& base = *row_of(rows, "as_it_was");
    const std::string numbers = fmt::format(
        "By the numbers that are stated the request fits: {} were to be had for it, and it needs {}",
        in_words(base.available.interval()), in_words(base.needed.interval()));
    Verdict out;
    if (s.stated_refusal) {
        set(out, Verdict::other_constraint, "driver_refused",
            numbers +
                ". The driver refused all the same, for a reason that these numbers do not show; that is not "
                "fragmentation until something shows it.");
        out.set_deciding_measurement(
            "the same bytes as several smaller allocations at that moment; the kernel log (dmesg, Xid), "
            "process "
            "limits and what the host may still commit");
        return out;
    }
    return undetermined(numbers + ". What refused it is not among them.",
                        "a recording of the failing run (`fragscope run --probe-on-oom`): which call was "
                        "refused with which size, "
                        "the driver's own word on the device at that moment, and whether the same bytes come "
                        "in smaller pieces; "
                        "other users of the device at that moment");
}

}  // namespace fragscope::analysis::verdict
