#include "analysis/situation.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/kinds.h"
#include "analysis/rest.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr char kUnplaced[] = "on which device the pool lies is not known";

// Why there is no word of the driver on the device at the failure.
std::string why_not_asked(const Situation& s) {
    constexpr char kOnly[] = ", and numbers of other moments are not used";
    const FailureSnapshot& snapshot = s.snapshot;
    if (!snapshot.complete) return std::string("the driver was not asked right after this failure") + kOnly;
    if (snapshot.captured) {
        return std::string(
                   "a stream capture was running in the process, and the driver is not asked during one") +
               kOnly;
    }
    if (!snapshot.devices.empty() && !snapshot.devices.contains(s.request.device)) {
        return "right after this failure the driver spoke of another device: the one whose context was "
               "current";
    }
    if (snapshot.no_context)
        return std::string("no context was current on the thread, so no device could be asked") + kOnly;
    return std::string("the driver gave no answer right after this failure") + kOnly;
}

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

// A quantity that was put together from parts of one scope.
Quantity sum_of(const std::vector<Quantity>& parts, Definition definition, const Scope& scope,
                const std::string& reason) {
    Quantity total = Quantity::derived(definition, 0, scope, reason);
    for (const Quantity& part : parts) total = plus(total, part, definition, reason).value();
    return total;
}

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

// Each live block holds on to the chunks that it lies in: at most two of them only in part.
std::uint64_t pinned_by(std::uint64_t count) {
    return count > UINT64_MAX / (2 * kPoolChunk) ? UINT64_MAX : count * 2 * kPoolChunk;
}

// Interval of what may be returned by trimming: chunks with a live block stay, and so does what waits for its
// stream, which the driver may or may not count as used.
Interval reclaimable_of(std::uint64_t cached, std::uint64_t used, std::uint64_t live_count,
                        std::uint64_t pending) {
    if (used == 0) return {less(cached, pending), cached};
    return {less(less(cached, pinned_by(live_count)), pending), cached};
}

// What may have lain in pools that nobody spoke of: unknown, so a sum with it has no upper end.
Quantity not_told(Definition definition, const Scope& scope, const char* why) {
    return Quantity::bounded(definition, {0, std::nullopt}, scope, why);
}

void books_of_pools(Situation& s, const ProcessState& state) {
    std::vector<Quantity> reserved, cached, reclaimable;
    Interval pending_total = Interval::exactly(0);
    const auto nameless = state.pools().find(ObjectId{});
    const bool all_named = nameless == state.pools().end() || nameless->second.live_count == 0;
    std::map<ObjectId, PoolWord> words = s.snapshot.pools;
    const bool one_device = s.failure.process.value < s.trace->processes.size() &&
                            s.trace->processes[s.failure.process.value].devices_size() == 1;
    for (const auto& [id, pool] : state.pools()) {
        if (pool.on_device && pool.device == s.request.device) words.try_emplace(id);
    }
    for (const auto& [pool_id, word] : words) {
        const ObjectId id = pool_id;  // a structured binding cannot be captured
        const auto known = state.pools().find(id);
        const Pool pool = known == state.pools().end() ? Pool{} : known->second;
        int device = pool.device != kNoDevice ? pool.device : word.device;
        // A pool that only the snapshot names: with one device there is no other that it could be on.
        if (device == kNoDevice && pool.on_device &&
            (one_device || (id.value != 0 && id == s.request.pool))) {
            device = s.request.device;
        }
        if (known != state.pools().end() && (!pool.on_device || pool.imported)) continue;
        if (device == kNoDevice) {
            // It may lie on this device or on another one.
            const auto cached_there =
                word.reserved && word.used ? std::optional(less(*word.reserved, *word.used)) : std::nullopt;
            reserved.push_back(
                Quantity::bounded(report::Quantity::charged, {0, word.reserved}, s.physical, kUnplaced));
            cached.push_back(
                Quantity::bounded(report::Quantity::cached, {0, cached_there}, s.physical, kUnplaced));
            reclaimable.push_back(cached.back().as(report::Quantity::reclaimable, kUnplaced));
            continue;
        }
        if (device != s.request.device) continue;
        PoolAtFailure at{id,
                         pool_in_words(id),
                         Interval::exactly(pool.live_bytes),
                         pool.live_count,
                         0,
                         0,
                         Interval::exactly(0),
                         word,
                         Quantity::unknown(report::Quantity::charged, s.physical, s.not_asked),
                         Quantity::unknown(report::Quantity::live, s.physical, s.not_asked),
                         Quantity::unknown(report::Quantity::cached, s.physical, s.not_asked),
                         Quantity::unknown(report::Quantity::reclaimable, s.physical, s.not_asked)};
        at.no_opportunistic_reuse = pool.no_opportunistic_reuse;
        if (!at.said.maximum) at.said.maximum = pool.maximum;
        if (!at.said.threshold) at.said.threshold = pool.threshold;
        std::uint64_t maybe = 0;
        state.pool_blocks().for_each([&](const Range&, const PoolBlock& block) {
            if (block.pool == id && block.maybe_captured) maybe += block.requested;
        });
        *at.live.low -= std::min(maybe, *at.live.low);
        state.pending_frees().for_each([&](const Range&, const PendingFree& free) {
            if (free.pool != id) return;
            at.pending += free.requested;
            ++at.pending_count;
        });
        at.waiting = {0, at.pending};
        // Where nothing is missing, what the driver counts as used and no record holds as live was waiting.
        if (word.used && at.live.exact() && all_named &&
            !with_contradictions(narrowed(s.losses, Layer::kPools), s.contradictions).any()) {
            const std::uint64_t surplus = less(*word.used, pool.live_bytes);
            at.waiting.low = std::min(less(surplus, pinned_by(pool.live_count)), at.pending);
        }
        pending_total = pending_total + at.waiting;
        if (word.reserved && word.used && *word.used <= *word.reserved) {
            at.reserved = Quantity::measured(report::Quantity::charged, *word.reserved, s.physical,
                                             "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT right after the failure");
            at.used = Quantity::measured(report::Quantity::live, *word.used, s.physical,
                                         "CU_MEMPOOL_ATTR_USED_MEM_CURRENT right after the failure");
            at.cached = minus(at.reserved, at.used, report::Quantity::cached,
                              "reserved by the pool and not in use, both as the driver said")
                            .value();
            const std::uint64_t kept = *word.reserved - *word.used;
            const Interval back = reclaimable_of(kept, *word.used, pool.live_count + at.pending_count,
                                                 less(at.pending, *at.waiting.low));
            s.reclaimable_when_done += *reclaimable_of(kept, *word.used, pool.live_count, 0).low;
            at.reclaimable =
                back.exact()
                    ? Quantity::derived(report::Quantity::reclaimable, *back.low, s.physical,
                                        "nothing in the pool is in use, or waits for its stream, so "
                                        "cuMemPoolTrimTo(pool, 0) returns all of it")
                    : Quantity::assumed(
                          report::Quantity::reclaimable, back, s.physical,
                          fmt::format("cuMemPoolTrimTo(pool, 0) returns at most what is cached; chunks of {} "
                                      "that hold "
                                      "a live block are taken to stay{}",
                                      in_words(kPoolChunk),
                                      at.pending == 0 ? "" : ", and so is what waits for its stream"));
        } else if (pool.live_count == 0 && pool.high_live_bytes == 0 &&
                   !narrowed(s.losses, Layer::kPools).any() && !word.reserved) {
            // Never used: it has nothing yet, though the driver was not asked.
            at.reserved = Quantity::assumed(report::Quantity::charged, Interval::exactly(0), s.physical,
                                            "nothing was ever allocated from this pool");
            at.cached = at.reserved.as(report::Quantity::cached, at.reserved.reason());
            at.reclaimable = at.reserved.as(report::Quantity::reclaimable, at.reserved.reason());
        } else {
            at.reserved =
                Quantity::bounded(report::Quantity::charged, {at.live.low, std::nullopt}, s.physical,
                                  "at least its live blocks; the driver was not asked for its reserved size");
        }
        reserved.push_back(at.reserved);
        cached.push_back(at.cached);
        reclaimable.push_back(at.reclaimable);
        s.pools.push_back(std::move(at));
    }
    if (s.snapshot.pools_not_asked != 0 ||
        (!s.snapshot.complete && narrowed(s.losses, Layer::kPools).any())) {
        const char* why = s.snapshot.pools_not_asked != 0 ? "there were more pools than were asked about"
                                                          : "records are missing, and no pool was asked";
        reserved.push_back(not_told(report::Quantity::charged, s.physical, why));
        cached.push_back(not_told(report::Quantity::cached, s.physical, why));
        reclaimable.push_back(not_told(report::Quantity::reclaimable, s.physical, why));
    }
    s.pools_reserved =
        sum_of(reserved, report::Quantity::charged, s.physical,
               reserved.empty() ? "no stream-ordered pool was seen" : "sum over the pools of the device");
    s.cached =
        sum_of(cached, report::Quantity::cached, s.physical,
               cached.empty() ? "no stream-ordered pool was seen" : "sum over the pools of the device");
    s.reclaimable =
        sum_of(reclaimable, report::Quantity::reclaimable, s.physical,
               reclaimable.empty() ? "no stream-ordered pool was seen" : "sum over the pools of the device");
    const std::string why =
        "freed by the program on a stream that was not synchronised since: some of it may still have been "
        "waiting";
    const Losses lost = narrowed(s.losses, Layer::kPools);
    const bool releases_missing = !lost.counted || lost.releases || lost.unclassified;
    s.pending = s.used_pools && releases_missing
                    ? Quantity::bounded(report::Quantity::pending_free, {0, std::nullopt}, s.physical,
                                        "stream-ordered releases may be among the records that are missing")
                : *pending_total.high == 0
                    ? Quantity::derived(report::Quantity::pending_free, 0, s.physical,
                                        "no stream-ordered release was waiting for its stream")
                : pending_total.exact()
                    ? Quantity::derived(report::Quantity::pending_free, *pending_total.low, s.physical,
                                        "what the pools' used sizes exceed their live blocks by, right after "
                                        "the failure: freed by the program, and still waiting for its stream")
                    : Quantity::bounded(report::Quantity::pending_free, pending_total, s.physical, why);
}

// PyTorch asks for the device's free memory itself before it gives up: after the driver's refusal (`after`),
// on the same thread.
void ask_the_program(FailureSnapshot& snapshot, const std::vector<Event>& events, std::size_t gave_up,
                     std::size_t after) {
    for (std::size_t i = gave_up; i-- > 0;) {
        const Event& event = events[i];
        if (i == after) return;
        if (event.thread != events[gave_up].thread || event.has(wire::kByShim)) continue;
        if (event.kind == Kind::kBlockAcquired || event.kind == Kind::kBlockReleased ||
            event.kind == Kind::kBlockRefused)
            return;
        if (event.kind != Kind::kDeviceMemory || event.failed()) continue;
        snapshot.by_program = true;
        snapshot.devices[event.device] = {event.address.value, event.bytes.value, i};
        snapshot.moment = after < gave_up ? i : gave_up;
        return;
    }
}

// What the allocator itself gave up, in the terms of its own books.
void book_the_refusal(Situation& s, const FrameworkState& books) {
    FrameworkAtFailure& own = *s.framework;
    own.gave_up = true;
    own.driver_asked = s.event != s.named;
    own.tried = s.named->bytes.value;
    own.stream = books.stream_of(s.named->thread, s.named->device);
    for (const FrameworkDomain& domain : own.domains) {
        if (domain.large != (own.tried > kSmallBlock)) continue;
        const bool other = own.stream && domain.stream && own.stream != domain.stream;
        std::uint64_t& largest = other ? own.largest_of_other_streams : own.largest_eligible;
        largest = std::max(largest, domain.gap_largest);
    }
}

// Handles of the refused one's size that its thread took just before it: PyTorch takes all that a block needs
// in a row, and maps them when it has them.
std::uint64_t taken_just_before(const std::vector<Event>& events, std::size_t refused) {
    std::uint64_t bytes = 0;
    for (std::size_t i = refused; i-- > 0;) {
        const Event& event = events[i];
        if (event.thread != events[refused].thread || event.has(wire::kByShim)) continue;
        if (event.kind != Kind::kHandleCreated || event.failed() || event.bytes != events[refused].bytes)
            break;
        bytes += std::min(event.bytes.value, UINT64_MAX - bytes);
    }
    return bytes;
}

// Expandable segments grow by handles of one size, up to the block's end: the driver's refusal names one of
// them, the block needs all that are missing.
void need_handles(Situation& s) {
    constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
    const FrameworkAtFailure& own = *s.framework;
    const bool refused = own.driver_asked && s.event->kind == Kind::kHandleCreated;
    if (s.request.draws != Draws::kPhysical || (!refused && (own.driver_asked || !own.expandable))) return;
    // By PyTorch's public rules, where no handle was asked for.
    const std::uint64_t handle = refused                   ? std::max<std::uint64_t>(s.event->bytes.value, 1)
                                 : own.tried > kSmallBlock ? 20 * kMiB
                                                           : 2 * kMiB;
    // The block begins in a gap, or at what is not mapped yet: gaps spare handles.
    std::uint64_t gaps = own.in_gaps.exact() && own.reclaimable.exact() ? 0 : own.tried;
    for (const FrameworkDomain& domain : own.domains) {
        if (domain.large == (own.tried > kSmallBlock)) gaps += std::min(domain.gap_sum, UINT64_MAX - gaps);
    }
    // Where the program itself asked for the device's numbers it had given those back before.
    const std::uint64_t taken =
        refused && !s.snapshot.by_program
            ? taken_just_before(s.trace->events[s.failure.process.value], s.failure.index)
            : 0;
    std::uint64_t least = std::max(handle, less(round_up(less(own.tried, gaps), handle), taken));
    std::uint64_t most = std::max(handle, less(round_up(own.tried, handle), taken));
    Interval& needed = s.request.needed;
    if (!refused) {
        // It may have been to take a segment of its own instead.
        least = std::min(least, needed.low.value_or(0));
        most = std::max(most, needed.high.value_or(UINT64_MAX));
    }
    needed = {least, most};
    s.request.rounding_assumed = true;
    s.request.needed_reason =
        "handles that were still missing for the whole block: an expandable segment grows by handles of one "
        "size, and how much of the block gaps at its place would have held is not told";
}

void word_of_the_device(Situation& s) {
    const trace::Device* device = device_of(*s.trace, s.failure.process, s.request.device);
    const auto said = s.snapshot.devices.find(s.request.device);
    if (said != s.snapshot.devices.end()) {
        const char* when = s.snapshot.by_program
                               ? "which the framework's allocator asked for before it gave up"
                               : "right after the failure";
        const std::string whose =
            s.device_of_snapshot
                ? "; the call names no device: this is the one that its own snapshot speaks of"
                : "";
        s.capacity = Quantity::measured(report::Quantity::capacity, said->second.total, s.physical,
                                        fmt::format("the total of cuMemGetInfo {}{}", when, whose));
        s.device_free =
            Quantity::measured(report::Quantity::device_free, said->second.free, s.physical,
                               fmt::format("cuMemGetInfo {}: held by nobody on the device{}", when, whose));
    } else {
        s.capacity =
            device != nullptr && device->has_capacity_bytes()
                ? Quantity::measured(report::Quantity::capacity, device->capacity_bytes(), s.physical,
                                     "cuDeviceTotalMem: it does not change")
                : Quantity::unknown(report::Quantity::capacity, s.physical, "the trace does not say");
        s.device_free = Quantity::unknown(report::Quantity::device_free, s.physical, s.not_asked);
    }
    // What other threads acquired or released between the failure and the driver's answer.
    std::uint64_t more = 0;
    bool changed = false;
    bool unstated = false;
    const auto& events = s.trace->events[s.failure.process.value];
    for (std::size_t i = s.failure.index + 1; i < s.snapshot.moment; ++i) {
        const Event& event = events[i];
        if (event.failed() || event.has(wire::kSnapshot)) continue;
        if (takes_unstated(event.kind)) {
            unstated = true;
        } else if (acquires(event.kind)) {
            const std::uint64_t taken = round_up(event.bytes.value, s.page);
            more += std::min(taken, UINT64_MAX - more);
        }
        // How much a release gave back is not in its record: before it, nothing at all may have been free.
        if (releases(event.kind)) changed = true;
    }
    s.free_then = s.device_free;
    if (s.device_free.known() && (more != 0 || changed || unstated)) {
        Interval then =
            Interval{changed ? 0 : *s.device_free.low(), *s.device_free.high()} + Interval{0, more};
        if (unstated) then.high = s.capacity.high();
        s.free_then =
            Quantity::bounded(report::Quantity::device_free, then, s.physical,
                              "other threads acquired or released memory between the failure and the "
                              "driver's answer");
    }
}

// What CUPTI tells of the device from the failure to the driver's word.
void books_of_activity(Situation& s, SessionWalk& walk) {
    const Activity& activity = walk.activity(s.failure.process);
    if (!activity.used || s.request.device == kNoDevice) return;
    const std::uint64_t from = s.event->start.value;
    const auto& events = s.trace->events[s.failure.process.value];
    const Event& last = events[std::min(s.snapshot.moment, events.size() - 1)];
    const std::uint64_t to = std::max(last.start.value + last.duration_ns, from + s.event->duration_ns);
    s.told_by_cupti = parts_of(activity, s.request.device, s.page, s.physical, from, to);
    s.resident = std::min(activity.resident_at(s.request.device, from, to), s.managed);
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
                                      "CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT right after the failure");
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
    s.attributed = sum_of(parts, report::Quantity::attributed, s.physical,
                          s.told_by_cupti.empty()
                              ? "VMM handles, linear memory, arrays, pools and graphs of this process"
                              : "VMM handles, linear memory, arrays, pools and graphs of this process, and what CUPTI "
                                "alone tells of");
    s.linear_waste = of_interval(report::Quantity::internal_waste, {0, *blocks.high - *blocks.low},
                                 blocks_lost, *blocks.high != 0, s.physical,
                                 "rounding of linear memory to pages: not visible, at most whole pages");

    if (!device_uuid(*s.trace, s.failure.process, s.request.device).empty()) {
        const std::uint64_t from = s.event->start.value;
        const auto& events = s.trace->events[s.failure.process.value];
        const Event& last = events[std::min(s.snapshot.moment, events.size() - 1)];
        s.other_processes = walk.others(
            s.device, from, std::max(last.start.value + last.duration_ns, from + s.event->duration_ns));
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
    state.physical().for_each([&](const Physical& physical) {
        if (!physical.on_device || physical.device != s.request.device) return;
        if (physical.mapped_bytes != 0 || physical.exported) return;
        ++s.unmapped_count;
        s.unmapped_bytes += physical.bytes;
    });
}

// What was tried, or granted, for one handle says nothing of the block that needs several.
bool one_handle_of_many(const Situation& s) {
    return s.event != s.named && s.event->kind == Kind::kHandleCreated;
}

// Whether and when the same request was met later: what was given back in between is worth naming.
void look_ahead(Situation& s) {
    constexpr std::size_t kFar = 4096;  // events; further away it is another story
    if (one_handle_of_many(s)) return;
    const auto& events = s.trace->events[s.failure.process.value];
    const Event* last_release = nullptr;
    const std::size_t end = std::min(events.size(), s.failure.index + 1 + kFar);
    for (std::size_t i = s.failure.index + 1; i < end; ++i) {
        const Event& event = events[i];
        if (event.has(wire::kByShim) || event.has(wire::kContinued) || event.failed()) continue;
        // A trim gives back more than a synchronisation that surrounds it.
        if (releases(event.kind) && (event.kind != Kind::kSynchronized || last_release == nullptr))
            last_release = &event;
        if (event.kind != s.event->kind || event.device != s.event->device) continue;
        if (event.bytes.value < s.request.requested || s.request.requested == 0) continue;
        const std::uint64_t later = less(event.start.value, s.event->start.value);
        const std::string when = later < 10'000       ? fmt::format("{} ns", later)
                                 : later < 10'000'000 ? fmt::format("{} µs", later / 1000)
                                                      : fmt::format("{} ms", later / 1'000'000);
        const bool named =
            last_release != nullptr && last_release->function.value < s.trace->functions.size();
        s.succeeded_later =
            fmt::format("The same request succeeded {} later{}.", when,
                        named ? ", after " + s.trace->functions[last_release->function.value]
                        : last_release != nullptr ? ", after this process gave something back"
                                                  : ", though this process had given nothing back");
        return;
    }
}

// Whether one handle of the request's size was refused where as many bytes were granted in small ones. A
// linear request is no handle: there the linear call has to be refused again too, and not for want of
// addresses.
void look_at_trials(Situation& s) {
    using wire::ProbeMechanism;
    const std::uint64_t requested = s.request.requested;
    const auto refused = [&](ProbeMechanism mechanism) {
        return s.probes.refused(mechanism).value_or(UINT64_MAX) <= requested;
    };
    if (requested == 0 || s.request.draws != Draws::kPhysical || one_handle_of_many(s)) return;
    const bool pieces =
        refused(ProbeMechanism::kHandleMinimum) && s.probes.granted(ProbeMechanism::kStitched) >= requested;
    s.tried_in_pieces =
        pieces && (s.event->kind == Kind::kHandleCreated ||
                   (s.event->kind == Kind::kLinearAcquired && refused(ProbeMechanism::kDirect) &&
                    s.probes.granted(ProbeMechanism::kAddresses) >= requested));
}

void look_around(Situation& s, const ProcessState& state) {
    const auto& events = s.trace->events[s.failure.process.value];
    for (std::size_t i = s.failure.index; i-- > 0;) {
        const Event& event = events[i];
        if (narrowed(s.losses, Layer::kAddresses).any()) break;
        // Whatever is released may give addresses back; a stream that was synchronised, too.
        if (!event.failed() && releases(event.kind)) break;
        if (event.kind == Kind::kReserved && event.result == kOutOfMemory &&
            event.bytes.value <= s.request.requested && event.extra == 0) {
            s.reservation_failed_before = true;
            break;
        }
    }
    std::uint64_t pieces = 0;
    for (std::size_t i = s.failure.index + 1; i < events.size(); ++i) {
        const Event& event = events[i];
        if (event.has(wire::kByShim) || event.has(wire::kContinued)) continue;
        if (!event.failed() && releases(event.kind)) break;
        if (!event.failed() && event.kind == s.event->kind && event.device == s.event->device) {
            // A success of the very size shows that something else has changed: no witness any more.
            if (event.bytes.value >= s.request.requested) break;
            if (event.extra == s.event->extra) pieces += std::min(event.bytes.value, UINT64_MAX - pieces);
        }
    }
    const std::uint64_t needed = s.request.needed.high.value_or(UINT64_MAX);
    s.came_in_pieces = s.event->kind == Kind::kHandleCreated && s.request.draws == Draws::kPhysical &&
                       s.device_free.known() && s.free_then.low().value_or(0) >= needed && pieces >= needed &&
                       state.largest_created(s.request.device) >= s.request.requested;
}

}  // namespace

std::uint64_t since_start(const Trace& trace, TimeNs time) {
    const std::uint64_t start = trace.session.start_ns();
    return time.value > start ? time.value - start : 0;
}

Situation situation_at(const Trace& trace, const Failure& failure, SessionWalk& walk) {
    Situation s;
    s.trace = &trace;
    s.failure = failure;
    const auto& events = trace.events[failure.process.value];
    s.named = &events[failure.index];
    const bool gave_up = s.named->kind == Kind::kBlockRefused;
    if (gave_up) s.failure.index = refusal_of_driver(events, failure.index).value_or(failure.index);
    s.event = &events[s.failure.index];
    s.snapshot = snapshot_of(events, s.failure.index);
    s.probes = probes_of(events, s.failure.index);
    if (gave_up && s.snapshot.devices.empty())
        ask_the_program(s.snapshot, events, failure.index, s.failure.index);
    // Of several devices in the snapshot each was asked at its own moment.
    if (const auto asked = s.snapshot.devices.find(device_of_call(*s.event));
        asked != s.snapshot.devices.end() && !s.snapshot.by_program)
        s.snapshot.moment = asked->second.index;
    walk.advance(failure, s.snapshot);
    const ProcessState& state = walk.failing();
    Event placed = *s.event;
    // A call that names no device, such as an address reservation, was made where its snapshot was taken.
    // With several devices in it there would be a choice, and nothing to choose by.
    if (placed.device == kNoDevice && s.snapshot.devices.size() == 1 &&
        s.snapshot.devices.begin()->first != kNoDevice) {
        placed.device = static_cast<std::int16_t>(s.snapshot.devices.begin()->first);
        s.device_of_snapshot = true;
    }
    s.request = request_of(placed, state);
    s.device = device_uuid(trace, failure.process, s.request.device);
    if (s.device.empty() && s.request.device != kNoDevice)
        s.device = fmt::format("device {}", s.request.device);
    s.page = state.page(s.request.device);
    if (const trace::Device* device = device_of(trace, failure.process, s.request.device))
        s.recommended_granularity = device->recommended_granularity_bytes();
    s.witnesses = witnesses_of(trace, s.failure, s.request);
    s.physical.process = failure.process.value;
    s.physical.device = s.device;
    s.physical.domain = "physical";
    s.physical.snapshot = s.event->sequence.value;
    s.physical.time_ns = since_start(trace, s.event->start);
    s.address = s.physical.in_domain("virtual");
    s.address.device.clear();
    s.losses = losses_of(trace, failure.process);
    s.not_asked = why_not_asked(s);
    s.contradictions = state.contradictions();
    s.books = with_contradictions(s.losses, s.contradictions);
    s.used_pools = state.used_pools();
    s.captured_allocations = state.captured_allocations();
    s.contexts = state.contexts(s.request.device);
    s.mapped = state.mappings().total();
    s.managed = state.totals(s.request.device).managed;
    s.host_pinned = state.host_pinned_bytes();
    state.physical().for_each([&](const Physical& physical) {
        if (physical.imported) s.imported += physical.bytes;
    });
    s.framework = framework_at(walk.failing_framework(), state, s.request.device, s.physical, s.losses);
    if (gave_up && s.framework) {
        book_the_refusal(s, walk.failing_framework());
        need_handles(s);
    }
    if (gave_up && s.event != s.named)
        s.request.in_words =
            fmt::format("a block of {} out of its framework's allocator, which asked the driver for {}",
                        in_words(s.named->bytes.value), s.request.in_words);
    s.in_the_rest = in_the_rest(state, s.request.device);
    word_of_the_device(s);
    books_of_activity(s, walk);
    books_of_the_device(s, state, walk);
    books_of_payload(s, state);
    books_of_unmapped(s, state);
    const std::uint64_t asked = s.request.needed.low.value_or(0);
    s.space = address_space_of(
        state, asked, s.request.draws == Draws::kAddressSpace ? s.request.alignment : s.page, s.page);
    look_at_trials(s);
    look_around(s, state);
    look_ahead(s);
    return s;
}

}  // namespace fragscope::analysis
