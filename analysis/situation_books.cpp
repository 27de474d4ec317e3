// What a situation's records say is held on the device, by whom, and what of it holds payload.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/rest.h"
#include "analysis/situation_parts.h"

namespace fragscope::analysis::situation_parts {
namespace {

Quantity of_interval(Definition definition, const Interval& interval, const Losses& losses, bool assumed_rule,
                     const Scope& scope, const std::string& reason) {
    const Interval wide = weakened(interval, losses);
    const std::string why =
        losses.any() ? reason + "; wider because records are missing, or were made before the recording began"
                     : reason;
    if (assumed_rule) return Quantity::assumed(definition, wide, scope, why);
    if (wide.exact()) return Quantity::derived(definition, *wide.low, scope, why);
    return Quantity::bounded(definition, wide, scope, why);
}

// What this process exported and freed, and another process of the trace still maps. Its bytes are in no sum of
// this process: they are among what no record explains.
void books_of_importers(Situation& s, const ProcessState& state, SessionWalk& walk) {
    if (state.ipc_exports().empty()) return;
    Interval held = Interval::exactly(0);
    const std::set<std::uint64_t> imported = walk.imported();
    std::set<std::uint64_t> counted;  // one allocation may have been exported more than once
    for (const auto& [identity, exported] : state.ipc_exports().all()) {
        if (!exported.freed || exported.device != s.request.device || !imported.contains(identity)) continue;
        if (!counted.insert(exported.address).second) continue;
        held = held + Interval{exported.bytes, round_up(exported.bytes, s.page)};
        ++s.importers_hold;
    }
    s.held_by_importers = Quantity::bounded(report::Quantity::charged, held, s.physical,
                                            "exported by this process and freed, and still mapped by another process of "
                                            "this trace that imported it");
    if (s.importers_hold != 0) s.in_the_rest.emplace_back("memory that it freed and an importer still maps");
}

}  // namespace

// A quantity that was put together from parts of one scope.
Quantity sum_of(const std::vector<Quantity>& parts, Definition definition, const Scope& scope,
                const std::string& reason) {
    Quantity total = Quantity::derived(definition, 0, scope, reason);
    for (const Quantity& part : parts) total = plus(total, part, definition, reason).value();
    return total;
}

// What CUPTI tells of the device from the failure to the driver's word.
void books_of_activity(Situation& s, SessionWalk& walk) {
    const Activity& activity = walk.activity(s.failure.process);
    if (!activity.used || s.request.device == kNoDevice) return;
    s.told_by_cupti =
        parts_of(activity, s.request.device, s.page, s.physical, s.place.from_ns, s.place.to_ns);
    s.resident = std::min(activity.resident_at(s.request.device, s.place.from_ns, s.place.to_ns), s.managed);
    for (std::string& what : in_the_rest(activity)) s.in_the_rest.push_back(std::move(what));
}

void books_of_the_device(Situation& s, const ProcessState& state, SessionWalk& walk) {
    const DeviceTotals& totals = state.totals(s.request.device);
    const Losses blocks_lost = with_contradictions(narrowed(s.losses, Layer::kBlocks), s.contradictions);
    s.handles = of_interval(
        report::Quantity::charged, charged_handles(state, s.request.device),
        with_contradictions(narrowed(s.losses, Layer::kHandles), s.contradictions), false, s.physical,
        totals.handles_maybe == 0
            ? "physical allocations of cuMemCreate that a handle or a mapping keeps alive, by their sizes"
            : fmt::format(
                  "physical allocations of cuMemCreate, by their sizes; of {} it is not known whether "
                  "an array or a multicast object still holds them",
                  in_words(totals.handles_maybe)));
    s.arrays = of_interval(
        report::Quantity::charged, charged_arrays(state, s.request.device),
        with_contradictions(narrowed(s.losses, Layer::kArrays), s.contradictions), false, s.physical,
        totals.array_count == 0 ? "no array that owns memory was seen"
                                : fmt::format("at least the texels of {} array{}: what their layout takes "
                                              "beyond them, no call says",
                                              totals.array_count, totals.array_count == 1 ? "" : "s"));
    const auto graphs = s.snapshot.graphs.find(s.request.device);
    if (graphs != s.snapshot.graphs.end()) {
        const GraphWord& word = graphs->second;
        s.graphs = Quantity::measured(report::Quantity::charged, word.reserved, s.physical,
                                      "CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT " + s.when);
        s.graphs_unused =
            word.used == 0
                ? Quantity::derived(report::Quantity::reclaimable, word.reserved, s.physical,
                                    "no graph's allocation was live, so a trim returns all of it")
                : Quantity::assumed(report::Quantity::reclaimable, {0, less(word.reserved, word.used)},
                                    s.physical,
                                    "reserved for graphs and not used by them; how much of it lies "
                                    "apart from what they use is not visible");
    } else if (!state.graphs().used() && !narrowed(s.losses, Layer::kGraphs).any() &&
               !narrowed(s.losses, Layer::kPools).any()) {
        s.graphs = Quantity::derived(report::Quantity::charged, 0, s.physical,
                                     "no graph with an allocation in it was seen");
        s.graphs_unused = s.graphs.as(report::Quantity::reclaimable, s.graphs.reason());
    } else {
        s.graphs = Quantity::bounded(report::Quantity::charged, {0, std::nullopt}, s.physical,
                                     "graphs may hold memory of their own, and the driver was not asked");
        s.graphs_unused = Quantity::unknown(report::Quantity::reclaimable, s.physical, s.graphs.reason());
    }
    const Interval blocks = charged_linear(state, s.request.device);
    const Interval linear = blocks + Interval{s.resident, totals.managed};
    s.linear_requested =
        of_interval(report::Quantity::requested, Interval::exactly(totals.linear_requested), blocks_lost,
                    false, s.physical, "sizes that cuMemAlloc and cuMemAllocPitch were asked for");
    s.linear =
        of_interval(report::Quantity::charged, linear, blocks_lost,
                    linear.high != std::optional<std::uint64_t>(0), s.physical,
                    fmt::format("between what was requested and whole pages of {}: blocks up to 1 MiB share "
                                "pages{}",
                                in_words(s.page),
                                totals.managed == 0 ? "" : "; managed memory counts as resident at most"));
    books_of_pools(s, state);
    std::vector<Quantity> parts{s.handles, s.linear, s.arrays, s.pools_reserved, s.graphs};
    for (const ActivityPart& part : s.told_by_cupti) parts.push_back(part.bytes);
    s.attributed =
        sum_of(parts, report::Quantity::attributed, s.physical,
               s.told_by_cupti.empty()
                   ? "VMM handles, linear memory, arrays, pools and graphs of this process"
                   : "VMM handles, linear memory, arrays, pools and graphs of this process, and what CUPTI "
                     "alone tells of");
    s.linear_waste = of_interval(report::Quantity::internal_waste, {0, *blocks.high - *blocks.low},
                                 blocks_lost, *blocks.high != 0, s.physical,
                                 "rounding of linear memory to pages: not visible, at most whole pages");

    if (!device_uuid(*s.trace, s.failure.process, s.request.device).empty()) {
        s.other_processes = walk.others(s.device, s.place.from_ns, s.place.to_ns);
        books_of_importers(s, state, walk);
    }
    Interval others = Interval::exactly(0);
    for (const OtherProcess& other : s.other_processes) others = others + other.charged;
    const std::string others_reason =
        "what other processes of this trace held on the device at that time, by the clock";
    // Nobody can hold more than what the device does not have free.
    if (s.capacity.exact() && s.device_free.exact()) {
        const std::uint64_t taken = *s.capacity.low() - std::min(*s.device_free.low(), *s.capacity.low());
        const std::uint64_t own = s.attributed.low().value_or(0);
        const std::uint64_t most = taken - std::min(own, taken);
        if (!others.high || *others.high > most) others.high = std::max(most, others.low.value_or(0));
    }
    // Without the driver's word there is at least this: nobody can use what the records say is taken.
    if (!s.device_free.known() && s.capacity.exact()) {
        const std::uint64_t own = s.attributed.low().value_or(0);
        const std::uint64_t others_least = others.low.value_or(0);
        if (own != 0 || others_least != 0) {
            s.free_then =
                Quantity::bounded(report::Quantity::device_free,
                                  {std::nullopt, less(less(*s.capacity.low(), own), others_least)},
                                  s.physical, "capacity less what the records say is taken; " + s.not_asked);
        }
    }
    s.others = s.other_processes.empty()
                   ? Quantity::derived(report::Quantity::other_processes, 0, s.physical,
                                       "no other process of this trace used the device at that time")
                   : Quantity::bounded(report::Quantity::other_processes, others, s.physical, others_reason);

    const std::string why =
        "capacity less device-free memory, less what the records of this trace explain: contexts, modules, "
        "libraries, processes that "
        "were not traced";
    const Quantity taken = minus(s.capacity, s.device_free, report::Quantity::charged, why).value();
    const Quantity explained = plus(s.attributed, s.others, report::Quantity::attributed, why).value();
    s.unattributed = minus(taken, explained, report::Quantity::unattributed, why).value();
}

void books_of_payload(Situation& s, const ProcessState& state) {
    s.payload = payload_of(*s.trace, s.failure.process, state, s.request.device);
    const auto waste = [&](std::uint64_t bytes, const std::string& what) {
        if (state.totals(s.request.device).handles == 0) {
            return Quantity::derived(report::Quantity::internal_waste, 0, s.physical,
                                     "no VMM handle is held");
        }
        if (!s.payload.seen)
            return Quantity::unknown(report::Quantity::internal_waste, s.physical, s.payload.why);
        if (s.payload.decisive) {
            return Quantity::derived(report::Quantity::internal_waste, bytes, s.physical,
                                     what + ": " + s.payload.why);
        }
        // What was seen written is the least there is: the rest may hold payload too.
        const bool all = s.handles.exact();
        return Quantity::bounded(report::Quantity::internal_waste,
                                 {0, all ? std::optional(bytes) : std::nullopt}, s.physical,
                                 "no more than what was not seen written; " + s.payload.why);
    };
    const Payload& payload = s.payload;
    s.handle_waste = waste(payload.partly_unwritten + payload.never_written,
                           fmt::format("charged but never written, {} inside partly written pages and {} in "
                                       "whole never-written pages",
                                       in_words(payload.partly_unwritten), in_words(payload.never_written)));
    s.partly_waste =
        waste(payload.partly_unwritten, "charged but never written, in pages that hold some payload");
    s.never_written = waste(payload.never_written, "charged for whole pages without a written byte");
}

void books_of_unmapped(Situation& s, const ProcessState& state) {
    const Losses lost = with_contradictions(narrowed(s.losses, Layer::kHandles), s.contradictions);
    if (lost.any()) return;  // a mapping may be among what is missing
    std::uint64_t leaked = 0;
    state.physical().for_each([&](const Physical& physical) {
        if (!physical.on_device || physical.device != s.request.device) return;
        if (physical.mapped_bytes != 0 || physical.exported) return;
        ++s.unmapped_count;
        s.unmapped_bytes += physical.bytes;
        // One that was never mapped may be about to be.
        if (!physical.was_mapped || physical.imported || physical.multicast || physical.arrays != 0 ||
            physical.maybe_held != 0)
            return;
        ++s.leaks;
        leaked += physical.bytes;
    });
    s.leaked = Quantity::derived(report::Quantity::charged, leaked, s.physical,
                                 "physical allocations of cuMemCreate that were mapped, are no longer, and whose handle "
                                 "was not released or exported");
}

}  // namespace fragscope::analysis::situation_parts
