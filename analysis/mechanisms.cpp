#include "analysis/mechanisms.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/mechanism_costs.h"
#include "analysis/mechanism_needs.h"
#include "analysis/mechanism_order.h"
#include "analysis/mechanism_settings.h"
#include "analysis/mechanism_ways.h"

namespace fragscope::analysis {
namespace {

using report::Mechanism;
using report::OverheadPart;

constexpr std::uint64_t kAddressBytes = 8;  // of one entry in a program's own table of segments

OverheadPart overhead(const char* part, const Quantity& bytes, std::string would_tell = "") {
    OverheadPart out;
    out.set_part(part);
    *out.mutable_bytes() = bytes.message();
    out.set_would_tell(std::move(would_tell));
    return out;
}

Quantity rounding_slack(const Situation& s, const Way& way) {
    const std::uint64_t payload = wanted_bytes(s);
    if (!way.charged.high) {
        return Quantity::bounded(
            report::Quantity::internal_waste, {0, std::nullopt}, s.physical,
            fmt::format("each segment may be rounded up to whole {}, and their number is not known",
                        in_words(way.unit)));
    }
    const Interval slack = {*way.charged.low - payload, *way.charged.high - payload};
    if (way.unit_assumed) {
        return Quantity::assumed(
            report::Quantity::internal_waste, slack, s.physical,
            fmt::format("at most the rest of a unit of {}: how the driver rounds inside is in no call",
                        in_words(way.unit)));
    }
    return Quantity::derived(
        report::Quantity::internal_waste, *slack.low, s.physical,
        fmt::format("{} in whole units of {}, less the payload", in_words(payload), in_words(way.unit)));
}

Quantity tables(const Situation& s, const Way& way) {
    if (way.kind == WayKind::kSegmented) {
        return Quantity::assumed(
            report::Quantity::internal_waste, {2 * kAddressBytes, std::nullopt}, s.physical,
            fmt::format("a table of the program's own, {} for the address of each segment",
                        in_words(kAddressBytes)));
    }
    return Quantity::unknown(report::Quantity::internal_waste, s.physical,
                             way.maps ? "the device's page tables for the mappings are in no call"
                                      : "the device's page tables are in no call");
}

Quantity temporary(const Situation& s, const Way& way) {
    if (way.kind != WayKind::kCompaction)
        return Quantity::derived(report::Quantity::internal_waste, 0, s.physical, "nothing is copied");
    if (!s.movable || s.movable->count == 0)
        return Quantity::unknown(report::Quantity::internal_waste, s.physical,
                                 "nothing is known that could be moved");
    return Quantity::bounded(
        report::Quantity::internal_waste, {s.movable->smallest, s.movable->largest}, s.physical,
        "a physical allocation exists twice while it is moved: from the smallest that can be moved "
        "to the largest");
}

void put_overhead(const Situation& s, const Way& way, Mechanism& out) {
    const Quantity slack = rounding_slack(s, way);
    const Quantity table = tables(s, way);
    const Quantity metadata = Quantity::unknown(
        report::Quantity::internal_waste, s.physical,
        way.kind == WayKind::kDirect || way.kind == WayKind::kPool || way.kind == WayKind::kHandle
            ? "what the driver keeps of an allocation for itself is in no call"
            : "what the driver and the program keep of each piece is in no call");
    const Quantity copies = temporary(s, way);
    *out.add_overhead() =
        overhead("rounding_slack", slack,
                 slack.exact() ? "" : "the drop of device-free memory (cuMemGetInfo) around the call");
    *out.add_overhead() =
        overhead("tables", table, "the drop of device-free memory (cuMemGetInfo) around many such mappings");
    *out.add_overhead() = overhead(
        "metadata", metadata, "the drop of device-free memory (cuMemGetInfo) around many such allocations");
    *out.add_overhead() = overhead("temporary", copies);
    Quantity known = plus(slack, copies, report::Quantity::internal_waste, "").value();
    if (table.known()) known = plus(known, table, report::Quantity::internal_waste, "").value();
    *out.mutable_overhead_known() =
        known.as(report::Quantity::internal_waste, "the parts above that are known; the others are not in it")
            .message();
}

void say_what_it_does_not(const Situation& s, const Way& way, Mechanism& out) {
    const std::string unit = in_words(way.unit);
    switch (way.kind) {
        case WayKind::kStitched:
            out.add_does_not("make a physical extent larger: it joins addresses");
            out.add_does_not("take internal waste away: what lies empty inside a unit of " + unit +
                             " stays empty");
            out.add_does_not("lift a limit on the number of mappings: it adds to them");
            break;
        case WayKind::kHandle:
            out.add_does_not("take internal waste away: it takes whole units of " + unit +
                             " however little is used");
            if (way.unit > s.page)
                out.add_does_not("make accesses faster for all that is known: larger pages round more");
            break;
        case WayKind::kSegmented:
            out.add_does_not(
                "keep the access contract: whoever gets one pointer now would have to follow a table");
            break;
        case WayKind::kCompaction:
            out.add_does_not("add any bytes to what nobody holds: it can only join them");
            break;
        case WayKind::kPool:
            out.add_does_not("make what other pools keep available: each serves its own requests");
            break;
        case WayKind::kDirect:
            out.add_does_not("show or promise one physical extent");
            break;
        case WayKind::kSmaller:
            break;
    }
}

void say_what_it_changes(const Situation& s, const Way& way, Mechanism& out) {
    if (way.kind == WayKind::kPool && !way.present) {
        out.add_changes(
            "how long memory is held: what is given back stays in the pool up to its release threshold, and "
            "others on the device lack it meanwhile");
    }
    if (out.has_amortisation()) {
        out.add_changes(
            fmt::format("how long memory is held, if the backing is kept between uses: {} of the device are "
                        "then held while nothing uses them",
                        in_words(way.charged)));
    }
    if (way.kind == WayKind::kCompaction && s.movable && s.movable->count != 0) {
        out.add_changes(
            "which physical pages lie behind addresses in use: old contents have to be overwritten before "
            "those pages go to another owner");
    }
}

std::string subject_of(const Situation& s) {
    return s.request.in_words.empty() ? in_words(wanted_bytes(s)) : s.request.in_words;
}

report::Reuse reuse_of(const Situation& s) {
    report::Reuse out;
    if (!s.facts) {
        out.set_note("no run stands behind this: how often such a request recurs is not known");
        return out;
    }
    const Recurrence& seen = s.facts->reuse;
    out.set_of(fmt::format("successful allocations of exactly {} of this kind", in_words(seen.bytes)));
    out.set_acquisitions(seen.acquisitions);
    out.set_most_at_once(seen.most_at_once);
    out.set_at_this_site(seen.at_this_site);
    out.set_site_known(seen.site_known);
    const Interval uses = seen.uses();
    if (uses.low) out.set_uses_low(*uses.low);
    if (uses.high) out.set_uses_high(*uses.high);
    out.set_note(uses.known() ? "uses of one backing, had as many been kept as ever lived at once"
                              : "none of this size succeeded in this trace: no reuse was observed");
    return out;
}

report::Comparison compared(const Situation& s, const std::vector<report::Bound>& bounds, bool of_a_moment) {
    report::Comparison out;
    out.set_subject(subject_of(s));
    const std::vector<Way> ways = ways_of(s);
    if (ways.empty()) {
        out.set_pareto_note(
            s.request.draws == Draws::kAddressSpace
                ? "The request takes addresses only: how memory is backed has no bearing on it."
                : "The request is none for device memory of a known size: there is nothing to choose between "
                  "here.");
        return out;
    }
    const SizedTimes* times = s.facts ? &s.facts->times : nullptr;
    *out.mutable_reuse() = reuse_of(s);
    const auto present = std::find_if(ways.begin(), ways.end(), [](const Way& way) { return way.present; });
    std::vector<report::CostPart> present_costs;
    if (present != ways.end()) present_costs = cost_parts_of(*present, times);
    for (const Way& way : ways) {
        // What could be moved, and whether there was room for it, is a matter of a moment.
        if (way.kind == WayKind::kCompaction && !of_a_moment) continue;
        Mechanism& row = *out.add_mechanisms();
        row.set_id(way.id);
        row.set_family(way.family);
        row.set_present(way.present);
        const std::vector<report::Prerequisite> needs = needs_of(s, way, bounds, of_a_moment);
        for (const report::Prerequisite& need : needs) *row.add_prerequisites() = need;
        row.set_standing(standing_of(needs));
        row.set_reason(reason_of(needs));
        if (way.pieces.low) row.set_pieces_low(*way.pieces.low);
        if (way.pieces.high) row.set_pieces_high(*way.pieces.high);
        if (way.kind != WayKind::kSmaller) {
            put_overhead(s, way, row);
            const std::vector<report::CostPart> costs = cost_parts_of(way, times);
            for (const report::CostPart& cost : costs) *row.add_costs() = cost;
            if (s.facts) {
                if (auto paid = amortised(way, costs, present != ways.end() ? &present_costs : nullptr,
                                          s.facts->reuse))
                    *row.mutable_amortisation() = std::move(*paid);
            }
        }
        say_what_it_does_not(s, way, row);
        say_what_it_changes(s, way, row);
        for (report::Setting& setting : settings_of(s, way)) *row.add_settings() = std::move(setting);
    }
    if (times != nullptr) {
        for (report::SizedTimes& each : times->all()) *out.add_measured() = std::move(each);
    }
    find_pareto_set(out);
    return out;
}

}  // namespace

report::Comparison mechanisms_of(const Situation& s, const std::vector<report::Bound>& bounds) {
    return compared(s, bounds, true);
}

report::Comparison mechanisms_for_a_run(const Situation& s) { return compared(s, {}, false); }

}  // namespace fragscope::analysis
