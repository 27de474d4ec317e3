#include "analysis/counterfactuals.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/counterfactual_table.h"

namespace fragscope::analysis {
namespace {

using Table = CounterfactualTable;

constexpr char kPhysicalOnly[] = "the request takes address space only: no memory given back would help it";

Quantity needed_of(const Situation& s, const Scope& scope) {
    const Interval& needed = s.request.needed;
    if (s.request.rounding_assumed) {
        return Quantity::assumed(report::Quantity::needed, needed, scope, s.request.needed_reason);
    }
    return needed.exact()
               ? Quantity::measured(report::Quantity::needed, *needed.low, scope, s.request.needed_reason)
               : Quantity::bounded(report::Quantity::needed, needed, scope, s.request.needed_reason);
}

Quantity of_other_pools(const Situation& s, const PoolAtFailure& own) {
    Quantity out = Quantity::derived(report::Quantity::reclaimable, 0, s.physical,
                                     "sum over the other pools of the device");
    for (const PoolAtFailure& pool : s.pools) {
        if (&pool != &own)
            out = plus(out, pool.reclaimable, report::Quantity::reclaimable, out.reason()).value();
    }
    // What is in no pool of this list, such as pools whose device is not known.
    return s.reclaimable.high() ? out
                                : Quantity::bounded(report::Quantity::reclaimable, {out.low(), std::nullopt},
                                                    s.physical, out.reason() + "; not all pools were asked");
}

std::string pool_names(const Situation& s, const PoolAtFailure* own) {
    std::string out;
    for (const PoolAtFailure& pool : s.pools) {
        if (&pool == own) continue;
        if (pool.reclaimable.high() == std::optional<std::uint64_t>(0)) continue;
        if (!out.empty()) out += ", ";
        out += pool.name;
    }
    return out;
}

// Where it is known how the allocator's extents lie and whose each is: what keeps them from its own request.
void layout_rows(Table& table, const FrameworkAtFailure& own, const AllocatorLayout& layout) {
    const auto about = [&](const Interval& bytes, const char* reason) {
        return bytes.exact() ? Quantity::derived(report::Quantity::cached, *bytes.low, own.scope, reason)
                             : Quantity::bounded(report::Quantity::cached, bytes, own.scope, reason);
    };
    const AllocatorView& view = layout.views.front();
    if (layout.may_release) {
        table.not_applicable(
            "with_framework_segments_returned", "segments of the framework's allocator that hold no block",
            Blame::kFrameworkCached,
            "the allocator gives them back by itself before it gives up: what is available counts "
            "them as returned");
    } else {
        table.change(
            "with_framework_segments_returned", "segments of the framework's allocator that hold no block",
            Blame::kFrameworkCached, Change::kReturnsSegments, own.reclaimable.reason(),
            "a call that empties the allocator's cache", about(view.wholly_free, "segments without a block"));
    }
    if (layout.waits) {
        table.change(
            "with_framework_waits_over", "blocks of the framework's allocator that wait for other streams",
            Blame::kFrameworkWaiting, Change::kEndsWaits,
            "freed by the program and not yet by the stream: with the wait over they are gaps, and join "
            "those beside them",
            "a synchronisation of the streams (torch.cuda.synchronize())",
            about(layout.waiting, "freed by the host, not yet by the stream"));
    }
    if (layout.owners) {
        table.change("with_private_pools_shared", "the ownership of pools of the framework's allocator",
                     Blame::kOwners, Change::kSharesOwners,
                     "extents of another pool of the same allocator serve only that pool's requests",
                     "giving the private pool up, or one pool for both (torch.cuda.graph_pool_handle)",
                     about(layout.of_other_owners, "in no block, and in another pool's segments"));
    }
    if (layout.streams) {
        table.change("with_streams_shared", "the ownership of streams in the framework's allocator",
                     Blame::kStreams, Change::kSharesStreams,
                     "extents of another stream serve only that stream's requests",
                     "allocating on that stream, or emptying the cache first",
                     about(layout.of_other_streams, "in no block, and in segments of another stream"));
    }
    // A segment is no smaller than the block in it, and a block no smaller than what was asked for.
    if (layout.asked_known && layout.segment != layout.requested) {
        table.change("without_request_rounding", "the rounding of this request", Blame::kRounding,
                     Change::kUnrounds,
                     "with exactly what the program asked for instead of whole blocks and segments",
                     "a size that is a whole number of blocks, or the allocator's rounding settings");
    }
    if (layout.waste.high != std::optional<std::uint64_t>(0)) {
        table.change("without_internal_waste", "bytes of live blocks that nobody asked for", Blame::kWaste,
                     Change::kWastesNothing,
                     "live blocks as large as what was asked for; what that leaves is a gap behind each",
                     "sizes that are whole numbers of blocks",
                     about(layout.waste, "charged for live blocks and not asked for"));
    }
    table.change(
        "with_framework_gaps_merged", "gaps between blocks of the framework's allocator",
        Blame::kFrameworkGaps, Change::kMergesGaps,
        "all extents of the allocator that this request may use and no block lies in, as one",
        "PYTORCH_ALLOC_CONF=expandable_segments:True, or max_split_size_mb, or fewer long-lived blocks",
        about(view.gap_sum, "in no block"));
}

// What the framework's own allocator took from the device and has in no live block.
void framework_rows(Table& table, const Situation& s) {
    if (!s.framework) return;
    const FrameworkAtFailure& own = *s.framework;
    if (own.layout) return layout_rows(table, own, *own.layout);
    const auto here = [&](const Quantity& quantity, const Interval& interval, const std::string& why) {
        return Quantity::assumed(quantity.definition(), interval, s.physical, quantity.reason() + why);
    };
    table.add("with_framework_segments_returned", "segments of the framework's allocator that hold no block",
              Blame::kFrameworkCached, here(own.reclaimable, own.reclaimable.interval(), ""),
              own.gave_up ? "torch.cuda.empty_cache() returns those that are in no private pool"
                          : "torch.cuda.empty_cache()");
    if (own.waiting.high() != std::optional<std::uint64_t>(0)) {
        table.add("with_framework_waits_over",
                  "blocks of the framework's allocator that wait for other streams", Blame::kFrameworkWaiting,
                  here(own.waiting, {own.waiting_alone, own.waiting.high()},
                       "; those that share a segment with a live block stay in the allocator"),
                  "torch.cuda.synchronize(), then torch.cuda.empty_cache()");
    }
    Interval merged = own.in_gaps.interval();
    const std::uint64_t left = s.page * own.domains.size();
    if (merged.low) *merged.low -= std::min(*merged.low, left);
    table.add("with_framework_gaps_merged", "gaps between blocks of the framework's allocator",
              Blame::kFrameworkGaps,
              here(own.in_gaps, merged, "; moved together they leave a page of each kind of segment at most"),
              "PYTORCH_ALLOC_CONF=expandable_segments:True, or max_split_size_mb");
}

void others_rows(Table& table, const Situation& s) {
    const char* processes = s.stated ? "other processes" : "other processes of this trace";
    if (s.other_processes.empty()) {
        table.not_applicable("without_other_processes", processes, Blame::kOthers, s.others.reason());
    } else {
        table.add("without_other_processes", processes, Blame::kOthers, s.others,
                  "run it when they are not running, or on another device");
    }
    table.add(
        "without_unattributed",
        s.stated ? "contexts, and memory that the numbers do not name" : "memory that no record explains",
        Blame::kUnexplained, s.unattributed,
        s.stated ? "" : "trace the other processes too; see what nvidia-smi lists");
}

// Rows that give device memory back, for a request that takes some. `own`: the pool that the request is to
// come from; what it keeps is in the base already.
void memory_rows(Table& table, const Situation& s, const PoolAtFailure* own = nullptr) {
    if (s.pools.empty() && !s.used_pools && s.snapshot.pools.empty()) {
        table.not_applicable("with_cached_returned", "memory that stream-ordered pools keep", Blame::kCached,
                             "no stream-ordered pool was seen");
        table.not_applicable("with_pending_frees_done", "frees that wait for their stream", Blame::kPending,
                             "no stream-ordered release was seen");
    } else {
        const std::string names = pool_names(s, own);
        table.add("with_cached_returned",
                  "memory that stream-ordered pools keep" + (names.empty() ? "" : " (" + names + ")"),
                  Blame::kCached, own == nullptr ? s.reclaimable : of_other_pools(s, *own),
                  "cuMemPoolTrimTo / cudaMemPoolTrimTo(pool, 0)");
        table.add("with_pending_frees_done", "frees that wait for their stream", Blame::kPending, s.pending,
                  "cuStreamSynchronize / cudaStreamSynchronize, then cuMemPoolTrimTo");
    }
    if (s.graphs_unused.high().value_or(0) == 0) {
        table.not_applicable("with_graph_memory_trimmed", "memory that graphs keep unused", Blame::kGraphs,
                             s.graphs_unused.reason());
    } else {
        table.add("with_graph_memory_trimmed", "memory that graphs keep unused", Blame::kGraphs,
                  s.graphs_unused, "cuDeviceGraphMemTrim / cudaDeviceGraphMemTrim");
    }
    framework_rows(table, s);
    const auto waste =
        plus(s.partly_waste.known() ? s.partly_waste
                                    : Quantity::derived(report::Quantity::internal_waste, 0, s.physical, ""),
             s.linear_waste, report::Quantity::internal_waste,
             s.partly_waste.high().value_or(0) != 0 ? s.partly_waste.reason() : s.linear_waste.reason());
    if (s.importers_hold != 0) {
        table.add("with_importers_closed", "memory that other processes imported and still map",
                  Blame::kImporter, s.held_by_importers,
                  "cuIpcCloseMemHandle, or the release of the imported handle, in the importer");
    }
    if (s.leaks != 0) {
        table.add("with_leaked_handles_released", "physical handles that nothing maps any more",
                  Blame::kLeaked, s.leaked, "cuMemRelease of each handle that cuMemCreate gave out");
    }
    if (s.framework && s.framework->layout) return others_rows(table, s);
    if (!s.partly_waste.known() && s.linear_waste.high() == std::optional<std::uint64_t>(0)) {
        table.not_applicable("without_internal_waste", "charged memory that holds no payload", Blame::kWaste,
                             s.partly_waste.reason());
    } else {
        table.add("without_internal_waste", "charged memory that holds no payload", Blame::kWaste, *waste,
                  "pack several objects into one allocation, or ask for a smaller granularity");
    }
    if (s.never_written.known()) {
        table.add(
            "without_never_written_pages", "VMM pages never written", Blame::kHeld, s.never_written,
            "cuMemCreate later, when the memory is used, or cuMemUnmap and cuMemRelease of what is not");
    } else {
        table.not_applicable("without_never_written_pages", "VMM pages never written", Blame::kHeld,
                             s.never_written.reason());
    }
    others_rows(table, s);
}

void whole_device(Table& table, const Situation& s) {
    table.instead("with_nothing_else_on_device", "everything else on the device", Blame::kWhole,
                  s.capacity.as(report::Quantity::eligible_free, "the device's whole capacity"));
    table.all_removed("with_only_live_payload", "everything but this process's live allocations",
                      "what nobody holds, cached, pending, wasted, other processes and unexplained together");
}

void limit_rows(Table& table, const Situation& s) {
    for (const Limit& limit : s.limits) table.lift(limit);
    if (s.limits.empty()) {
        table.not_applicable(
            "with_limit_lifted", "a limit", Blame::kLimit,
            s.stated ? "no limit on this request is stated" : "no limit on this request is recorded");
    }
}

// Whether the bytes that nobody holds lie in one piece.
void runs_row(Table& table, const Situation& s) {
    constexpr char kId[] = "with_physical_merged";
    constexpr char kWhat[] = "gaps between physical runs";
    if (s.one_run_needed) {
        table.change(kId, kWhat, Blame::kGaps, Change::kMergesRuns,
                     s.runs ? fmt::format("{} runs that nobody holds, as one", s.runs->count)
                            : std::string("all that nobody holds, as one run"),
                     "the same bytes as pages that are mapped side by side (cuMemCreate, cuMemMap)");
        return;
    }
    if (s.stated) {
        table.not_applicable(
            kId, kWhat, Blame::kGaps,
            "nothing says that the driver needs one physical run for it: it maps single pages");
        return;
    }
    // Merging runs adds no bytes: only where the sum suffices can their shape be the reason.
    Quantity merged = s.free_then.as(report::Quantity::eligible_free,
                                     "moving memory together adds no bytes to what nobody holds");
    if (s.came_in_pieces || s.tried_in_pieces) {
        table.instead(
            kId, kWhat, Blame::kGaps,
            merged.as(report::Quantity::eligible_free,
                      s.came_in_pieces
                          ? "as many bytes came in smaller pieces right after the failure"
                          : "as many bytes were granted in smaller pieces when they were tried right "
                            "after the failure"));
        return;
    }
    table.instead(kId, kWhat, Blame::kGaps, merged);
    if (fit_of(merged.interval(), table.needed().interval()) == Fit::kDoesNotFit) return;
    table.last().fit = Fit::kCannotTell;
    table.last().reason =
        "which physical runs nobody holds is not visible to a program, and the driver maps single pages";
}

std::vector<Counterfactual> physical_rows(const Situation& s) {
    Table table(s, s.free_then, needed_of(s, s.physical));
    if (s.request.draws == Draws::kStack) {
        table.change(
            "with_smaller_stack", "the reservation of the kernel's stacks", Blame::kStack,
            Change::kDropsStack,
            "stack size times the threads that the device can hold, taken at the launch: no call of the "
            "program asks for it",
            "cuCtxSetLimit(CU_LIMIT_STACK_SIZE), or a kernel that spills and recurses less");
    }
    memory_rows(table, s);
    table.not_applicable("with_virtual_gaps_merged", "gaps in the address space", Blame::kGaps,
                         "the driver picks the addresses of this request; its address space is not visible");
    runs_row(table, s);
    table.not_applicable("with_pool_gaps_merged", "gaps inside pools", Blame::kGaps,
                         "the request does not come out of a pool");
    limit_rows(table, s);
    whole_device(table, s);
    return table.take();
}

// Where device memory plays no part, and a limit is all that is known to stand against the request.
std::vector<Counterfactual> limited_rows(const Situation& s) {
    const Scope scope = s.physical.in_domain(s.request.domain);
    Table table(
        s,
        Quantity::assumed(report::Quantity::eligible_free, {s.request.needed.high, std::nullopt}, scope,
                          "nothing says that there was too little of what the request itself takes"),
        needed_of(s, scope));
    if (s.request.unrounded) {
        table.change(
            "without_request_rounding", "the rounding of this request and of those before it",
            Blame::kRounding, Change::kUnrounds, "with exactly what was asked for each time",
            "sizes that need no rounding (powers of two here), or cuMemHostRegister of the program's own "
            "pages");
    }
    limit_rows(table, s);
    return table.take();
}

std::vector<Counterfactual> address_rows(const Situation& s) {
    const AddressSpace& space = s.space;
    // The failure itself shows that no gap of the needed size was eligible.
    const std::uint64_t asked = s.request.needed.low.value_or(0);
    const Quantity base =
        s.refused() ? Quantity::bounded(
                          report::Quantity::largest_allocatable,
                          {space.small_witnessed_largest, asked == 0 ? std::nullopt : std::optional(asked - 1)}, s.address,
                          "at least the largest gap that was reserved before and was given back; less than "
                          "the request, which failed")
                    : Quantity::bounded(
                          report::Quantity::largest_allocatable,
                          {s.contract.allows_pieces() ? space.witnessed.sum() : space.witnessed.largest(),
                           std::nullopt},
                          s.address,
                          s.contract.allows_pieces()
                              ? "at least the gaps that were reserved before and were given back, together"
                              : "at least the largest gap that was reserved before and was given back");
    Table table(s, base, needed_of(s, s.address));
    const auto none = [&](const char* id, const char* what, Blame blame) {
        table.not_applicable(id, what, blame, kPhysicalOnly);
    };
    none("with_cached_returned", "memory that stream-ordered pools keep", Blame::kCached);
    none("with_pending_frees_done", "frees that wait for their stream", Blame::kPending);
    none("without_internal_waste", "charged memory that holds no payload", Blame::kWaste);
    none("without_never_written_pages", "VMM pages never written", Blame::kHeld);
    none("without_other_processes", "other processes of this trace", Blame::kOthers);
    none("without_unattributed", "memory that no record explains", Blame::kUnexplained);
    const Quantity merged = Quantity::bounded(
        report::Quantity::eligible_free,
        {space.small_witnessed_sum, s.refused() ? std::optional(space.small_sum) : std::nullopt}, s.address,
        fmt::format("gaps that were reserved before and were given back, {} in all; gaps that were never "
                    "seen in use may add {}",
                    in_words(space.small_witnessed_sum),
                    in_words(space.small_sum - space.small_witnessed_sum)));
    table.instead(
        "with_virtual_gaps_merged", "gaps between reservations", Blame::kGaps, merged,
        "cuMemAddressFree of the reservations between the gaps, or one large reservation at the start");
    none("with_physical_merged", "gaps between physical runs", Blame::kGaps);
    none("with_pool_gaps_merged", "gaps inside pools", Blame::kGaps);
    table.not_applicable("with_limit_lifted", "a limit", Blame::kLimit,
                         "the address space's size is not a setting");
    if (s.stated)
        table.not_applicable("without_unbacked_reservations", "reservations with nothing mapped to them",
                             Blame::kUnbacked, "what is mapped to them is not stated");
    else table.instead(
        "without_unbacked_reservations", "reservations with nothing mapped to them", Blame::kUnbacked,
        Quantity::bounded(report::Quantity::eligible_free,
                          {space.unbacked + space.small_witnessed_sum, std::nullopt}, s.address,
                          fmt::format("{} are reserved and mapped to nothing", in_words(space.unbacked))),
        "cuMemAddressFree of reservations that hold nothing");
    table.instead("with_only_live_payload", "every reservation of this process", Blame::kWhole,
                  Quantity::bounded(report::Quantity::eligible_free,
                                    {space.reserved + space.small_witnessed_sum, std::nullopt}, s.address,
                                    "address space that this process is known to have been given"));
    return table.take();
}

const PoolAtFailure* requested_pool(const Situation& s) {
    for (const PoolAtFailure& pool : s.pools) {
        if (pool.pool == s.request.pool) return &pool;
    }
    return nullptr;
}

// What the pool's maximum leaves; no end where there is none.
std::optional<std::uint64_t> pool_room(const PoolAtFailure* pool) {
    if (pool == nullptr || !pool->said.maximum) return std::nullopt;
    const std::uint64_t taken = pool->reserved.low().value_or(0);
    return *pool->said.maximum - std::min(taken, *pool->said.maximum);
}

std::vector<Counterfactual> pool_rows(const Situation& s) {
    const PoolAtFailure* pool = requested_pool(s);
    const std::optional<std::uint64_t> room = pool_room(pool);
    Interval growth = s.free_then.interval();
    if (room) {
        growth.high = growth.high ? std::min(*growth.high, *room) : *room;
        if (growth.low) growth.low = std::min(*growth.low, *room);
    }
    // It fits into new memory, or into what the pool has free, if that is in one piece: which is not visible.
    Interval reach = growth;
    const Interval cached = pool != nullptr ? pool->cached.interval() : Interval{0, std::nullopt};
    reach.high = growth.high && cached.high ? std::optional(*growth.high + *cached.high) : std::nullopt;
    if (s.contract.allows_pieces()) reach = growth + cached;
    const std::string limit = room ? fmt::format("; its maximum leaves {}", in_words(*room)) : "";
    Table table(s,
                Quantity::bounded(report::Quantity::eligible_free, reach, s.physical,
                                  "what nobody on the device holds, for the pool to grow, and at most all "
                                  "that the pool keeps unused" +
                                      limit),
                needed_of(s, s.physical));
    // One request that failed says nothing of as many bytes in pieces.
    if (s.refused() && !s.contract.allows_pieces() && cached.high.value_or(1) != 0)
        table.bound_by_the_failure();
    // Memory given back to the device helps only as far as the pool may grow.
    if (room && growth.high && *room <= *growth.high) {
        const std::string why =
            "the pool is at its maximum size: more memory on the device would not help it";
        table.not_applicable("with_cached_returned", "memory that other pools keep", Blame::kCached, why);
        table.add("with_pending_frees_done", "frees that wait for their stream", Blame::kPending, s.pending,
                  "cuStreamSynchronize / cudaStreamSynchronize");
        table.not_applicable("without_internal_waste", "charged memory that holds no payload", Blame::kWaste,
                             why);
        table.not_applicable("without_never_written_pages", "VMM pages never written", Blame::kHeld, why);
        table.not_applicable("without_other_processes", "other processes of this trace", Blame::kOthers, why);
        table.not_applicable("without_unattributed", "memory that no record explains", Blame::kUnexplained,
                             why);
    } else {
        memory_rows(table, s, pool);
    }
    table.not_applicable("with_virtual_gaps_merged", "gaps in the address space", Blame::kGaps,
                         "the driver picks the addresses of this request; its address space is not visible");
    table.not_applicable("with_physical_merged", "gaps between physical runs", Blame::kGaps,
                         "which physical runs nobody holds is not visible to a program");
    if (pool != nullptr && pool->cached.known()) {
        Interval joined = growth + cached;
        table.instead(
            "with_pool_gaps_merged", "gaps inside " + pool->name, Blame::kGaps,
            Quantity::bounded(report::Quantity::eligible_free, joined, s.physical,
                              "all that the pool keeps unused in one piece, and what it may grow by"));
    } else {
        table.not_applicable("with_pool_gaps_merged", "gaps inside the pool", Blame::kGaps,
                             "what the pool keeps unused is not known");
    }
    if (room) {
        table.instead("with_pool_maximum_lifted", fmt::format("the maximum size of {}", pool->name),
                      Blame::kLimit,
                      s.free_then.as(report::Quantity::eligible_free,
                                     "what nobody on the device holds, without the maximum"),
                      "CUmemPoolProps::maxSize of cuMemPoolCreate");
    } else {
        table.not_applicable("with_limit_lifted", "a limit", Blame::kLimit,
                             "the pool has no maximum that is known");
    }
    whole_device(table, s);
    return table.take();
}

std::vector<Counterfactual> unaccounted_rows(const Situation& s) {
    const Scope scope = s.physical.in_domain(s.request.domain);
    Table table(s,
                Quantity::unknown(report::Quantity::eligible_free, scope,
                                  "this trace keeps no books of what this call draws on"),
                needed_of(s, scope));
    return table.take();
}

}  // namespace

namespace {

std::vector<Counterfactual> rows_of(const Situation& s) {
    switch (s.request.draws) {
        case Draws::kPhysical:
        case Draws::kStack:
        case Draws::kContext:
            return physical_rows(s);
        case Draws::kAperture:
            return limited_rows(s);
        case Draws::kHost:
            return s.limits.empty() ? unaccounted_rows(s) : limited_rows(s);
        case Draws::kAddressSpace:
            return address_rows(s);
        case Draws::kPool:
            return pool_rows(s);
        default:
            return unaccounted_rows(s);
    }
}

// A block that somebody asks about could also be cut out of a gap of its allocator. Sums of removals do not
// start there: merged gaps are one of them.
void count_the_gap(const Situation& s, Counterfactual& base) {
    if (!s.hypothetical || !s.framework || s.framework->largest_eligible == 0) return;
    std::uint64_t gap = s.framework->largest_eligible;
    if (s.contract.allows_pieces()) {
        gap = 0;
        for (const FrameworkDomain& domain : s.framework->domains) {
            if (domain.large == (s.framework->tried > kSmallBlock))
                gap += std::min(domain.gaps.sum(), UINT64_MAX - gap);
        }
    }
    const auto high = base.available.high();
    base.reason += fmt::format(
        "; or {} of {} in its allocator's segments, if of the request's stream and of no private pool",
        s.contract.allows_pieces() ? "gaps" : "a gap", in_words(gap));
    base.available =
        Quantity::bounded(report::Quantity::eligible_free,
                          {base.available.low(), high ? std::optional(std::max(*high, gap)) : std::nullopt},
                          s.physical, base.reason);
    base.fit = fit_of(base.available.interval(), base.needed.interval());
}

}  // namespace

std::vector<Counterfactual> counterfactuals_of(const Situation& s) {
    std::vector<Counterfactual> rows = rows_of(s);
    Counterfactual& base = rows.front();
    count_the_gap(s, base);
    return rows;
}

report::Counterfactual message_of(const Counterfactual& row) {
    report::Counterfactual out;
    out.set_id(row.id);
    out.set_removed(row.removed);
    out.set_reason(row.reason);
    out.set_call(row.call);
    *out.mutable_needed() = row.needed.message();
    if (!row.applicable) {
        out.set_outcome(report::Counterfactual::not_applicable);
        return out;
    }
    *out.mutable_available() = row.available.message();
    out.set_outcome(row.fit == Fit::kFits         ? report::Counterfactual::fits
                    : row.fit == Fit::kDoesNotFit ? report::Counterfactual::does_not_fit
                                                  : report::Counterfactual::cannot_tell);
    // A limit on a number of things has no margin in bytes.
    if (fit_of(row.available.interval(), row.needed.interval()) != row.fit) return out;
    const Margin margin = margin_of(row.available.interval(), row.needed.interval());
    // At the ends of its range a margin stands for more than it can hold.
    if (margin.low && *margin.low != -INT64_MAX) out.set_margin_low(*margin.low);
    if (margin.high && *margin.high != -INT64_MAX) out.set_margin_high(*margin.high);
    return out;
}

}  // namespace fragscope::analysis
