#include "analysis/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis/verdict_parts.h"

namespace fragscope::analysis {
namespace {

using namespace verdict;
using report::Verdict;

bool is_own(Blame blame) {
    return std::find(kOrderOfNaming.begin(), kOrderOfNaming.end(), blame) != kOrderOfNaming.end();
}

// Whether so much waste could be the reason at all; see the file's comment.
bool material(const Situation& s, const std::optional<std::uint64_t>& waste) {
    const std::uint64_t charged = s.attributed.low().value_or(0);
    return !waste || *waste >= charged / kMaterialWaste + (charged % kMaterialWaste != 0 ? 1 : 0);
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

// What the program itself could have given back, had or set otherwise. `sure` leaves out waste that may be too
// little to matter.
struct Own {
    Removals all;
    Removals sure;
};

Own own_of(const Situation& s, const std::vector<Counterfactual>& rows) {
    Own out;
    for (const Counterfactual& row : rows) {
        if (!row.combines() || !is_own(row.blame)) continue;
        if (row.blame == Blame::kWaste && !material(s, row.freed.high())) continue;
        out.all.push_back(&row);
    }
    in_order_of_naming(out.all);
    out.sure = out.all;
    std::erase_if(out.sure, [&](const Counterfactual* row) {
        return row->blame == Blame::kWaste && !material(s, row->freed.low().value_or(0));
    });
    return out;
}

// The cause among what is the program's own, where some set of it is enough for certain.
std::optional<Verdict> decided_by_own(const Situation& s, const std::vector<Counterfactual>& rows, const Own& own) {
    const Removals enough = smallest_set(s, rows, own.sure);
    if (enough.empty()) return std::nullopt;
    // No larger than that: what is enough for certain may be enough as well.
    const Removals first = smallest_set(s, rows, own.all, Fit::kCannotTell);
    const Counterfactual& main = main_of(s, rows, enough);
    const Counterfactual& maybe = main_of(s, rows, first);
    if (cause_of(s, maybe) != cause_of(s, main)) {
        return undetermined(
            fmt::format("{}. Without {} it would have fitted; but without {} alone it may have fitted too, and the "
                        "amounts do not tell.",
                        free_and_needed(s), main.removed, maybe.removed),
            s.stated ? exact_amounts(s)
                     : fmt::format("how many bytes that is ({}), {}", in_words(maybe.freed.interval()), s.then()));
    }
    return own_cause(s, rows, enough);
}

// A state written by hand leaves open whether the request fitted.
Verdict stated_too_wide(const Situation& s, const std::vector<Counterfactual>& rows) {
    const Counterfactual& base = *row_of(rows, "as_it_was");
    const std::string numbers = fmt::format("It needs {}, and {} were to be had for it",
                                            in_words(base.needed.interval()), in_words(base.available.interval()));
    if (s.one_run_needed && !s.runs) {
        return undetermined(numbers + ": the driver needs one physical run, and how large the runs are that nobody "
                                      "holds is not stated.",
                            "the driver's map of physical pages at that moment, or the largest single allocation that "
                            "succeeds then");
    }
    return undetermined(numbers + ": whether it fits lies inside of what the numbers leave open.", exact_amounts(s));
}

// Where a limit of something else than the device is all that can have refused it.
Verdict limited_verdict(const Situation& s, const std::vector<Counterfactual>& rows) {
    const Fit base = standing_without(s, rows, {}).fit;
    if (base == Fit::kFits) return against_what_is_stated(s, rows);
    if (base == Fit::kCannotTell) return stated_too_wide(s, rows);
    return decided_by_own(s, rows, own_of(s, rows)).value_or(stated_too_wide(s, rows));
}

Verdict physical_verdict(const Situation& s, const std::vector<Counterfactual>& rows) {
    const Fit base = standing_without(s, rows, {}).fit;
    const Own own_rows = own_of(s, rows);
    const Removals& own = own_rows.all;
    bool unknown_cache = false, unproven_waste = false;
    if (const Counterfactual* whole = row_of(rows, "with_nothing_else_on_device");
        whole != nullptr && whole->fit == Fit::kDoesNotFit) {
        // Larger than the device; but it may be that only by its own rounding, or be no request for memory.
        return decided_by_own(s, rows, own_rows).value_or(capacity(s, rows));
    }
    if (!s.free_then.known() || (!s.device_free.known() && base != Fit::kDoesNotFit)) {
        return undetermined(
            fmt::format("How much of the device was held by nobody when this call failed is not known, so "
                        "nothing can be concluded from sizes: {}.",
                        s.not_asked),
            s.stated ? exact_amounts(s)
                     : fmt::format("cuMemGetInfo right after the failure{}",
                                   s.snapshot.captured
                                       ? ", in a run in which no stream capture is running then"
                                   : !s.snapshot.complete ? ", as a complete recording has it for the first of "
                                                            "several failures in a row"
                                                          : ", with a context of the request's device current"));
    }
    if (base == Fit::kFits) return s.stated ? against_what_is_stated(s, rows) : against_the_numbers(s);
    if (base == Fit::kCannotTell) {
        if (s.stated) return stated_too_wide(s, rows);
        if (s.one_run_needed) return one_run_not_seen(s);
        if (s.request.draws == Draws::kContext) {
            return undetermined(fmt::format("How much {} needs, the call does not say; {}.",
                                            s.request.in_words, held_by_nobody(s)),
                                "the drop of device-free memory (cuMemGetInfo) around the same call when it "
                                "succeeds, on an idle "
                                "device");
        }
        return undetermined(
            fmt::format("{}: whether it fits depends on how the driver rounds this request.",
                        free_and_needed(s)),
            "the drop of device-free memory (cuMemGetInfo) around a successful call of the same size");
    }
    if (auto decided = decided_by_own(s, rows, own_rows)) return *decided;
    if (might_fit(s, rows, own)) {
        std::string what;
        for (const Counterfactual* row : own) {
            if (row->freed.exact()) continue;
            (row->blame == Blame::kWaste ? unproven_waste : unknown_cache) = true;
            what += (what.empty() ? "" : "; ") + row->removed + ": " + in_words(row->freed.interval());
        }
        // Where nothing of its own is open, what there was besides is.
        if (what.empty()) what = "held by nobody: " + in_words(s.free_then.interval());
        std::string measurement;
        if (s.stated) measurement = exact_amounts(s);
        if (unknown_cache && !s.stated) {
            measurement =
                fmt::format("the pools' reserved and used sizes {}, with every stream synchronised", s.then());
        }
        if (unproven_waste && !s.stated) {
            if (!measurement.empty()) measurement += "; ";
            measurement +=
                "how much of the charged memory holds payload: the program's own object sizes, or the drop "
                "of "
                "device-free memory (cuMemGetInfo) around its allocations";
        }
        if (measurement.empty())
            measurement = "device-free memory (cuMemGetInfo) and the pools' sizes at the failed call itself, all at one "
                          "moment and while no other thread takes or gives back memory";
        if (s.books.any())
            measurement += "; all of it in a recording without losses, from the program's start on";
        return undetermined(
            fmt::format("{}; whether the program's own memory that holds nothing would have made room is "
                        "not known ({}).",
                        free_and_needed(s), what),
            measurement);
    }
    if (s.captured_allocations != 0 && !s.graphs.exact()) {
        Removals with_graphs = own;
        with_graphs.push_back(row_of(rows, "without_unattributed"));
        if (might_fit(s, rows, with_graphs)) return graphs_may_hold_it(s);
    }
    return capacity(s, rows);
}

Verdict address_verdict(const Situation& s, const std::vector<Counterfactual>& rows) {
    const AddressSpace& space = s.space;
    if (s.stated && !space.seen) {
        return undetermined(fmt::format("{} of consecutive addresses were asked for, and how large the address space is, "
                                        "is not stated.",
                                        in_words(s.request.needed)),
                            "address_space_bytes, and every va_reserve with its offset");
    }
    const std::uint64_t needed = s.request.needed.low.value_or(0);
    if (narrowed(s.losses, Layer::kAddresses).any()) {
        return undetermined(
            "An address reservation failed, and records of this process are missing: which gaps were unused "
            "is not known.",
            "the same run without losses (a larger ring, see the warnings above)");
    }
    if (space.witnessed.largest() >= needed && needed != 0) {
        return undetermined(
            fmt::format("A gap of {}{}, and still the driver refused a reservation of {}.",
                        in_words(space.witnessed.largest()),
                        s.stated ? " lies between the reservations that are stated"
                                 : ", once reserved by this process, had been given back",
                        in_words(needed)),
            "a reservation that asks for the address of that gap (probe at the failure)");
    }
    Verdict out;
    if (fits(rows, "with_virtual_gaps_merged")) {
        set(out, Verdict::virtual_space_fragmentation, "",
            fmt::format("It needs {} of consecutive addresses. {} gaps {} sum to {}, which is enough, but the largest "
                        "of them is {}. Device memory plays no part in this call.",
                        in_words(needed), space.witnessed.count(),
                        s.stated ? "between the reservations"
                                 : "that were reserved before, were given back and hold nothing recorded",
                        in_words(space.small_witnessed_sum), in_words(space.small_witnessed_largest)));
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
            fmt::format("The address space for reservations ran out: {} are reserved{}, and all unused gaps "
                        "between them sum to {}, less than the {} asked for. Device memory plays no part in "
                        "this call{}.",
                        in_words(space.reserved),
                        s.stated ? std::string()
                                 : fmt::format(" ({} of it with nothing mapped)", in_words(space.unbacked)),
                        in_words(space.small_sum), in_words(needed), s.device_free.known() ? "; " + held_by_nobody(s) : ""));
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
    if (!s.stated) out.add_contributing(fmt::format("of that, with nothing mapped: {}", in_words(space.unbacked)));
    return out;
}

// A request to a pool that the device's unused memory could not serve: was it in the pool, and in what shape?
Verdict pool_verdict(const Situation& s, const std::vector<Counterfactual>& rows) {
    const PoolAtFailure* pool = nullptr;
    for (const PoolAtFailure& each : s.pools) {
        if (each.pool == s.request.pool) pool = &each;
    }
    const Counterfactual* limit = row_of(rows, "with_pool_maximum_lifted");
    if (pool == nullptr || !pool->cached.exact() || !s.device_free.known()) return physical_verdict(s, rows);
    const std::uint64_t requested = s.request.requested;
    const std::uint64_t cached = *pool->cached.low();
    const std::uint64_t reserved = *pool->reserved.low();
    std::uint64_t growth = s.free_then.high().value_or(UINT64_MAX);
    const bool limited = limit != nullptr && limit->applicable && pool->said.maximum &&
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
        out.add_removed(limit->id);
        return out;
    }
    const bool told = pool->pending == 0 && pool->live.exact() &&
                      !with_contradictions(narrowed(s.losses, Layer::kPools), s.contradictions).any();
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
    return undetermined(fmt::format("The driver refused {}; this process holds {} of page-locked host memory{}. It takes "
                                    "host memory, and no limit of the host is {}.",
                                    s.request.in_words, in_words(s.host_pinned), s.stated ? "" : " in this trace",
                                    s.stated ? "stated" : "in the trace"),
                        "the limit of locked memory (ulimit -l, cgroup memory.max) and MemAvailable of "
                        "/proc/meminfo at the failure");
}

Verdict cause_in(const Situation& s, const std::vector<Counterfactual>& rows) {
    switch (s.request.draws) {
        case Draws::kPhysical:
        case Draws::kContext:
        case Draws::kStack:
            if (auto by_allocator = refused_by_allocator(s, rows)) return *by_allocator;
            return physical_verdict(s, rows);
        case Draws::kPool:
            return pool_verdict(s, rows);
        case Draws::kAddressSpace:
            return address_verdict(s, rows);
        case Draws::kHost:
            return s.limits.empty() ? host_verdict(s) : limited_verdict(s, rows);
        case Draws::kAperture:
            if (!s.limits.empty()) return limited_verdict(s, rows);
            return undetermined(
                fmt::format("{} were to be mapped for others to reach; how large the window for that is (BAR1), is not "
                            "known.",
                            in_words(s.request.needed)),
                "the BAR1 sizes of `nvidia-smi -q -d MEMORY` at the failure");
        case Draws::kUnaccounted:
            break;
    }
    return undetermined(
        fmt::format("The call asked for {}. What it draws on (page tables, host memory, address "
                    "space) is not in the trace.",
                    s.request.in_words),
        "an allocation of device memory, one of host memory and an address reservation, each of the "
        "same size, tried one by one at the failure");
}

}  // namespace

Verdict verdict_of(const Situation& s, const std::vector<Counterfactual>& rows) {
    if (auto out = of_a_hypothetical(s, rows)) return *out;
    Verdict out = cause_in(s, rows);
    if (out.cause() == Verdict::undetermined && s.refused_by) out = by_its_own_word(s, rows);
    add_margins(out, s, rows);
    if (!on_the_device(s.request.draws)) return out;
    const Counterfactual* whole = row_of(rows, "with_nothing_else_on_device");
    // What is held has no share in a request that the whole device could not meet.
    if (whole != nullptr && whole->fit == Fit::kDoesNotFit) return out;
    add_shares(out, s);
    if (!s.succeeded_later.empty()) out.set_summary(out.summary() + " " + s.succeeded_later);
    return out;
}

}  // namespace fragscope::analysis
