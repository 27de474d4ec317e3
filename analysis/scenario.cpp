#include "analysis/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "analysis/scenario_layout.h"

namespace fragscope::analysis {
namespace {

using Kind = ScenarioRequest::Kind;

constexpr char kStated[] = "as it is stated";

bool is_zero(const Interval& bytes) { return bytes.high == std::optional<std::uint64_t>(0); }

Quantity stated(Definition definition, const Interval& bytes, const Scope& scope, const std::string& reason) {
    if (bytes.exact()) return Quantity::measured(definition, *bytes.low, scope, reason);
    if (!bytes.high && bytes.low.value_or(0) == 0)
        return Quantity::bounded(definition, {0, std::nullopt}, scope, reason + ": it leaves it open");
    return Quantity::bounded(definition, bytes, scope, reason + ", as far as it is known there");
}

Quantity summed(Definition definition, const Interval& bytes, const Scope& scope, const std::string& reason) {
    return bytes.exact() ? Quantity::derived(definition, *bytes.low, scope, reason)
                         : Quantity::bounded(definition, bytes, scope, reason);
}

Quantity nothing(Definition definition, const Scope& scope, const char* reason) {
    return Quantity::derived(definition, 0, scope, reason);
}

std::optional<std::uint64_t> power_of_two(const std::optional<std::uint64_t>& bytes) {
    if (!bytes || *bytes > std::uint64_t{1} << 63) return bytes;
    return std::bit_ceil(*bytes);
}

Interval pinned_as(const Scenario& scenario, const Interval& bytes) {
    if (!scenario.device.pinned_rounds_to_power_of_two) return bytes;
    return {power_of_two(bytes.low), power_of_two(bytes.high)};
}

Interval sum_of(const std::vector<Interval>& parts) {
    Interval out = Interval::exactly(0);
    for (const Interval& part : parts) out = out + part;
    return out;
}

// What the driver charges: whole pages for each block that it gave out.
struct Charged {
    Interval segments = Interval::exactly(0);
    Interval allocations = Interval::exactly(0);
    Interval imported = Interval::exactly(0);
    Interval leaked = Interval::exactly(0);
    Interval asked = Interval::exactly(0);  // of segments and allocations, without the pages' rests
    Interval rests = Interval::exactly(0);  // of their last pages
};

// What rounding adds to one block; between nothing and a page where its size is not known.
Interval rest_of(const Interval& bytes, std::uint64_t page) {
    if (!bytes.exact()) return {0, page - 1};
    return Interval::exactly(*rounded_up(bytes, page).low - *bytes.low);
}

Charged charged_in(const Scenario& scenario) {
    Charged out;
    const std::uint64_t page = scenario.device.granularity;
    for (const ScenarioSegment& segment : scenario.segments) {
        // How many segments a sum stands for, and so how many pages have a rest, is not known.
        out.segments = out.segments + (segment.several ? segment.bytes : rounded_up(segment.bytes, page));
        out.asked = out.asked + segment.bytes;
        if (!segment.several) out.rests = out.rests + rest_of(segment.bytes, page);
    }
    for (const Interval& bytes : scenario.allocations) {
        out.allocations = out.allocations + rounded_up(bytes, page);
        out.asked = out.asked + bytes;
        out.rests = out.rests + rest_of(bytes, page);
    }
    for (const Interval& bytes : scenario.held_by_importers)
        out.imported = out.imported + rounded_up(bytes, page);
    for (const Interval& bytes : scenario.leaked_handles) out.leaked = out.leaked + rounded_up(bytes, page);
    return out;
}

// Host memory, addresses and a window onto memory that is there take none of the device's.
bool takes_device_memory(Kind kind) {
    return kind == Kind::kAllocator || kind == Kind::kDriver || kind == Kind::kLaunchStack;
}

void put_request(Situation& s, const Scenario& scenario) {
    const ScenarioRequest& request = scenario.request;
    const std::uint64_t page = scenario.device.granularity;
    const std::string bytes = in_words(request.bytes);
    RequestFacts& out = s.request;
    out.device = 0;
    out.requested = request.bytes.low.value_or(0);
    out.granularity = page;
    out.domain = "physical";
    out.draws = Draws::kPhysical;
    out.needed = rounded_up(request.bytes, page);
    out.needed_reason = fmt::format("in whole pages of {}", in_words(page));
    const bool one_run = scenario.device.contiguity_required && takes_device_memory(scenario.request.kind);
    out.contiguity = one_run ? report::Request::physical : report::Request::virtual_only;
    out.contiguity_reason =
        one_run
            ? "it is stated that the driver needs one physical run"
            : "a pointer needs consecutive addresses; nothing says that the driver needs one "
              "physical run behind them";
    switch (request.kind) {
        case Kind::kAllocator:
            out.needed = s.framework->layout->segment;
            out.needed_reason = "what a new segment for it takes; in a gap of a segment its block is enough";
            out.in_words = fmt::format("{} of a framework's allocator", bytes);
            break;
        case Kind::kDriver:
            out.in_words = fmt::format("{} of the driver", bytes);
            break;
        case Kind::kLaunchStack:
            out.draws = Draws::kStack;
            out.in_words = fmt::format("{} for the stacks of a kernel that is launched", bytes);
            break;
        case Kind::kPinnedHost:
            out.draws = Draws::kHost;
            out.domain = "host";
            out.needed = pinned_as(scenario, request.bytes);
            out.needed_reason = scenario.device.pinned_rounds_to_power_of_two ? "rounded up to a power of two"
                                                                              : "what was asked for";
            out.contiguity_reason = "host pages may lie anywhere behind consecutive addresses";
            out.in_words = fmt::format("{} of page-locked host memory", bytes);
            break;
        case Kind::kAddressSpace:
            out.draws = Draws::kAddressSpace;
            out.domain = "virtual";
            out.alignment = page;
            out.contiguity = report::Request::virtual_only;
            out.contiguity_reason = "a reservation is one range of addresses by definition";
            out.in_words = fmt::format("{} of address space (no memory)", bytes);
            break;
        case Kind::kPeerMapping:
            out.draws = Draws::kAperture;
            out.domain = "BAR1";
            out.needed = request.bytes;
            out.needed_reason = "what was asked for";
            out.contiguity_reason = "the window maps pages";
            out.in_words = fmt::format("{} of device memory mapped for others to reach", bytes);
            break;
    }
    if (out.needed != request.bytes && request.kind != Kind::kAddressSpace) out.unrounded = request.bytes;
    // Those before it may have been rounded where this one is not.
    if (request.kind == Kind::kPinnedHost && scenario.device.pinned_rounds_to_power_of_two)
        out.unrounded = request.bytes;
}

Limit limit_on(const Situation& s, LimitKind kind, const Interval& limit, const Interval& used,
               const Interval& needed, const std::string& domain) {
    const Scope scope = s.physical.in_domain(domain);
    Limit out;
    out.kind = kind;
    out.limit = stated(report::Quantity::capacity, limit, scope, kStated);
    out.used = summed(report::Quantity::committed, used, scope, "the parts that are stated");
    const Interval room = less(limit, used);
    out.headroom = summed(
        report::Quantity::commitment_headroom, room, scope,
        fmt::format("{}: {}, of which {} are used", facts_of(kind).what, in_words(limit), in_words(used)));
    out.needed = summed(report::Quantity::needed, needed, scope, "what the request takes of it");
    return out;
}

// `used`: nothing: not known.
Limit limit_on_count(const Situation& s, LimitKind kind, std::uint64_t limit, std::optional<std::uint64_t> used,
                     std::uint64_t needed, const std::string& reason) {
    Limit out = limit_on(s, kind, Interval::exactly(limit), {used.value_or(0), used},
                         Interval::exactly(needed), "number");
    out.counts = true;
    out.headroom = out.headroom.as(out.headroom.definition(), reason);
    return out;
}

// What page-locked memory would take of a limit if its sizes were not rounded; `besides`: what else is in it.
void without_rounding(Limit& limit, const Situation& s, const Scenario& scenario, const Interval& besides) {
    if (!s.request.unrounded) return;
    limit.used_unrounded = summed(report::Quantity::requested, besides + sum_of(scenario.pins),
                                  limit.used.scope(), "as it was asked for each time");
    limit.needed_unrounded =
        summed(report::Quantity::requested, scenario.request.bytes, limit.used.scope(), "what was asked for");
}

void put_limits(Situation& s, const Scenario& scenario, const Charged& charged) {
    const ScenarioDevice& device = scenario.device;
    const Kind kind = scenario.request.kind;
    const bool takes_memory = kind == Kind::kAllocator || kind == Kind::kDriver;  // and is asked for
    Interval pinned = Interval::exactly(0);
    for (const Interval& pin : scenario.pins) pinned = pinned + pinned_as(scenario, pin);
    if (kind == Kind::kAllocator && device.allocator_limit) {
        s.limits.push_back(limit_on(s, LimitKind::kAllocatorLimit, *device.allocator_limit,
                                    s.framework->reserved.interval(), s.request.needed,
                                    "framework's allocator"));
        s.limits.back().grows = Limit::Grows::kWithAllocator;
    }
    if ((takes_memory || kind == Kind::kLaunchStack || kind == Kind::kPinnedHost) && device.commit_limit) {
        // Whether contexts count is not said: at most they do.
        const Interval memory = charged.asked + sum_of(scenario.held_by_importers) +
                                sum_of(scenario.leaked_handles) + Interval{0, device.context.high};
        Limit limit = limit_on(s, LimitKind::kHostCommit, *device.commit_limit, memory + pinned,
                               s.request.needed, "host");
        if (kind == Kind::kPinnedHost) without_rounding(limit, s, scenario, memory);
        limit.grows = Limit::Grows::kWithProcess;
        s.limits.push_back(std::move(limit));
    }
    if (takes_memory && device.per_allocation_limit) {
        s.limits.push_back(limit_on(s, LimitKind::kPerAllocation, *device.per_allocation_limit,
                                    Interval::exactly(0), s.request.needed, "one allocation"));
    }
    if (kind == Kind::kPinnedHost && device.pinned_host_limit) {
        Limit limit =
            limit_on(s, LimitKind::kPinnedHost, *device.pinned_host_limit, pinned, s.request.needed, "host");
        without_rounding(limit, s, scenario, Interval::exactly(0));
        s.limits.push_back(std::move(limit));
    }
    if (kind == Kind::kPeerMapping && device.bar1) {
        s.limits.push_back(
            // What is mapped through it already, no member says.
            limit_on(s, LimitKind::kBar1, *device.bar1, {0, std::nullopt}, s.request.needed, "BAR1"));
    }
    if (takes_memory && device.address_space) {
        Interval reserved = Interval::exactly(0);
        for (const ScenarioReservation& each : scenario.reservations) reserved = reserved + each.bytes;
        // Memory lies at addresses too, and where; between reservations there may be no gap that is large enough.
        const bool whole = scenario.reservations.empty();
        const Interval held = whole ? charged.asked : Interval{0, std::nullopt};
        s.limits.push_back(limit_on(s, LimitKind::kAddressSpace, *device.address_space, reserved + held,
                                    s.request.needed, "virtual"));
    }
    if (takes_memory && device.mapping_limit) {
        s.limits.push_back(limit_on_count(
            s, LimitKind::kMappingCount, *device.mapping_limit, device.mappings, scenario.request.mappings,
            device.mappings
                ? fmt::format("of at most {} mappings there are {}", *device.mapping_limit, *device.mappings)
                : fmt::format("how many of at most {} mappings there are is not stated", *device.mapping_limit)));
    }
    if (!device.handle_types.empty() && !scenario.request.handle_type.empty()) {
        std::string known;
        for (const std::string& type : device.handle_types) known += (known.empty() ? "" : ", ") + type;
        const bool has = std::find(device.handle_types.begin(), device.handle_types.end(),
                                   scenario.request.handle_type) != device.handle_types.end();
        s.limits.push_back(limit_on_count(
            s, LimitKind::kHandleType, has ? 1 : 0, 0, 1,
            fmt::format("the device has {}, and {} is asked for", known, scenario.request.handle_type)));
    }
}

// The address space with what is reserved of it. Gaps are known only where every reservation has its place.
void put_addresses(Situation& s, const Scenario& scenario) {
    if (!scenario.device.address_space) return;
    AddressSpace& out = s.space;
    out.seen = true;
    const std::uint64_t total = scenario.device.address_space->high.value_or(UINT64_MAX);
    out.span = {0, total};
    const std::uint64_t needed = s.request.needed.low.value_or(0);
    bool placed = scenario.device.address_space->exact();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const ScenarioReservation& each : scenario.reservations) {
        out.reserved += std::min(each.bytes.low.value_or(0), UINT64_MAX - out.reserved);
        placed = placed && each.offset && each.bytes.exact();
        if (placed) ranges.emplace_back(*each.offset, *each.offset + *each.bytes.low);
    }
    if (!placed) {
        // As if it were in one piece: no piece of it is larger.
        out.unseen = FreeExtents(s.page, s.page);
        out.unseen.add({std::min(out.reserved, total), total});
        out.small_sum = total - std::min(out.reserved, total);
        return;
    }
    std::sort(ranges.begin(), ranges.end());
    std::uint64_t at = 0;
    out.witnessed = FreeExtents(s.page, s.page);
    const auto gap = [&](std::uint64_t end) {
        if (end <= at) return;
        out.witnessed.add({at, end});
        const std::uint64_t bytes = usable({at, end}, s.page, s.page);
        if (bytes >= needed) return;
        out.small_sum += bytes;
        out.small_witnessed_sum += bytes;
        out.small_witnessed_largest = std::max(out.small_witnessed_largest, bytes);
    };
    for (const auto& [begin, end] : ranges) {
        gap(begin);
        at = end;
    }
    gap(total);
}

void put_books(Situation& s, const Scenario& scenario, const Charged& charged) {
    const ScenarioDevice& device = scenario.device;
    const Scope& scope = s.physical;
    constexpr char kNone[] = "none is stated";
    const Interval own = charged.segments + charged.allocations + charged.imported + charged.leaked;
    s.capacity = stated(report::Quantity::capacity, device.capacity, scope, kStated);
    const std::string left = "capacity less everything that is stated as held";
    s.device_free =
        device.device_free
            ? stated(report::Quantity::device_free, *device.device_free, scope, kStated)
            : summed(report::Quantity::device_free,
                     less(device.capacity, own + device.context + device.other_processes), scope, left);
    s.free_then = s.device_free;
    s.not_asked = "the capacity of the device, or what is held of it, is not stated";
    s.linear = summed(report::Quantity::charged, charged.segments + charged.allocations, scope,
                      fmt::format("segments and driver allocations, in whole pages of {}", in_words(s.page)));
    s.linear_requested = summed(report::Quantity::requested, charged.asked, scope,
                                "segments and driver allocations, as they are stated");
    s.linear_waste =
        summed(report::Quantity::internal_waste, charged.rests, scope, "the rests of the last pages");
    s.handles = summed(report::Quantity::charged, charged.leaked, scope, "leaked physical handles");
    s.leaked = s.handles;
    s.leaks = scenario.leaks;
    s.held_by_importers = summed(report::Quantity::charged, charged.imported, scope,
                                 "freed by this process, and still mapped by another one that imported it");
    s.importers_hold = scenario.held_by_importers.size();
    s.arrays = nothing(report::Quantity::charged, scope, kNone);
    s.pools_reserved = s.arrays;
    s.graphs = s.arrays;
    s.graphs_unused = nothing(report::Quantity::reclaimable, scope, kNone);
    s.cached = nothing(report::Quantity::cached, scope, kNone);
    s.reclaimable = s.graphs_unused;
    s.pending = nothing(report::Quantity::pending_free, scope, kNone);
    s.attributed = summed(report::Quantity::attributed, own, scope,
                          "segments, driver allocations and handles that are stated");
    s.others = stated(report::Quantity::other_processes, device.other_processes, scope,
                      is_zero(device.other_processes) ? kNone : kStated);
    if (!is_zero(device.other_processes))
        s.other_processes.push_back({ProcessIndex{}, "other processes", device.other_processes});
    s.unattributed =
        device.device_free
            ? summed(report::Quantity::unattributed,
                     less(less(device.capacity, *device.device_free), own + device.other_processes), scope,
                     "capacity less device-free memory, less what is stated as held")
            : stated(report::Quantity::unattributed, device.context, scope,
                     std::string("the context, ") + kStated);
    s.payload.why = "a scenario does not say what memory holds";
    const bool handles = scenario.leaks != 0;
    s.partly_waste = handles
                         ? Quantity::unknown(report::Quantity::internal_waste, scope, s.payload.why)
                         : nothing(report::Quantity::internal_waste, scope, "no physical handle is stated");
    s.handle_waste = s.partly_waste;
    s.never_written = s.partly_waste;
    for (const Interval& pin : scenario.pins) s.host_pinned += pinned_as(scenario, pin).low.value_or(0);
}

// The amounts that are intervals, by their names.
void put_inexact(Situation& s, const Scenario& scenario) {
    const ScenarioDevice& device = scenario.device;
    const auto note = [&](bool inexact, const char* name) {
        if (inexact) s.inexact.emplace_back(name);
    };
    const auto any = [](const auto& list, const auto& bytes_of) {
        return std::any_of(list.begin(), list.end(),
                           [&](const auto& each) { return !bytes_of(each).exact(); });
    };
    const auto itself = [](const Interval& bytes) { return bytes; };
    note(!device.capacity.exact(), "capacity");
    note(!device.context.exact(), "context_bytes");
    note(!device.other_processes.exact(), "other_processes_bytes");
    note(device.device_free && !device.device_free->exact(), "device_free");
    note(device.allocator_limit && !device.allocator_limit->exact(), "allocator_limit");
    note(device.commit_limit && !device.commit_limit->exact(), "commit_limit");
    note(device.pinned_host_limit && !device.pinned_host_limit->exact(), "pinned_host_limit");
    note(device.address_space && !device.address_space->exact(), "address_space_bytes");
    note(device.bar1 && !device.bar1->exact(), "bar1_bytes");
    note(device.per_allocation_limit && !device.per_allocation_limit->exact(), "per_allocation_limit");
    note(any(scenario.allocations, itself) || any(scenario.held_by_importers, itself),
         "the driver's allocations");
    note(any(scenario.segments, [](const ScenarioSegment& each) { return each.bytes; }), "the segments");
    note(any(scenario.segments,
             [](const ScenarioSegment& each) { return each.several ? Interval{} : Interval::exactly(0); }),
         "each of the segments that one sum stands for, and of its blocks");
    for (const ScenarioSegment& segment : scenario.segments) {
        if (std::any_of(segment.blocks.begin(), segment.blocks.end(), [&](const ScenarioBlock& block) {
                return !block.bytes.exact() || (!block.offset && !segment.several);
            })) {
            s.inexact.emplace_back("the blocks and their offsets");
            break;
        }
    }
    note(any(scenario.leaked_handles, itself), "the leaked handles");
    note(any(scenario.pins, itself), "the page-locked memory");
    note(any(scenario.reservations, [](const ScenarioReservation& each) { return each.bytes; }),
         "the reservations");
    note(!scenario.request.bytes.exact(), "the request");
}

}  // namespace

Situation situation_of(const Scenario& scenario) {
    Situation s;
    s.stated = true;
    s.losses.counted = true;
    s.books = s.losses;
    s.device = scenario.device_name;
    s.page = scenario.device.granularity;
    s.physical.device = s.device;
    s.physical.domain = "physical";
    s.address = s.physical.in_domain("virtual");
    s.address.device.clear();
    s.snapshot.complete = true;
    if (scenario.request.kind == Kind::kAllocator || !scenario.segments.empty())
        s.framework = framework_of(scenario, s.physical);
    const Charged charged = charged_in(scenario);
    put_request(s, scenario);
    put_books(s, scenario, charged);
    put_addresses(s, scenario);
    put_limits(s, scenario, charged);
    s.one_run_needed = scenario.device.contiguity_required && takes_device_memory(scenario.request.kind);
    if (scenario.free_runs) {
        PhysicalRuns runs;
        runs.count = scenario.free_runs->size();
        runs.sum = sum_of(*scenario.free_runs);
        runs.largest = Interval::exactly(0);
        runs.in_units = Interval::exactly(0);
        const auto whole = [&](const std::optional<std::uint64_t>& bytes) {
            return bytes ? std::optional(round_down(*bytes, s.page)) : std::nullopt;
        };
        for (const Interval& run : *scenario.free_runs) {
            runs.in_units = runs.in_units + Interval{whole(run.low), whole(run.high)};
            runs.largest.low = std::max(runs.largest.low.value_or(0), run.low.value_or(0));
            runs.largest.high = runs.largest.high && run.high
                                    ? std::optional(std::max(*runs.largest.high, *run.high))
                                    : std::nullopt;
        }
        s.runs = runs;
    }
    s.stated_refusal = scenario.device.driver_refused;
    s.refused_by = scenario.refused_by;
    put_inexact(s, scenario);
    return s;
}

}  // namespace fragscope::analysis
