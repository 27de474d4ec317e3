#include "analysis/audit.h"

#include <fmt/format.h>

#include <algorithm>

namespace fragscope::analysis {
namespace {

bool holds_handles(const Situation& s) { return s.handles.high() != std::optional<std::uint64_t>(0); }

Quantity handles_written(const Situation& s) {
    if (!holds_handles(s)) {
        return Quantity::unknown(report::Quantity::payload_written, s.physical,
                                 "payload is looked for in VMM allocations only, and none is held");
    }
    if (!s.payload.seen) {
        return Quantity::unknown(report::Quantity::payload_written, s.physical, s.payload.why);
    }
    if (s.payload.decisive) {
        return Quantity::derived(report::Quantity::payload_written, s.payload.written, s.physical,
                                 s.payload.why);
    }
    return Quantity::bounded(report::Quantity::payload_written, {s.payload.written, s.handles.high()},
                             s.physical, s.payload.why);
}

Quantity reserved_addresses(const Situation& s) {
    const std::string why = "sizes of cuMemAddressReserve not freed yet; it takes no memory by itself";
    const Interval interval =
        weakened(Interval::exactly(s.space.reserved), narrowed(s.losses, Layer::kAddresses));
    return interval.exact()
               ? Quantity::derived(report::Quantity::address_reserved, s.space.reserved, s.address, why)
               : Quantity::bounded(report::Quantity::address_reserved, interval, s.address, why);
}

Quantity mapped_addresses(const Situation& s) {
    const std::string why = "sizes of cuMemMap not unmapped yet";
    const Interval interval = weakened(Interval::exactly(s.mapped), narrowed(s.losses, Layer::kAddresses));
    return interval.exact() ? Quantity::derived(report::Quantity::mapped, s.mapped, s.address, why)
                            : Quantity::bounded(report::Quantity::mapped, interval, s.address, why);
}

void measure_ratio(report::Domain& out, std::uint64_t sum, std::uint64_t largest) {
    if (sum != 0) out.set_external_ratio(1.0 - static_cast<double>(largest) / static_cast<double>(sum));
}

report::Domain physical_domain(const Situation& s) {
    report::Domain out;
    out.set_name("physical");
    *out.mutable_free_sum() =
        s.device_free.as(report::Quantity::eligible_free, s.device_free.reason()).message();
    *out.mutable_free_largest() =
        (s.device_free.high()
             ? Quantity::bounded(report::Quantity::largest_allocatable, {std::nullopt, s.device_free.high()},
                                 s.physical,
                                 "which physical runs nobody holds is not visible to a program; no run is "
                                 "larger than the sum")
             : Quantity::unknown(report::Quantity::largest_allocatable, s.physical,
                                 "which physical runs nobody holds is not visible to a program"))
            .message();
    // Only allocations of one kind take part: what is payload of a VMM allocation is known by what was
    // written, of a linear block by what was asked for, and the two are not one measure.
    const bool handles = holds_handles(s);
    const Quantity& charged = handles ? s.handles : s.linear;
    const Quantity waste = handles ? s.handle_waste : s.linear_waste;
    *out.mutable_charged() =
        charged.as(report::Quantity::charged, handles ? "VMM allocations of this process" : s.linear.reason())
            .message();
    *out.mutable_requested() = (handles ? handles_written(s) : s.linear_requested).message();
    *out.mutable_internal_waste() = waste.message();
    if (waste.exact() && charged.exact() && *charged.low() != 0) {
        out.set_internal_ratio(static_cast<double>(*waste.low()) / static_cast<double>(*charged.low()));
    }
    out.set_note(
        fmt::format("The external ratio of physical memory cannot be computed: the largest run that nobody "
                    "holds is not visible. {}",
                    handles ? "Charged, payload written and waste are of VMM allocations only; mapping them "
                              "elsewhere does not remove the waste."
                            : "Charged, requested and waste are of linear memory only (cuMemAlloc); pools "
                              "are domains of their own."));
    return out;
}

report::Domain virtual_domain(const Situation& s) {
    report::Domain out;
    out.set_name("virtual");
    const AddressSpace& space = s.space;
    if (!space.seen || narrowed(s.losses, Layer::kAddresses).any()) {
        const std::string why =
            space.seen ? "records were lost or losses are not known: which gaps were unused is not known"
                       : "this process reserved no address range, so its gaps are not known";
        *out.mutable_free_sum() =
            Quantity::unknown(report::Quantity::eligible_free, s.address, why).message();
        *out.mutable_free_largest() =
            Quantity::unknown(report::Quantity::largest_allocatable, s.address, why).message();
        return out;
    }
    const std::string why = fmt::format(
        "gaps between reservations that were reserved before and were given back, as a request aligned to {} "
        "can use them; gaps "
        "never given out ({} inside the span) and addresses beyond it may be usable or not",
        in_words(s.request.draws == Draws::kAddressSpace ? s.request.alignment : s.page),
        in_words(space.unseen_sum));
    *out.mutable_free_sum() = Quantity::bounded(report::Quantity::eligible_free,
                                                {space.witnessed_sum, std::nullopt}, s.address, why)
                                  .message();
    *out.mutable_free_largest() = Quantity::bounded(report::Quantity::largest_allocatable,
                                                    {space.witnessed_largest, std::nullopt}, s.address, why)
                                      .message();
    out.set_free_extents(space.witnessed_count);
    measure_ratio(out, space.witnessed_sum, space.witnessed_largest);
    out.set_note(
        "The ratio is over the witnessed gaps only. A virtual gap says nothing about physical memory.");
    return out;
}

report::Domain pool_domain(const Situation& s, const PoolAtFailure& pool) {
    report::Domain out;
    const Losses lost = narrowed(s.losses, Layer::kPools);
    out.set_name(pool.name);
    *out.mutable_free_sum() = pool.cached.as(report::Quantity::cached, pool.cached.reason()).message();
    *out.mutable_free_largest() =
        (pool.cached.high()
             ? Quantity::bounded(report::Quantity::largest_allocatable, {std::nullopt, pool.cached.high()},
                                 s.physical,
                                 "how the pool lays out what it keeps unused is not visible; no piece is "
                                 "larger than the sum")
             : Quantity::unknown(report::Quantity::largest_allocatable, s.physical, "the pool was not asked"))
            .message();
    *out.mutable_charged() = pool.reserved.message();
    *out.mutable_requested() =
        (lost.any() || !pool.live.exact()
             ? Quantity::bounded(report::Quantity::requested, weakened(pool.live, lost), s.physical,
                                 "requested sizes of live stream-ordered allocations")
             : Quantity::derived(report::Quantity::requested, *pool.live.low, s.physical,
                                 "requested sizes of live stream-ordered allocations"))
            .message();
    // Used and requested are comparable: both count live blocks. A pending free may still be in `used`.
    const Interval used = pool.used.interval();
    if (used.exact() && pool.live.exact() && pool.pending == 0 && !lost.any() &&
        *used.low >= *pool.live.low) {
        const std::uint64_t waste = *used.low - *pool.live.low;
        *out.mutable_internal_waste() =
            Quantity::derived(report::Quantity::internal_waste, waste, s.physical,
                              "used by the pool, less what live allocations requested")
                .message();
        if (*used.low != 0)
            out.set_internal_ratio(static_cast<double>(waste) / static_cast<double>(*used.low));
    } else {
        *out.mutable_internal_waste() =
            Quantity::unknown(report::Quantity::internal_waste, s.physical,
                              "the pool was not asked, or frees were waiting for their stream")
                .message();
    }
    out.set_note("Cached bytes serve this pool's requests only; for any other request they are taken.");
    return out;
}

std::string name_of(const FrameworkDomain& domain) {
    return fmt::format("framework's allocator: {} segments, {}", domain.large ? "large" : "small",
                       !domain.stream              ? std::string("of a stream that is not known")
                       : domain.stream->value == 0 ? std::string("default stream")
                                                   : fmt::format("stream {:#x}", domain.stream->value));
}

// Gaps of one class and stream: what a request of that class and stream may use.
report::Domain framework_domain(const FrameworkAtFailure& own, const FrameworkDomain& domain) {
    report::Domain out;
    out.set_name(name_of(domain));
    const std::string why = "gaps between blocks, as the framework's allocator tells of them";
    const auto derived = [&](Definition definition, std::uint64_t bytes, const std::string& reason) {
        return own.cached.exact() ? Quantity::derived(definition, bytes, own.scope, reason)
                                  : Quantity::bounded(definition, {0, std::nullopt}, own.scope,
                                                      reason + "; records are missing");
    };
    *out.mutable_free_sum() = derived(report::Quantity::eligible_free, domain.gap_sum, why).message();
    *out.mutable_free_largest() =
        derived(report::Quantity::largest_allocatable, domain.gap_largest, why).message();
    if (own.cached.exact()) {
        out.set_free_extents(domain.gaps);
        measure_ratio(out, domain.gap_sum, domain.gap_largest);
    }
    *out.mutable_charged() =
        derived(report::Quantity::charged, domain.reserved, "segments taken from the driver").message();
    const std::string rounded = "the allocator tells of blocks, which are rounded up";
    *out.mutable_requested() = Quantity::unknown(report::Quantity::requested, own.scope, rounded).message();
    *out.mutable_internal_waste() =
        Quantity::unknown(report::Quantity::internal_waste, own.scope, rounded).message();
    out.set_note(
        "Small and large by PyTorch's rule (blocks up to 1 MiB, and above). Gaps of private pools are among "
        "them, and serve no other pool's requests.");
    return out;
}

}  // namespace

std::vector<report::Quantity> audit_of(const Situation& s) {
    std::vector<report::Quantity> out;
    const auto add = [&](const Quantity& quantity) { out.push_back(quantity.message()); };
    add(s.capacity);
    add(s.device_free);
    add(reserved_addresses(s));
    add(mapped_addresses(s));
    add(s.attributed.as(
        report::Quantity::committed,
        "device memory is backed from the call on: VMM allocations, linear memory, arrays and what pools "
        "and graphs have reserved, of this process"));
    if (s.resident != 0) {
        add(Quantity::bounded(report::Quantity::resident, {s.resident, std::max(s.resident, s.managed)}, s.physical,
                              "managed memory: at least what CUPTI's counters say was moved to the device and not "
                              "back, at most all of it; VMM and linear device memory are not known to move"));
    } else {
        add(Quantity::unknown(
            report::Quantity::resident, s.physical,
            "no call says what is resident now; VMM and linear device memory are not known to move, managed "
            "memory does"));
    }
    add(s.linear_requested);
    add(s.handles.as(report::Quantity::charged, "VMM: " + s.handles.reason()));
    add(s.linear.as(report::Quantity::charged, "linear: " + s.linear.reason()));
    for (const PoolAtFailure& pool : s.pools) {
        add(pool.reserved.as(report::Quantity::charged, pool.name + ": " + pool.reserved.reason()));
    }
    add(s.arrays.as(report::Quantity::charged, "arrays: " + s.arrays.reason()));
    for (const ActivityPart& part : s.told_by_cupti)
        add(part.bytes.as(report::Quantity::charged, std::string(part.words) + ": " + part.bytes.reason()));
    add(s.graphs.as(report::Quantity::charged, "graphs: " + s.graphs.reason()));
    add(s.attributed);
    add(s.others);
    add(s.unattributed);
    for (const PoolAtFailure& pool : s.pools) {
        add(pool.cached.as(report::Quantity::cached, pool.name + ": " + pool.cached.reason()));
        add(pool.reclaimable.as(report::Quantity::reclaimable, pool.name + ": " + pool.reclaimable.reason()));
    }
    if (s.pools.empty()) {
        add(s.cached);
        add(s.reclaimable);
    }
    add(s.pending);
    if (s.framework) {
        for (const Quantity* quantity : {&s.framework->reserved, &s.framework->live, &s.framework->waiting,
                                         &s.framework->cached, &s.framework->reclaimable})
            add(*quantity);
    }
    add(handles_written(s));
    add(s.handle_waste.as(report::Quantity::internal_waste, "VMM: " + s.handle_waste.reason()));
    add(s.linear_waste.as(report::Quantity::internal_waste, "linear: " + s.linear_waste.reason()));
    add(s.free_then.as(report::Quantity::eligible_free,
                       "for a new allocation from the device, as far as bytes go: " + s.free_then.reason()));
    add(Quantity::unknown(
        report::Quantity::commitment_headroom, s.physical,
        "no limit on what may be committed is in the trace; device memory is backed when it is taken"));
    if (s.space.seen) {
        add(Quantity::bounded(
            report::Quantity::external_span, {s.space.span.size(), std::nullopt}, s.address,
            "from the lowest to the highest reserved address ever seen; the driver's own limits are not "
            "visible"));
    } else {
        add(Quantity::unknown(report::Quantity::external_span, s.address, "no address range was reserved"));
    }
    return out;
}

std::vector<report::Domain> domains_of(const Situation& s) {
    std::vector<report::Domain> out;
    if (s.request.device != kNoDevice) out.push_back(physical_domain(s));
    out.push_back(virtual_domain(s));
    for (const PoolAtFailure& pool : s.pools) out.push_back(pool_domain(s, pool));
    if (s.framework) {
        constexpr std::size_t kShown = 8;
        for (std::size_t i = 0; i < std::min(s.framework->domains.size(), kShown); ++i)
            out.push_back(framework_domain(*s.framework, s.framework->domains[i]));
    }
    return out;
}

}  // namespace fragscope::analysis
