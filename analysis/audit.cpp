#include "analysis/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/domains.h"

namespace fragscope::analysis {
namespace {

using Q = report::Quantity;

// Of two numbers of one place and moment; a situation that has them of two has no such row.
Quantity difference(const Quantity& a, const Quantity& b, Definition definition, const std::string& reason) {
    return minus(a, b, definition, reason)
        .value_or(
            Quantity::unknown(definition, b.scope(), "its two parts are of different places or moments"));
}

// Collects the rows in any order, and gives them out in the table's.
class Table {
  public:
    explicit Table(const Situation& s) : scope_(s.physical) {}

    // Whatever a situation calls the number, here it stands for this definition. One that nobody filled in is
    // not known.
    report::Quantity& add(Definition definition, const Quantity& quantity, const std::string& of = "") {
        const bool nobody = !quantity.known() && quantity.scope() == Scope{};
        const std::string reason =
            quantity.known() || !quantity.reason().empty() ? quantity.reason() : "nothing says it";
        return add(nobody ? Quantity::unknown(definition, scope_, reason).message()
                          : quantity.as(definition, reason).message(),
                   of);
    }
    report::Quantity& add(report::Quantity row, const std::string& of) {
        row.set_of(of);
        rows_.push_back(std::move(row));
        return rows_.back();
    }
    std::vector<report::Quantity> in_order() {
        const auto& order = audit_order();
        const auto rank = [&](const report::Quantity& row) {
            return std::find(order.begin(), order.end(), row.definition()) - order.begin();
        };
        std::stable_sort(rows_.begin(), rows_.end(),
                         [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
        return std::move(rows_);
    }

  private:
    Scope scope_;
    std::vector<report::Quantity> rows_;
};

Quantity of_addresses(Definition definition, std::uint64_t bytes, const Situation& s,
                      const std::string& why) {
    const Interval interval = weakened(Interval::exactly(bytes), narrowed(s.losses, Layer::kAddresses));
    return interval.exact()
               ? Quantity::derived(definition, bytes, s.address, why)
               : Quantity::bounded(definition, interval, s.address, why + "; records are missing");
}

void add_backing(Table& table, const Situation& s) {
    table.add(Q::capacity, s.capacity);
    table.add(Q::device_free, s.device_free);
    const std::string taken = "capacity less device-free memory, both as the driver said";
    table.add(Q::taken, difference(s.capacity, s.device_free, Q::taken,
                                   s.device_free.known() ? taken : s.device_free.reason()));
    table.add(Q::address_reserved,
              of_addresses(Q::address_reserved, s.space.reserved, s,
                           "sizes of cuMemAddressReserve not freed yet; it takes no memory by itself"));
    table.add(Q::mapped, of_addresses(Q::mapped, s.mapped, s, "sizes of cuMemMap not unmapped yet"));
    table.add(Q::external_span,
              s.space.seen ? Quantity::bounded(
                                 Q::external_span, {s.space.span.size(), std::nullopt}, s.address,
                                 "from the lowest to the highest reserved address ever seen; the driver's "
                                 "own limits are not visible")
                           : Quantity::unknown(Q::external_span, s.address, "no address range was reserved"));
    table.add(Q::committed,
              s.attributed.known()
                  ? s.attributed.as(
                        Q::committed,
                        "device memory is backed from the call on: VMM allocations, linear memory, arrays "
                        "and what pools and graphs have reserved, of this process")
                  : s.attributed);
    // At least what counters show there; managed memory moves, and so do its bytes from one device to
    // another.
    const bool all_managed = !narrowed(s.books, Layer::kBlocks).any();
    table.add(
        Q::resident,
        s.resident != 0
            ? Quantity::bounded(Q::resident,
                                {s.resident, all_managed ? std::optional(std::max(s.resident, s.managed))
                                                         : std::nullopt},
                                s.physical,
                                "at least what CUPTI's counters say was moved to the device and not back, at "
                                "most all that is managed; of VMM and linear device memory no call says "
                                "whether it is resident")
            : Quantity::unknown(Q::resident, s.physical,
                                "no call says what is resident now; VMM and linear device memory are not "
                                "known to move, managed memory does"),
        s.resident != 0 ? "managed" : "");
}

void add_charges(Table& table, const Situation& s) {
    const auto charged = [&](const Quantity& quantity, const std::string& of) {
        table.add(Q::charged, quantity, of);
    };
    charged(s.handles, "VMM");
    charged(s.linear, "linear");
    charged(s.arrays, "arrays");
    charged(s.graphs, "graphs");
    for (const ActivityPart& part : s.told_by_cupti) charged(part.bytes, part.words);
    table.add(Q::requested, s.linear_requested, "linear");
    const Losses lost = narrowed(s.losses, Layer::kPools);
    for (const PoolAtFailure& pool : s.pools) {
        charged(pool.reserved, pool.name);
        const std::string why = "requested sizes of live stream-ordered allocations";
        const Interval live = weakened(pool.live, lost);
        table.add(Q::requested,
                  live.exact() ? Quantity::derived(Q::requested, *live.low, s.physical, why)
                               : Quantity::bounded(Q::requested, live, s.physical, why),
                  pool.name);
        table.add(Q::live, pool.used, pool.name);
    }
    table.add(Q::payload_written, handles_written(s), "VMM");
    table.add(Q::internal_waste, s.handle_waste, "VMM");
    table.add(Q::internal_waste, s.linear_waste, "linear");
    table.add(Q::attributed, s.attributed);
    table.add(Q::unattributed, s.unattributed);
    table.add(Q::other_processes, s.others);
    if (s.framework) {
        const std::string of = s.framework->scope.domain;
        table.add(Q::charged, s.framework->reserved, of);
        table.add(Q::requested,
                  Quantity::unknown(Q::requested, s.framework->scope,
                                    "the allocator tells of blocks, which are rounded up"),
                  of);
        table.add(Q::live, s.framework->live, of);
        table.add(Q::pending_free, s.framework->waiting, of);
    } else if (s.pools.empty()) {
        table.add(Q::live, Quantity::unknown(
                               Q::live, s.physical,
                               "no pool and no framework's allocator was seen that could tell what is live "
                               "in it"));
    }
    table.add(Q::pending_free, s.pending, "pools");
}

// A reclaimable row with the call that does it and what that costs here.
void add_reclaimable(Table& table, const Situation& s, const Quantity& quantity, const std::string& of,
                     const std::string& by, const std::vector<wire::Kind>& kinds, const char* function,
                     const char* hypothesis) {
    report::Quantity& row = table.add(Q::reclaimable, quantity, of);
    row.set_by(by);
    for (const wire::Kind kind : kinds) {
        const auto seen = s.call_times.find(kind);
        if (seen == s.call_times.end()) continue;
        *row.mutable_cost() = seen->second;
        return;
    }
    report::CallTimes& cost = *row.mutable_cost();
    cost.set_function(function);
    cost.set_hypothesis(hypothesis);
    cost.set_falsified_by(fmt::format("a recording in which {} is called and its duration taken", function));
}

void add_kept(Table& table, const Situation& s) {
    using wire::Kind;
    for (const PoolAtFailure& pool : s.pools) {
        table.add(Q::cached, pool.cached, pool.name);
        add_reclaimable(
            table, s, pool.reclaimable, pool.name, "cuMemPoolTrimTo(pool, 0)", {Kind::kPoolTrimmed},
            "cuMemPoolTrimTo",
            "hypothesis: it takes longer the more it returns, and what is taken anew afterwards comes "
            "from the device again (public reports: 31 ms for 1 GiB, against 1.4 us out of the pool)");
    }
    if (s.framework) {
        const std::string of = s.framework->scope.domain;
        table.add(Q::cached, s.framework->cached, of);
        add_reclaimable(
            table, s, s.framework->reclaimable, of,
            s.framework->expandable ? "torch.cuda.empty_cache() (cuMemUnmap, cuMemRelease, cuMemFree)"
                                    : "torch.cuda.empty_cache() (cuMemFree for each segment)",
            s.framework->expandable ? std::vector<Kind>{Kind::kUnmapped, Kind::kLinearReleased}
                                    : std::vector<Kind>{Kind::kLinearReleased},
            s.framework->expandable ? "cuMemUnmap" : "cuMemFree",
            "hypothesis: each call waits for the kernels that are running (public reports), so the "
            "sum is that wait and a few microseconds for each segment");
    }
    if (s.graphs_unused.definition() == Q::reclaimable) {
        add_reclaimable(
            table, s, s.graphs_unused, "graphs", "cuDeviceGraphMemTrim", {Kind::kGraphMemoryTrimmed},
            "cuDeviceGraphMemTrim",
            "hypothesis: it takes longer the more it returns, and graphs that run afterwards take it "
            "anew");
    }
    // The sum says more than its parts where one of them may lie on another device, or is in no list.
    if (s.pools.size() == 1 && s.pools[0].cached.interval() == s.cached.interval()) return;
    table.add(Q::cached, s.cached, "all pools");
    table.add(Q::reclaimable, s.reclaimable, "all pools");
}

void add_limits(Table& table, const Situation& s) {
    bool told = false;
    for (const Limit& limit : s.limits) {
        if (limit.counts) continue;
        table.add(Q::commitment_headroom, limit.headroom, limit.in_words());
        told = true;
    }
    if (!told) {
        table.add(Q::commitment_headroom,
                  Quantity::unknown(
                      Q::commitment_headroom, s.physical,
                      fmt::format("no limit on what may be committed is {}; device memory is backed when "
                                  "it is taken",
                                  s.stated ? "stated" : "in the trace")));
    }
    for (const PoolAtFailure& pool : s.pools) {
        if (!pool.said.maximum || *pool.said.maximum == 0) continue;
        const Quantity maximum = Quantity::measured(Q::capacity, *pool.said.maximum, s.physical,
                                                    "CUmemPoolProps::maxSize, which the program set");
        table.add(Q::commitment_headroom,
                  difference(maximum, pool.reserved, Q::commitment_headroom,
                             pool.reserved.known() ? "the pool's maximum size less what it has reserved"
                                                   : pool.reserved.reason()),
                  pool.name);
    }
}

}  // namespace

const std::vector<Definition>& audit_order() {
    static const std::vector<Definition> kOrder = {Q::capacity,
                                                   Q::device_free,
                                                   Q::taken,
                                                   Q::address_reserved,
                                                   Q::mapped,
                                                   Q::external_span,
                                                   Q::committed,
                                                   Q::resident,
                                                   Q::requested,
                                                   Q::payload_written,
                                                   Q::charged,
                                                   Q::internal_waste,
                                                   Q::attributed,
                                                   Q::unattributed,
                                                   Q::other_processes,
                                                   Q::live,
                                                   Q::pending_free,
                                                   Q::cached,
                                                   Q::reclaimable,
                                                   Q::eligible_free,
                                                   Q::commitment_headroom,
                                                   Q::largest_allocatable};
    return kOrder;
}

std::vector<report::Quantity> audit_of(const Situation& s, const std::vector<report::Domain>& domains,
                                       const std::vector<report::Bound>& bounds) {
    Table table(s);
    add_backing(table, s);
    add_charges(table, s);
    add_kept(table, s);
    table.add(
        Q::eligible_free,
        s.free_then.known()
            ? s.free_then.as(Q::eligible_free, "for a new allocation from the device, as far as bytes go: " +
                                                   s.free_then.reason())
            : s.free_then,
        "physical");
    for (const report::Domain& domain : domains) {
        if (domain.name() == "physical") continue;
        report::Quantity row = domain.free_sum();
        row.set_definition(Q::eligible_free);
        table.add(std::move(row), domain.name());
    }
    add_limits(table, s);
    for (const report::Bound& bound : bounds) table.add(bound.largest(), bound.mechanism());
    if (bounds.empty()) {
        table.add(
            Q::largest_allocatable,
            Quantity::unknown(Q::largest_allocatable, s.physical,
                              "on which device the request draws is not known, so no mechanism is bounded"));
    }
    return table.in_order();
}

}  // namespace fragscope::analysis
