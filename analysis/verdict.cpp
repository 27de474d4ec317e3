#include "analysis/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis {
namespace {

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

bool is_own(Blame blame) {
    return blame == Blame::kCached || blame == Blame::kPending || blame == Blame::kWaste;
}

// Whether so much waste could be the reason at all; see the file's comment.
bool material(const Situation& s, const std::optional<std::uint64_t>& waste) {
    const std::uint64_t charged = s.attributed.low().value_or(0);
    return !waste || *waste >= charged / kMaterialWaste + (charged % kMaterialWaste != 0 ? 1 : 0);
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

std::string held_by_nobody(const Situation& s) {
    const std::string bytes = in_words_beside(s.free_then.interval(), s.request.needed);
    const char* how =
        s.device_free.known() ? "cuMemGetInfo" : "what the records leave; the driver was not asked";
    return s.capacity.known() ? fmt::format("of the device's {}, {} were held by nobody ({})",
                                            in_words(s.capacity.interval()), bytes, how)
                              : fmt::format("{} of the device were held by nobody ({})", bytes, how);
}

std::string free_and_needed(const Situation& s) {
    return fmt::format("It needs {}; {}", in_words_beside(s.request.needed, s.free_then.interval()),
                       held_by_nobody(s));
}

constexpr char kNotFreedEnough[] = " Nothing that this process has given back already";

// What the process itself could have done without giving up payload; reached only if that was not enough.
std::string own_part(const Situation& s, const std::vector<Counterfactual>& rows) {
    const Counterfactual* waste = row_of(rows, "without_internal_waste");
    if (waste != nullptr && waste->applicable && waste->fit != Fit::kDoesNotFit) {
        return fmt::format(
            "{} would have been enough. Up to {} of what it is charged may be rounding: that might have made "
            "room for this one request, but is less than a quarter of what it holds.",
            kNotFreedEnough, in_words(waste->freed.high().value_or(0)));
    }
    const Counterfactual* never = row_of(rows, "without_never_written_pages");
    if (never != nullptr && never->applicable && never->fit != Fit::kDoesNotFit) {
        return fmt::format(
            "{} would have been enough. {} of what it is charged lie in VMM pages that {} never written: "
            "without those it {} have fitted.",
            kNotFreedEnough, in_words(never->freed.interval()),
            never->freed.exact() ? "were" : "may have been", never->fit == Fit::kFits ? "would" : "might");
    }
    if (!s.handle_waste.known()) {
        return fmt::format(
            "{} would have been enough. Whether what it holds is full of payload is not known.",
            kNotFreedEnough);
    }
    return fmt::format("{}, or wastes, would have been enough.", kNotFreedEnough);
}

std::string others_in_words(const Situation& s) {
    std::string out;
    for (const OtherProcess& other : s.other_processes) {
        if (!out.empty()) out += ", ";
        out += fmt::format("{} {}", process_in_words(*s.trace, other.process), in_words(other.charged));
    }
    return out;
}

// A sixteenth of the device or more.
bool matters(const Situation& s, const Quantity& quantity) {
    return quantity.high().value_or(0) >= s.capacity.high().value_or(0) / 16 &&
           quantity.high().value_or(0) != 0;
}

// Shares of what the device is taken by, largest first.
void add_shares(Verdict& out, const Situation& s) {
    struct Share {
        std::uint64_t bytes;
        std::string words;
    };
    std::vector<Share> shares;
    const auto share = [&](const Quantity& quantity, const std::string& words) {
        const std::uint64_t bytes = quantity.high().value_or(quantity.low().value_or(0));
        if (quantity.known() && bytes != 0)
            shares.push_back({bytes, words + ": " + in_words(quantity.interval())});
    };
    share(s.handles, "VMM allocations of this process");
    share(s.linear, "linear memory of this process");
    for (const PoolAtFailure& pool : s.pools) {
        share(pool.reserved, pool.name + " of this process");
        share(pool.cached, "of that, kept by " + pool.name + " and in no live allocation");
    }
    for (const OtherProcess& other : s.other_processes) {
        const std::uint64_t bytes = other.charged.high.value_or(other.charged.low.value_or(0));
        shares.push_back({bytes, process_in_words(*s.trace, other.process) +
                                     ", another process of this trace: " + in_words(other.charged)});
    }
    share(s.unattributed,
          "held by no record of any recorded process (contexts, modules, processes that were not recorded)");
    share(s.partly_waste, "charged for VMM pages but never written, in pages that hold some payload");
    if (s.payload.decisive && s.payload.never_written != 0) {
        shares.push_back({s.payload.never_written,
                          "VMM pages without any written byte: " + in_words(s.payload.never_written)});
    }
    std::stable_sort(shares.begin(), shares.end(),
                     [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
    for (const Share& each : shares) out.add_contributing(each.words);
    if (s.unmapped_count != 0) {
        out.add_contributing(
            fmt::format("mapped nowhere, so that no kernel can use it: {} in {} physical "
                        "allocation{}",
                        in_words(s.unmapped_bytes), s.unmapped_count, s.unmapped_count == 1 ? "" : "s"));
    }
    if (s.contexts > 1 && matters(s, s.unattributed)) {
        out.add_contributing(
            fmt::format("this process has {} contexts on the device: what they take is part "
                        "of what no record explains",
                        s.contexts));
    }
}

// The smallest set of removals (among `candidates`) that fits for certain; of several, the one whose kinds
// come first in the list of Blame. Empty: there is none.
std::vector<const Counterfactual*> smallest_set(const Situation& s, const std::vector<Counterfactual>& rows,
                                                const std::vector<const Counterfactual*>& candidates) {
    const Counterfactual& base = *row_of(rows, "as_it_was");
    std::vector<const Counterfactual*> best;
    for (unsigned mask = 1; mask < (1u << candidates.size()); ++mask) {
        std::vector<const Counterfactual*> members;
        Quantity available = base.by_bytes;
        bool cached = false, pending = false;
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            if ((mask >> i & 1u) == 0) continue;
            members.push_back(candidates[i]);
            cached = cached || candidates[i]->blame == Blame::kCached;
            pending = pending || candidates[i]->blame == Blame::kPending;
            const auto sum = plus(available, candidates[i]->freed, report::Quantity::eligible_free, "");
            if (sum) available = *sum;
        }
        Interval together = available.interval();
        // Trimmed after the streams got there, a pool gives back what a trim alone may have to leave.
        if (cached && pending && together.low && s.request.draws != Draws::kPool) {
            *together.low +=
                s.reclaimable_when_done - std::min(s.reclaimable.low().value_or(0), s.reclaimable_when_done);
        }
        if (fit_of(together, s.request.needed) != Fit::kFits) continue;
        // Masks count upwards, so of equal sizes the one with the earlier candidates comes first.
        if (best.empty() || members.size() < best.size()) best = members;
    }
    return best;
}

// Whether all candidates together might be enough.
bool might_fit(const Situation& s, const std::vector<Counterfactual>& rows,
               const std::vector<const Counterfactual*>& candidates) {
    Quantity available = row_of(rows, "as_it_was")->by_bytes;
    for (const Counterfactual* row : candidates) {
        const auto sum = plus(available, row->freed, report::Quantity::eligible_free, "");
        if (sum) available = *sum;
    }
    return fit_of(available.interval(), s.request.needed) != Fit::kDoesNotFit;
}

Verdict own_cause(const Situation& s, const std::vector<const Counterfactual*>& removals) {
    Verdict out;
    // The member with the largest share names the cause.
    const Counterfactual* main = *std::max_element(
        removals.begin(), removals.end(), [](const Counterfactual* a, const Counterfactual* b) {
            return a->freed.low().value_or(0) < b->freed.low().value_or(0);
        });
    switch (main->blame) {
        case Blame::kCached:
            set(out, Verdict::other_constraint, "cached_by_pool",
                fmt::format("{}; stream-ordered pools of this program keep {} that it has freed already, and "
                            "cuMemPoolTrimTo (cudaMemPoolTrimTo) would have given back {}.",
                            free_and_needed(s), in_words(s.cached.interval()),
                            in_words(main->freed.interval())));
            break;
        case Blame::kPending:
            set(out, Verdict::other_constraint, "pending_frees",
                fmt::format("{}; {} were freed by the program but still waited for their stream: after a "
                            "synchronisation and cuMemPoolTrimTo the device would have had them.",
                            free_and_needed(s), in_words(s.pending.interval())));
            break;
        default:
            set(out, Verdict::internal_fragmentation, "",
                fmt::format(
                    "{}. This process is charged {} for its allocations, and {} of it lie in pages that hold "
                    "some payload but were never written there: the device is full of rounding, not of data.",
                    free_and_needed(s), in_words(s.attributed.interval()), in_words(main->freed.interval())));
    }
    if (removals.size() > 1)
        out.set_summary(out.summary() + " None of the things removed would have been enough alone.");
    for (const Counterfactual* row : removals) out.add_removed(row->id);
    return out;
}

Verdict capacity(const Situation& s, const std::vector<Counterfactual>& rows) {
    Verdict out;
    const Counterfactual* whole = row_of(rows, "with_nothing_else_on_device");
    if (whole != nullptr && whole->fit == Fit::kDoesNotFit) {
        set(out, Verdict::capacity_exhaustion, "",
            fmt::format(
                "The request is larger than the device: it asks for {}, and the device has {} in all. "
                "What else is held plays no part.",
                in_words(s.request.draws == Draws::kContext ? *s.request.needed.low : s.request.requested),
                in_words(s.capacity.interval())));
        return out;
    }
    // Who holds the device, the largest share first.
    struct Holder {
        std::uint64_t bytes;
        std::string words;
    };
    const auto size = [](const Quantity& q) { return q.high().value_or(q.low().value_or(0)); };
    std::vector<Holder> holders = {
        {size(s.attributed), fmt::format("this process itself holds {}", in_words(s.attributed.interval()))}};
    if (!s.other_processes.empty()) {
        holders.push_back({size(s.others), fmt::format("other processes of this trace hold {} ({})",
                                                       in_words(s.others.interval()), others_in_words(s))});
    }
    if (s.unattributed.known() && size(s.unattributed) != 0) {
        holders.push_back(
            {size(s.unattributed), fmt::format("{} are held by no record of any recorded process (contexts, "
                                               "modules, processes that were not recorded, "
                                               "memory of graphs)",
                                               in_words(s.unattributed.interval()))});
    }
    std::stable_sort(holders.begin(), holders.end(),
                     [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
    std::string words = free_and_needed(s) + ": ";
    for (std::size_t i = 0; i < holders.size(); ++i) words += (i == 0 ? "" : ", ") + holders[i].words;
    words += ".";
    if (fits(rows, "without_other_processes")) {
        words += " Without the other processes it would have fitted.";
        out.add_removed("without_other_processes");
    } else if (fits(rows, "without_unattributed")) {
        words += size(s.unattributed) > size(s.attributed)
                     ? " Whose share is which is not known without tracing the other users of the device."
                     : own_part(s, rows);
        out.add_removed("without_unattributed");
    } else {
        words += own_part(s, rows);
        std::vector<const Counterfactual*> all;
        for (const Counterfactual& row : rows) {
            if (row.applicable && row.adds) all.push_back(&row);
        }
        for (const Counterfactual* row : smallest_set(s, rows, all)) out.add_removed(row->id);
        if (out.removed().empty()) out.add_removed("with_nothing_else_on_device");
    }
    set(out, Verdict::capacity_exhaustion, "", words);
    return out;
}

// The driver said no although its own numbers leave room.
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
        "in neither");
}

// Memory of graphs is this process's own and may be cached, but no record and no pool's word tells of it.
Verdict graphs_may_hold_it(const Situation& s) {
    return undetermined(
        fmt::format("{}; {} are held by no record of any recorded process, and this process captured {} "
                    "stream-ordered allocation{} into graphs: what graphs take and keep is among that, and "
                    "how much it is, this trace does not say.",
                    free_and_needed(s), in_words(s.unattributed.interval()), s.captured_allocations,
                    s.captured_allocations == 1 ? "" : "s"),
        "cuDeviceGetGraphMemAttribute (CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT and RESERVED_MEM_CURRENT) right "
        "after the failure, or the same request after cuDeviceGraphMemTrim: if it succeeds then, graphs kept "
        "the memory");
}

Verdict physical_verdict(const Situation& s, const std::vector<Counterfactual>& rows) {
    const Fit base = fit_of(rows.front().by_bytes.interval(), s.request.needed);
    if (const Counterfactual* whole = row_of(rows, "with_nothing_else_on_device");
        whole != nullptr && whole->fit == Fit::kDoesNotFit) {
        return capacity(s, rows);
    }
    if (!s.free_then.known() || (!s.device_free.known() && base != Fit::kDoesNotFit)) {
        return undetermined(
            fmt::format("How much of the device was held by nobody when this call failed is not known, so "
                        "nothing can be concluded from sizes: {}.",
                        s.not_asked),
            fmt::format("cuMemGetInfo right after the failure{}",
                        s.snapshot.captured    ? ", in a run in which no stream capture is running then"
                        : !s.snapshot.complete ? ", as a complete recording has it for the first of several "
                                                 "failures in a row"
                                               : ", with a context of the request's device current"));
    }
    if (base == Fit::kFits) return against_the_numbers(s);
    if (base == Fit::kCannotTell) {
        if (s.request.draws == Draws::kContext) {
            return undetermined(
                fmt::format("How much a context needs, the call does not say; {}.", held_by_nobody(s)),
                "the drop of device-free memory (cuMemGetInfo) when the same program creates its context on "
                "an idle device");
        }
        return undetermined(
            fmt::format("{}: whether it fits depends on how the driver rounds this request.",
                        free_and_needed(s)),
            "the drop of device-free memory (cuMemGetInfo) around a successful call of the same size");
    }
    std::vector<const Counterfactual*> own;
    bool unknown_cache = false, unproven_waste = false;
    for (const Counterfactual& row : rows) {
        if (!row.applicable || !row.adds || !is_own(row.blame)) continue;
        if (row.blame == Blame::kWaste && !material(s, row.freed.high())) continue;
        own.push_back(&row);
    }
    std::vector<const Counterfactual*> sure = own;
    std::erase_if(sure, [&](const Counterfactual* row) {
        return row->blame == Blame::kWaste && !material(s, row->freed.low().value_or(0));
    });
    if (const auto removals = smallest_set(s, rows, sure); !removals.empty()) return own_cause(s, removals);
    if (might_fit(s, rows, own)) {
        std::string what;
        for (const Counterfactual* row : own) {
            const bool open = !row->freed.exact();
            unknown_cache = unknown_cache || (open && row->blame != Blame::kWaste);
            unproven_waste = unproven_waste || (open && row->blame == Blame::kWaste);
            if (open)
                what += (what.empty() ? "" : "; ") + row->removed + ": " + in_words(row->freed.interval());
        }
        std::string measurement;
        if (unknown_cache) {
            measurement =
                "the pools' reserved and used sizes right after the failure, with every stream synchronised";
        }
        if (unproven_waste) {
            if (!measurement.empty()) measurement += "; ";
            measurement +=
                "how much of the charged memory holds payload: the program's own object sizes, or the drop "
                "of "
                "device-free memory (cuMemGetInfo) around its allocations";
        }
        if (s.books.any())
            measurement += "; all of it in a recording without losses, from the program's start on";
        return undetermined(
            fmt::format("{}; whether the program's own memory that holds nothing would have made room is "
                        "not known ({}).",
                        free_and_needed(s), what),
            measurement);
    }
    if (s.captured_allocations != 0) {
        std::vector<const Counterfactual*> with_graphs = own;
        with_graphs.push_back(row_of(rows, "without_unattributed"));
        if (might_fit(s, rows, with_graphs)) return graphs_may_hold_it(s);
    }
    return capacity(s, rows);
}

Verdict address_verdict(const Situation& s, const std::vector<Counterfactual>& rows) {
    const AddressSpace& space = s.space;
    const std::uint64_t needed = s.request.needed.low.value_or(0);
    if (s.losses.any()) {
        return undetermined(
            "An address reservation failed, and records of this process are missing: which gaps were unused "
            "is not known.",
            "the same run without losses (a larger ring, see the warnings above)");
    }
    if (space.witnessed_largest >= needed && needed != 0) {
        return undetermined(
            fmt::format(
                "A gap of {}, once reserved by this process, had been given back, and still the driver "
                "refused a reservation of {}.",
                in_words(space.witnessed_largest), in_words(needed)),
            "a reservation that asks for the address of that gap (probe at the failure)");
    }
    Verdict out;
    if (fits(rows, "with_virtual_gaps_merged")) {
        set(out, Verdict::virtual_space_fragmentation, "",
            fmt::format("It needs {} of consecutive addresses. {} gaps that were reserved before, were given "
                        "back and hold "
                        "nothing recorded sum to {}, which is enough, but the largest of them is {}. Device "
                        "memory plays no "
                        "part in this call.",
                        in_words(needed), space.witnessed_count, in_words(space.small_witnessed_sum),
                        in_words(space.small_witnessed_largest)));
        out.add_removed("with_virtual_gaps_merged");
    } else if (!space.seen) {
        set(out, Verdict::other_constraint, "address_space",
            fmt::format("It needs {} of consecutive addresses, and this process held no other reservation: "
                        "this one alone is "
                        "more than the driver had to give, or than a limit of the process (ulimit -v) "
                        "leaves. Device memory "
                        "plays no part in this call.",
                        in_words(needed)));
    } else if (space.small_sum < needed) {
        set(out, Verdict::other_constraint, "address_space",
            fmt::format("The address space for reservations ran out: {} are reserved ({} of it with nothing "
                        "mapped), and "
                        "all unused gaps between them sum to {}, less than the {} asked for. Device memory "
                        "plays no part "
                        "in this call{}.",
                        in_words(space.reserved), in_words(space.unbacked), in_words(space.small_sum),
                        in_words(needed), s.device_free.known() ? "; " + held_by_nobody(s) : ""));
        out.add_removed(fits(rows, "without_unbacked_reservations") ? "without_unbacked_reservations"
                                                                    : "with_only_live_payload");
    } else {
        return undetermined(
            fmt::format(
                "It needs {} of consecutive addresses; gaps that are known to be usable sum to {}, and gaps "
                "that were never given out to {}: whether the driver could use those is not known.",
                in_words(needed), in_words(space.small_witnessed_sum),
                in_words(space.small_sum - space.small_witnessed_sum)),
            "reservations that ask for the addresses of the gaps (probe at the failure)");
    }
    out.add_contributing(fmt::format("reserved address space: {}", in_words(space.reserved)));
    out.add_contributing(fmt::format("of that, with nothing mapped: {}", in_words(space.unbacked)));
    return out;
}

// A request to a pool that the device's unused memory could not serve: was it in the pool, and in what shape?
Verdict pool_verdict(const Situation& s, const std::vector<Counterfactual>& rows) {
    const PoolAtFailure* pool = nullptr;
    for (const PoolAtFailure& each : s.pools) {
        if (each.pool == s.request.pool) pool = &each;
    }
    const Counterfactual* limit = row_of(rows, "with_limit_lifted");
    if (pool == nullptr || !pool->cached.exact() || !s.device_free.known()) return physical_verdict(s, rows);
    const std::uint64_t requested = s.request.requested;
    const std::uint64_t cached = *pool->cached.low();
    const std::uint64_t reserved = *pool->reserved.low();
    std::uint64_t growth = s.free_then.high().value_or(UINT64_MAX);
    const bool limited = limit->applicable && pool->said.maximum &&
                         *pool->said.maximum < reserved + std::min(growth, requested);
    if (limited) growth = *pool->said.maximum - std::min(reserved, *pool->said.maximum);
    if (growth >= requested) return physical_verdict(s, rows);
    const std::string where =
        limited ? fmt::format("{} may hold at most {}, and holds {}, of which {} are in no live allocation",
                              pool->name, in_words(*pool->said.maximum), in_words(reserved), in_words(cached))
                : fmt::format("{}. {} holds {}, of which {} are in no live allocation", free_and_needed(s),
                              pool->name, in_words(reserved), in_words(cached));
    Verdict out;
    if (cached < requested && growth + cached < requested) {
        if (!limited || limit->fit != Fit::kFits) return physical_verdict(s, rows);
        set(out, Verdict::other_constraint, "pool_maximum",
            fmt::format("{}: less than the {} asked for. Otherwise, {}.", where, in_words(requested),
                        held_by_nobody(s)));
        out.add_removed("with_limit_lifted");
        return out;
    }
    const bool told = pool->pending == 0 && pool->live.exact() && !s.books.any();
    if (told && cached >= requested && !pool->no_opportunistic_reuse) {
        set(out, Verdict::allocator_external_fragmentation, "",
            fmt::format("{}: enough for the {} asked for, but not in one piece; no stream-ordered release "
                        "was waiting.",
                        where, in_words(requested)));
        if (limited && limit->fit == Fit::kFits) {
            out.set_summary(
                out.summary() +
                " Raising the pool's maximum would have met it as well: the device has the memory.");
        }
        out.add_removed("with_pool_gaps_merged");
        return out;
    }
    return undetermined(
        fmt::format(
            "{}; {} were asked for. Whether what the pool keeps was in one piece, or {}, is not known.",
            where, in_words(requested),
            pool->no_opportunistic_reuse
                ? "could not be given to this stream (the program forbade opportunistic reuse)"
                : "still waited for a stream"),
        "the same request after cudaDeviceSynchronize: if it succeeds then, releases were waiting");
}

Verdict host_verdict(const Situation& s) {
    return undetermined(fmt::format("The driver refused {}; this process holds {} of page-locked host memory "
                                    "in this trace. It takes host memory, "
                                    "and no limit of the host is in the trace.",
                                    s.request.in_words, in_words(s.host_pinned)),
                        "the limit of locked memory (ulimit -l, cgroup memory.max) and MemAvailable of "
                        "/proc/meminfo at the failure");
}

}  // namespace

Verdict verdict_of(const Situation& s, const std::vector<Counterfactual>& rows) {
    Verdict out;
    switch (s.request.draws) {
        case Draws::kPhysical:
        case Draws::kContext:
            out = physical_verdict(s, rows);
            break;
        case Draws::kPool:
            out = pool_verdict(s, rows);
            break;
        case Draws::kAddressSpace:
            return address_verdict(s, rows);
        case Draws::kHost:
            return host_verdict(s);
        case Draws::kUnaccounted:
            return undetermined(
                fmt::format("The call asked for {}. What it draws on (page tables, host memory, address "
                            "space) is not in the trace.",
                            s.request.in_words),
                "an allocation of device memory, one of host memory and an address reservation, each of the "
                "same size, tried one by one at the failure");
    }
    const Counterfactual* whole = row_of(rows, "with_nothing_else_on_device");
    // What is held has no share in a request that the whole device could not meet.
    if (whole != nullptr && whole->fit == Fit::kDoesNotFit) return out;
    add_shares(out, s);
    if (!s.succeeded_later.empty()) out.set_summary(out.summary() + " " + s.succeeded_later);
    return out;
}

}  // namespace fragscope::analysis
