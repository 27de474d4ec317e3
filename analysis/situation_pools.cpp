// The stream-ordered pools of a situation: what each holds, keeps and would give back.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/situation_parts.h"

namespace fragscope::analysis::situation_parts {
namespace {

constexpr char kUnplaced[] = "on which device the pool lies is not known";

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

}  // namespace

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
                                             "CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT " + s.when);
            at.used = Quantity::measured(report::Quantity::live, *word.used, s.physical,
                                         "CU_MEMPOOL_ATTR_USED_MEM_CURRENT " + s.when);
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
                                        "what the pools' used sizes exceed their live blocks by, " + s.when +
                                            ": freed by the program, and still waiting for its stream")
                    : Quantity::bounded(report::Quantity::pending_free, pending_total, s.physical, why);
}

}  // namespace fragscope::analysis::situation_parts
