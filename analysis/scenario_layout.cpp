#include "analysis/scenario_layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fragscope::analysis {
namespace {

// Of one segment.
struct Pieces {
    Interval sum = Interval::exactly(0);
    Interval largest = Interval::exactly(0);
    std::uint64_t count = 0;
    bool wholly_free = false;
    // Where every block has its place and the segment its size; in bytes from the segment's beginning.
    std::optional<std::vector<Range>> extents;
};

std::optional<std::uint64_t> larger(const std::optional<std::uint64_t>& a,
                                    const std::optional<std::uint64_t>& b) {
    return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
}

// `no_waste`: live blocks take what was asked for, where that is known.
Pieces pieces_of(const ScenarioSegment& segment, bool waits_over, bool no_waste = false) {
    struct Taken {
        std::optional<std::uint64_t> offset;
        Interval bytes;
    };
    std::vector<Taken> blocks;
    Interval taken = Interval::exactly(0);
    bool placed = true;
    for (const ScenarioBlock& block : segment.blocks) {
        if (block.pending && waits_over) continue;
        const bool smaller = no_waste && !block.pending && block.requested;
        blocks.push_back({block.offset, smaller ? *block.requested : block.bytes});
        taken = taken + blocks.back().bytes;
        placed = placed && block.offset && blocks.back().bytes.exact();
    }
    Pieces out;
    out.sum = less(segment.bytes, taken);
    // A number for itself is nearer than the difference of two others.
    if (segment.unused && !waits_over && !no_waste) out.sum = *segment.unused;
    out.wholly_free = blocks.empty() && !segment.several;
    if (out.wholly_free || out.sum.high == std::optional<std::uint64_t>(0)) {
        out.largest = out.sum;
        out.count = out.wholly_free ? 1 : 0;
        out.extents.emplace();
        if (out.wholly_free) out.extents->push_back({0, out.sum.low.value_or(0)});
        if (!out.sum.exact()) out.extents.reset();
        return out;
    }
    if (segment.several) {
        out.largest = {0, out.sum.high};
        return out;
    }
    if (!placed) {
        // As many pieces as there can be beside the blocks: the largest has at least its share.
        out.count = blocks.size() + 1;
        out.largest = {out.sum.low.value_or(0) / out.count, out.sum.high};
        if (out.largest.low && out.sum.low.value_or(0) % out.count != 0) ++*out.largest.low;
        return out;
    }
    std::sort(blocks.begin(), blocks.end(),
              [](const Taken& a, const Taken& b) { return *a.offset < *b.offset; });
    std::uint64_t at = 0;
    if (segment.bytes.exact()) out.extents.emplace();
    const auto piece = [&](const Interval& bytes) {
        if (bytes.high == std::optional<std::uint64_t>(0)) return;
        if (out.extents) out.extents->push_back({at, at + bytes.low.value_or(0)});
        ++out.count;
        out.largest = {std::max(out.largest.low.value_or(0), bytes.low.value_or(0)),
                       larger(out.largest.high, bytes.high)};
    };
    for (const Taken& block : blocks) {
        piece(Interval::exactly(*block.offset - std::min(at, *block.offset)));
        at = *block.offset + *block.bytes.low;
    }
    piece(less(segment.bytes, Interval::exactly(at)));
    return out;
}

void add(AllocatorView& view, const ScenarioSegment& segment, const Pieces& pieces) {
    view.gap_sum = view.gap_sum + pieces.sum;
    view.gap_largest = {std::max(view.gap_largest.low.value_or(0), pieces.largest.low.value_or(0)),
                        larger(view.gap_largest.high, pieces.largest.high)};
    if (pieces.wholly_free) view.wholly_free = view.wholly_free + pieces.sum;
    // Some of several segments may be wholly free, or none.
    if (segment.several) view.wholly_free = view.wholly_free + Interval{0, pieces.sum.high};
}

bool of_owner(const ScenarioSegment& segment, const ScenarioRequest& request) {
    return segment.owner == request.owner;
}
bool of_stream(const ScenarioSegment& segment, const ScenarioRequest& request) {
    return segment.stream.empty() || request.stream.empty() || segment.stream == request.stream;
}

Quantity stated(Definition definition, const Interval& bytes, const Scope& scope, const char* reason) {
    return bytes.exact() ? Quantity::derived(definition, *bytes.low, scope, reason)
                         : Quantity::bounded(definition, bytes, scope, reason);
}

}  // namespace

Interval rounded_up(const Interval& bytes, std::uint64_t unit) {
    const auto up = [&](const std::optional<std::uint64_t>& end) -> std::optional<std::uint64_t> {
        if (!end || unit == 0 || *end % unit == 0) return end;
        const std::uint64_t more = unit - *end % unit;
        return *end > UINT64_MAX - more ? UINT64_MAX : *end + more;
    };
    return {up(bytes.low), up(bytes.high)};
}

Interval less(const Interval& a, const Interval& b) {
    const auto minus = [](const std::optional<std::uint64_t>& from,
                          const std::optional<std::uint64_t>& what) {
        return from && what ? std::optional(*from - std::min(*from, *what)) : std::nullopt;
    };
    Interval out{minus(a.low, b.high), minus(a.high, b.low)};
    if (!out.low) out.low = 0;
    return out;
}

AllocatorLayout layout_of(const std::vector<ScenarioSegment>& segments, const ScenarioRequest& request,
                          std::uint64_t granularity) {
    AllocatorLayout out;
    out.requested = request.bytes;
    const Interval rounded = rounded_up(request.bytes, request.block_rounding);
    out.block = request.in_gap.value_or(rounded);
    out.segment = rounded_up(rounded_up(rounded, request.segment_rounding), granularity);
    out.may_release = request.may_release;
    out.gaps_refused = request.gaps_refused;
    out.asked_known = !request.in_gap;
    for (const ScenarioSegment& segment : segments) {
        const bool owner = of_owner(segment, request);
        const bool stream = of_stream(segment, request);
        const Pieces now = pieces_of(segment, false);
        for (const bool waits_over : {false, true}) {
            for (const bool no_waste : {false, true}) {
                const Pieces pieces = pieces_of(segment, waits_over, no_waste);
                for (const bool any_owner : {false, true}) {
                    for (const bool any_stream : {false, true}) {
                        if ((owner || any_owner) && (stream || any_stream))
                            add(out.views[AllocatorLayout::index(waits_over, any_owner, any_stream,
                                                                 no_waste)],
                                segment, pieces);
                    }
                }
            }
        }
        if (!owner) out.of_other_owners = out.of_other_owners + now.sum;
        if (!stream) out.of_other_streams = out.of_other_streams + now.sum;
        out.owners = out.owners || !owner;
        out.streams = out.streams || !stream;
        for (const ScenarioBlock& block : segment.blocks) {
            if (block.pending) {
                out.waits = true;
                out.waiting = out.waiting + block.bytes;
            } else if (block.requested) {
                out.waste = out.waste + less(block.bytes, *block.requested);
            }
        }
    }
    return out;
}

FrameworkAtFailure framework_of(const Scenario& scenario, const Scope& physical) {
    FrameworkAtFailure out;
    out.scope = physical;
    out.scope.domain = "framework's allocator";
    Interval reserved = Interval::exactly(0), live = reserved, waiting = reserved, cached = reserved;
    Interval wholly_free = reserved;
    std::map<std::pair<std::string, std::string>, FrameworkDomain> domains;
    for (const ScenarioSegment& segment : scenario.segments) {
        const Pieces pieces = pieces_of(segment, false);
        FrameworkDomain& domain = domains[{segment.owner, segment.stream}];
        if (domain.segments == 0) domain.gaps = FreeExtents();
        domain.large = true;
        domain.name = (segment.owner.empty() ? "default pool" : "pool " + segment.owner) +
                      (segment.stream.empty() ? "" : ", stream " + segment.stream);
        ++domain.segments;
        domain.reserved += segment.bytes.low.value_or(0);
        if (pieces.extents) {
            for (const Range& extent : *pieces.extents) domain.gaps.add(extent);
        } else {
            out.extents_known = false;
        }
        reserved = reserved + segment.bytes;
        cached = cached + pieces.sum;
        if (pieces.wholly_free) wholly_free = wholly_free + pieces.sum;
        if (segment.several) wholly_free = wholly_free + Interval{0, pieces.sum.high};
        Interval alone = Interval::exactly(0);
        bool any_live = segment.several;
        for (const ScenarioBlock& block : segment.blocks) {
            Interval& kind = block.pending ? waiting : live;
            kind = kind + block.bytes;
            any_live = any_live || !block.pending;
            if (block.pending) alone = alone + block.bytes;
            if (!block.pending) domain.live += block.bytes.low.value_or(0);
        }
        if (!any_live) out.waiting_alone += alone.low.value_or(0);
        if (segment.owner == scenario.request.owner) out.gaps += pieces.count;
    }
    for (const auto& [key, domain] : domains) out.domains.push_back(domain);
    out.most_reserved = reserved.low.value_or(0);
    out.reserved = stated(report::Quantity::charged, reserved, out.scope, "the segments that are stated");
    out.live = stated(report::Quantity::live, live, out.scope, "the live blocks that are stated");
    out.waiting = stated(report::Quantity::pending_free, waiting, out.scope,
                         "blocks that the host has freed and whose stream has not got there");
    out.cached = stated(report::Quantity::cached, cached, out.scope, "segments less what lies in them");
    out.reclaimable =
        stated(report::Quantity::reclaimable, wholly_free, out.scope, "segments that no block lies in");
    out.in_gaps = stated(report::Quantity::cached, less(cached, wholly_free), out.scope,
                         "between blocks, in segments that a block lies in");
    if (scenario.request.kind == ScenarioRequest::Kind::kAllocator) {
        out.gave_up = true;
        out.driver_asked = true;
        out.layout = layout_of(scenario.segments, scenario.request, scenario.device.granularity);
        out.tried = out.layout->block.low.value_or(0);
        out.largest_eligible = out.layout->views[0].gap_largest.low.value_or(0);
    }
    return out;
}

}  // namespace fragscope::analysis
