#include "analysis/domains.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/quantity_in.h"

namespace fragscope::analysis {
namespace {

// F and L: of one kind of space by their types, of one place and moment by their scopes.
template <Space kSpace>
void put_free(report::Domain& out, const QuantityIn<kSpace>& sum, const QuantityIn<kSpace>& largest,
              const FreeExtents* extents, const char* no_ratio) {
    *out.mutable_free_sum() = sum.quantity().message();
    *out.mutable_free_largest() = largest.quantity().message();
    if (extents == nullptr || !(sum.quantity().scope() == largest.quantity().scope()))
        out.set_external_ratio_reason(no_ratio);
    else
        extents->describe(out);
}

template <Space kSpace>
void put_inside(report::Domain& out, const QuantityIn<kSpace>& charged, const QuantityIn<kSpace>& requested,
                const QuantityIn<kSpace>& waste) {
    *out.mutable_charged() = charged.quantity().message();
    *out.mutable_requested() = requested.quantity().message();
    *out.mutable_internal_waste() = waste.quantity().message();
    const auto part = share(waste, charged);
    if (part && part->low && part->low == part->high) out.set_internal_ratio(*part->low);
}

constexpr char kNoRuns[] = "which physical runs nobody holds is not visible to a program";

report::Domain physical_domain(const Situation& s) {
    using Physical = QuantityIn<Space::kPhysical>;
    report::Domain out;
    out.set_name("physical");
    if (s.runs) {
        // Somebody who can see the runs has stated them.
        const auto stated = [&](Definition definition, const Interval& interval) {
            const char* why = "contiguous physical runs that nobody holds, as stated";
            return Physical(interval.exact() ? Quantity::derived(definition, *interval.low, s.physical, why)
                                             : Quantity::bounded(definition, interval, s.physical, why));
        };
        const Physical sum = stated(report::Quantity::eligible_free, s.runs->sum);
        const Physical largest = stated(report::Quantity::largest_allocatable, s.runs->largest);
        put_free(out, sum, largest, nullptr, "the runs are stated within limits, or there are none");
        out.set_free_extents(s.runs->count);
        const Share outside = rest_of(share(largest, sum).value_or(Share{}));
        if (outside.low && outside.low == outside.high) {
            out.set_external_ratio(*outside.low);
            out.clear_external_ratio_reason();
        }
    } else {
        put_free(
            out, Physical(s.device_free.as(report::Quantity::eligible_free, s.device_free.reason())),
            Physical(s.device_free.high()
                         ? Quantity::bounded(report::Quantity::largest_allocatable,
                                             {std::nullopt, s.device_free.high()}, s.physical,
                                             std::string(kNoRuns) + "; no run is larger than the sum")
                         : Quantity::unknown(report::Quantity::largest_allocatable, s.physical, kNoRuns)),
            nullptr, kNoRuns);
    }
    // Only allocations of one kind take part: what is payload of a VMM allocation is known by what was
    // written, of a linear block by what was asked for, and the two are not one measure.
    const bool handles = holds_handles(s);
    const Quantity& charged = handles ? s.handles : s.linear;
    put_inside(out,
               Physical(charged.as(report::Quantity::charged,
                                   handles ? "VMM allocations of this process" : s.linear.reason())),
               Physical(handles ? handles_written(s) : s.linear_requested),
               Physical(handles ? s.handle_waste : s.linear_waste));
    out.set_note(fmt::format(
        "{}{}",
        s.runs ? ""
               : "The external ratio of physical memory cannot be computed: the largest run that nobody "
                 "holds is not visible. ",
        handles ? "Charged, payload written and waste are of VMM allocations only; mapping them "
                  "elsewhere does not remove the waste."
                : "Charged, requested and waste are of linear memory only (cuMemAlloc); pools "
                  "are domains of their own."));
    return out;
}

report::Domain virtual_domain(const Situation& s) {
    using Addresses = QuantityIn<Space::kAddresses>;
    report::Domain out;
    out.set_name("virtual");
    const AddressSpace& space = s.space;
    if (!space.seen || narrowed(s.losses, Layer::kAddresses).any()) {
        const char* why =
            space.seen ? "records were lost or losses are not known: which gaps were unused is not known"
                       : "this process reserved no address range, so its gaps are not known";
        put_free(out, Addresses(Quantity::unknown(report::Quantity::eligible_free, s.address, why)),
                 Addresses(Quantity::unknown(report::Quantity::largest_allocatable, s.address, why)), nullptr,
                 why);
        return out;
    }
    const std::string why = fmt::format(
        "gaps between reservations that were reserved before and were given back, as a request aligned to {} "
        "can use them; gaps never given out ({} inside the span) and addresses beyond it may be usable or "
        "not",
        in_words(space.witnessed.alignment()), in_words(space.unseen.sum()));
    put_free(out,
             Addresses(Quantity::bounded(report::Quantity::eligible_free,
                                         {space.witnessed.sum(), std::nullopt}, s.address, why)),
             Addresses(Quantity::bounded(report::Quantity::largest_allocatable,
                                         {space.witnessed.largest(), std::nullopt}, s.address, why)),
             &space.witnessed, "");
    out.set_note(
        "The ratio is over the witnessed gaps only. A virtual gap says nothing about physical memory.");
    return out;
}

report::Domain pool_domain(const Situation& s, const PoolAtFailure& pool) {
    using InPool = QuantityIn<Space::kPool>;
    report::Domain out;
    const Losses lost = narrowed(s.losses, Layer::kPools);
    out.set_name(pool.name);
    constexpr char kNoLayout[] = "how the pool lays out what it keeps unused is not visible to a program";
    put_free(
        out, InPool(pool.cached),
        InPool(
            pool.cached.high()
                ? Quantity::bounded(report::Quantity::largest_allocatable, {std::nullopt, pool.cached.high()},
                                    s.physical, std::string(kNoLayout) + "; no piece is larger than the sum")
                : Quantity::unknown(report::Quantity::largest_allocatable, s.physical, pool.cached.reason())),
        nullptr, kNoLayout);
    const std::string live = "requested sizes of live stream-ordered allocations";
    const InPool requested(
        lost.any() || !pool.live.exact()
            ? Quantity::bounded(report::Quantity::requested, weakened(pool.live, lost), s.physical, live)
            : Quantity::derived(report::Quantity::requested, *pool.live.low, s.physical, live));
    // Used and requested are comparable: both count live blocks. A pending free may still be in `used`.
    const bool comparable = pool.used.exact() && pool.live.exact() && pool.pending == 0 && !lost.any() &&
                            *pool.used.low() >= *pool.live.low;
    const InPool used(pool.used);
    const InPool waste =
        comparable
            ? minus(used, requested, report::Quantity::internal_waste,
                    "used by the pool, less what live allocations requested")
                  .value()
            : InPool(Quantity::unknown(report::Quantity::internal_waste, s.physical,
                                       "the pool was not asked, or frees were waiting for their stream"));
    put_inside(out, InPool(pool.reserved), requested, waste);
    // What the pool keeps unused is no waste of its live allocations: the share is of what is used.
    out.clear_internal_ratio();
    if (const auto part = share(waste, used); comparable && part && part->low && part->low == part->high)
        out.set_internal_ratio(*part->low);
    out.set_note(
        "Cached bytes serve this pool's requests only; for any other request they are taken. The internal "
        "ratio is a share of what the pool says is used.");
    return out;
}

// Gaps of one class and stream: what a request of that class and stream may use.
report::Domain allocator_domain(const FrameworkAtFailure& own, const FrameworkDomain& domain) {
    using InSegments = QuantityIn<Space::kSegments>;
    report::Domain out;
    out.set_name(name_of(domain));
    // A scope of its own: gaps of one class or stream are no use to another.
    const Scope scope = own.scope.in_domain(out.name());
    const std::string why = "gaps between blocks, as the framework's allocator tells of them";
    constexpr char kMissing[] = "records are missing: more or fewer of its blocks may be live";
    const bool sure = own.cached.exact() && own.extents_known;
    const auto derived = [&](Definition definition, std::uint64_t bytes, const std::string& reason) {
        return InSegments(
            sure ? Quantity::derived(definition, bytes, scope, reason)
                 : Quantity::bounded(definition, {0, std::nullopt}, scope, reason + "; records are missing"));
    };
    put_free(out, derived(report::Quantity::eligible_free, domain.gaps.sum(), why),
             derived(report::Quantity::largest_allocatable, domain.gaps.largest(), why),
             sure ? &domain.gaps : nullptr, kMissing);
    const std::string rounded = "the allocator tells of blocks, which are rounded up";
    put_inside(out, derived(report::Quantity::charged, domain.reserved, "segments taken from the driver"),
               InSegments(Quantity::unknown(report::Quantity::requested, scope, rounded)),
               InSegments(Quantity::unknown(report::Quantity::internal_waste, scope, rounded)));
    if (domain.name.empty()) {
        out.set_note(
            "Small and large by PyTorch's rule (blocks up to 1 MiB, and above). Gaps of private pools are among "
            "them, and serve no other pool's requests.");
    }
    return out;
}

}  // namespace

std::string name_of(const FrameworkDomain& domain) {
    if (!domain.name.empty()) return "framework's allocator: " + domain.name;
    return fmt::format("framework's allocator: {} segments, {}", domain.large ? "large" : "small",
                       !domain.stream              ? std::string("of a stream that is not known")
                       : domain.stream->value == 0 ? std::string("default stream")
                                                   : fmt::format("stream {:#x}", domain.stream->value));
}

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

std::vector<report::Domain> domains_of(const Situation& s) {
    std::vector<report::Domain> out;
    if (s.request.device != kNoDevice) out.push_back(physical_domain(s));
    out.push_back(virtual_domain(s));
    for (const PoolAtFailure& pool : s.pools) out.push_back(pool_domain(s, pool));
    if (!s.framework) return out;
    const auto& domains = s.framework->domains;
    for (std::size_t i = 0; i < std::min(domains.size(), kAllocatorDomains); ++i)
        out.push_back(allocator_domain(*s.framework, domains[i]));
    return out;
}

}  // namespace fragscope::analysis
