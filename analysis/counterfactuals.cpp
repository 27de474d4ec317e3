#include "analysis/counterfactuals.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis {
namespace {

// Builds the rows of one request over one domain's base.
class Table {
  public:
    // `most`: what the whole domain has; no removal makes more than that available.
    Table(Quantity base, Quantity needed, std::optional<std::uint64_t> most = std::nullopt)
        : base_(std::move(base)), needed_(std::move(needed)), most_(most) {
        Counterfactual& row = start("as_it_was", "nothing", Blame::kNone);
        row.available = base_;
        row.by_bytes = base_;
        row.reason = base_.reason();
        decide(row);
        if (row.fit == Fit::kFits) row.reason += "; by bytes only, as the call failed all the same";
    }

    // The failure shows that what was available to this request was less than what it needed; for a domain in
    // which bytes may be in pieces.
    void bound_by_the_failure() {
        Counterfactual& row = rows_.front();
        const std::uint64_t needed = needed_.low().value_or(0);
        if (row.fit != Fit::kCannotTell || needed == 0) return;
        row.available = Quantity::bounded(
            report::Quantity::eligible_free, {std::min(base_.low().value_or(0), needed - 1), needed - 1},
            base_.scope(), base_.reason() + "; less than the request in one piece, as it failed");
        row.reason = row.available.reason();
        decide(row);
    }

    // One more thing given back to the domain.
    void add(const char* id, const std::string& removed, Blame blame, const Quantity& freed,
             const std::string& call) {
        Counterfactual& row = start(id, removed, blame);
        row.freed = freed;
        row.adds = true;
        row.call = call;
        row.reason = freed.reason();
        const auto sum = plus(base_, freed, report::Quantity::eligible_free, freed.reason());
        row.available =
            sum ? *sum : Quantity::unknown(report::Quantity::eligible_free, base_.scope(), "another scope");
        if (most_ && row.available.high().value_or(0) > *most_) {
            const bool contradiction = row.available.low().value_or(0) > *most_;
            row.reason += contradiction ? "; the numbers contradict each other, as the sum is more than the "
                                          "device has"
                                        : "; no more than the device has";
            row.available = Quantity::bounded(
                report::Quantity::eligible_free,
                {contradiction ? std::optional<std::uint64_t>() : row.available.low(), *most_}, base_.scope(),
                row.reason);
        }
        decide(row);
    }
    // Another amount instead of the base.
    void instead(const char* id, const std::string& removed, Blame blame, const Quantity& available,
                 const std::string& call = "") {
        Counterfactual& row = start(id, removed, blame);
        row.available = available;
        row.call = call;
        row.reason = available.reason();
        decide(row);
    }
    void not_applicable(const char* id, const std::string& removed, Blame blame, const std::string& reason) {
        Counterfactual& row = start(id, removed, blame);
        row.applicable = false;
        row.reason = reason;
    }

    const Quantity& base() const { return base_; }
    const Quantity& needed() const { return needed_; }
    Counterfactual& last() { return rows_.back(); }
    const std::vector<Counterfactual>& rows() const { return rows_; }
    std::vector<Counterfactual> take() { return std::move(rows_); }

  private:
    Counterfactual& start(const char* id, const std::string& removed, Blame blame) {
        rows_.push_back({});
        rows_.back().id = id;
        rows_.back().removed = removed;
        rows_.back().blame = blame;
        rows_.back().needed = needed_;
        return rows_.back();
    }
    void decide(Counterfactual& row) { row.fit = fit_of(row.available.interval(), row.needed.interval()); }

    Quantity base_;
    Quantity needed_;
    std::optional<std::uint64_t> most_;
    std::vector<Counterfactual> rows_;
};

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

// What the framework's own allocator took from the device and has in no live block.
void framework_rows(Table& table, const Situation& s) {
    if (!s.framework) return;
    const FrameworkAtFailure& own = *s.framework;
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
    if (s.other_processes.empty()) {
        table.not_applicable("without_other_processes", "other processes of this trace", Blame::kOthers,
                             s.others.reason());
    } else {
        table.add("without_other_processes", "other processes of this trace", Blame::kOthers, s.others,
                  "run it when they are not running, or on another device");
    }
    table.add("without_unattributed", "memory that no record explains", Blame::kUnexplained, s.unattributed,
              "trace the other processes too; see what nvidia-smi lists");
}

void whole_device(Table& table, const Situation& s) {
    table.instead("with_nothing_else_on_device", "everything else on the device", Blame::kWhole,
                  s.capacity.as(report::Quantity::eligible_free, "the device's whole capacity"));
    // The live set is what is left when everything that could go, goes.
    Quantity available = table.base();
    for (const Counterfactual& row : table.rows()) {
        if (!row.adds) continue;
        if (const auto sum = plus(available, row.freed, report::Quantity::eligible_free, ""))
            available = *sum;
    }
    table.instead(
        "with_only_live_payload", "everything but this process's live allocations", Blame::kWhole,
        available.as(report::Quantity::eligible_free,
                     "what nobody holds, cached, pending, wasted, other processes and unexplained together"));
}

// The allocator refused by itself: what the device has did not count.
bool refused_by_itself(const Situation& s) {
    return s.framework && s.framework->gave_up && !s.framework->driver_asked;
}

Quantity within_its_limit(const Situation& s) {
    const std::uint64_t needed = s.request.needed.high.value_or(0);
    return Quantity::bounded(report::Quantity::eligible_free, {0, needed == 0 ? 0 : needed - 1}, s.physical,
                             "less than the request: the framework's allocator refused it without asking the "
                             "driver");
}

std::vector<Counterfactual> physical_rows(const Situation& s) {
    Table table(refused_by_itself(s) ? within_its_limit(s) : s.free_then, needed_of(s, s.physical),
                s.capacity.high());
    memory_rows(table, s);
    table.not_applicable("with_virtual_gaps_merged", "gaps in the address space", Blame::kGaps,
                         "the driver picks the addresses of this request; its address space is not visible");
    // Merging runs adds no bytes: only where the sum suffices can their shape be the reason.
    Quantity merged = s.free_then.as(report::Quantity::eligible_free,
                                     "moving memory together adds no bytes to what nobody holds");
    if (s.came_in_pieces || s.tried_in_pieces) {
        table.instead(
            "with_physical_merged", "gaps between physical runs", Blame::kGaps,
            merged.as(report::Quantity::eligible_free,
                      s.came_in_pieces
                          ? "as many bytes came in smaller pieces right after the failure"
                          : "as many bytes were granted in smaller pieces when they were tried right "
                            "after the failure"));
    } else if (fit_of(merged.interval(), table.needed().interval()) == Fit::kDoesNotFit) {
        table.instead("with_physical_merged", "gaps between physical runs", Blame::kGaps, merged);
    } else {
        table.instead("with_physical_merged", "gaps between physical runs", Blame::kGaps, merged);
        table.last().fit = Fit::kCannotTell;
        table.last().reason =
            "which physical runs nobody holds is not visible to a program, and the driver maps single pages";
    }
    table.not_applicable("with_pool_gaps_merged", "gaps inside pools", Blame::kGaps,
                         "the request does not come out of a pool");
    if (refused_by_itself(s)) {
        table.instead("with_limit_lifted", "a limit of the framework's allocator", Blame::kLimit,
                      s.free_then.as(report::Quantity::eligible_free,
                                     "what nobody on the device holds, for a new segment"),
                      "torch.cuda.set_per_process_memory_fraction");
    } else {
        table.not_applicable("with_limit_lifted", "a limit", Blame::kLimit,
                             "no limit on this request is recorded");
    }
    whole_device(table, s);
    return table.take();
}

std::vector<Counterfactual> address_rows(const Situation& s) {
    const AddressSpace& space = s.space;
    // The failure itself shows that no gap of the needed size was eligible.
    const std::uint64_t asked = s.request.needed.low.value_or(0);
    const Quantity base =
        Quantity::bounded(report::Quantity::largest_allocatable,
                          {space.small_witnessed_largest, asked == 0 ? 0 : asked - 1}, s.address,
                          "at least the largest gap that was reserved before and was given back; less than "
                          "the request, which failed");
    Table table(base, needed_of(s, s.address));
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
        report::Quantity::eligible_free, {space.small_witnessed_sum, space.small_sum}, s.address,
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
    table.instead(
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
    const std::string limit = room ? fmt::format("; its maximum leaves {}", in_words(*room)) : "";
    Table table(Quantity::bounded(report::Quantity::eligible_free, reach, s.physical,
                                  "what nobody on the device holds, for the pool to grow, and at most all "
                                  "that the pool keeps unused" +
                                      limit),
                needed_of(s, s.physical), s.capacity.high());
    if (cached.high.value_or(1) != 0) table.bound_by_the_failure();
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
        table.instead("with_limit_lifted", fmt::format("the maximum size of {}", pool->name), Blame::kLimit,
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
    Table table(Quantity::unknown(report::Quantity::eligible_free, scope,
                                  "this trace keeps no books of what this call draws on"),
                needed_of(s, scope));
    return table.take();
}

}  // namespace

std::vector<Counterfactual> counterfactuals_of(const Situation& s) {
    switch (s.request.draws) {
        case Draws::kPhysical:
        case Draws::kContext:
            return physical_rows(s);
        case Draws::kAddressSpace:
            return address_rows(s);
        case Draws::kPool:
            return pool_rows(s);
        default:
            return unaccounted_rows(s);
    }
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
    const Margin margin = margin_of(row.available.interval(), row.needed.interval());
    // At the ends of its range a margin stands for more than it can hold.
    if (margin.low && *margin.low != -INT64_MAX) out.set_margin_low(*margin.low);
    if (margin.high && *margin.high != -INT64_MAX) out.set_margin_high(*margin.high);
    return out;
}

}  // namespace fragscope::analysis
