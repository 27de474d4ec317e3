// Stream-ordered pools: blocks, frees that wait for their stream, and what the driver says of a pool.
#include <algorithm>
#include <utility>
#include <vector>

#include "analysis/state.h"

namespace fragscope::analysis {

namespace {
// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of cuda.h.
constexpr std::uint64_t kLegacy = 1;
constexpr std::uint64_t kPerThread = 2;
// CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC and CU_MEMPOOL_ATTR_RELEASE_THRESHOLD of cuda.h.
constexpr std::uint64_t kReuseOpportunistic = 2;
constexpr std::uint64_t kReleaseThreshold = 4;
}  // namespace

void ProcessState::create_pool(const Event& event) {
    used_pools_ = true;
    Pool& pool = pools_[event.object];
    Pool made;
    made.on_device = wire::location_type(event.extra) == kLocationDevice;
    made.device = made.on_device ? wire::location_id(event.extra) : kNoDevice;
    if (event.bytes.value != 0) made.maximum = event.bytes.value;
    if (pool.live_count != 0) {
        // The value stood for another pool: blocks of it are left whose release is missing.
        ++contradictions_.overlapping_acquisitions;
        made.live_bytes = pool.live_bytes;
        made.live_count = pool.live_count;
        made.high_live_bytes = pool.live_bytes;
    }
    pool = made;
}

void ProcessState::destroy_pool(const Event& event) {
    const auto found = pools_.find(event.object);
    if (found == pools_.end()) {
        ++contradictions_.unknown_releases;
    } else if (found->second.live_count == 0) {
        pools_.erase(found);
    } else {
        found->second.destroyed = true;
    }
}

void ProcessState::set_pool_attribute(const Event& event) {
    if (event.extra == kReuseOpportunistic)
        pools_[event.object].no_opportunistic_reuse = event.bytes.value == 0;
    if (event.extra == kReleaseThreshold) pools_[event.object].threshold = event.bytes.value;
}

void ProcessState::acquire_from_pool(const Event& event) {
    used_pools_ = true;
    if (event.has(wire::kCaptured) || event.has(wire::kCaptureUnknown)) {
        ++captured_;
        graphs_.note_use();
    }
    if (event.has(wire::kCaptured)) return graphs_.add_node(event, ObjectId{});
    PoolBlock block;
    block.requested = event.bytes.value;
    block.pool = event.object.value != 0 ? event.object : bound_pool(event.device);
    block.device = event.device;
    block.stream = ObjectId{event.extra};
    block.stack = event.stack;
    block.maybe_captured = event.has(wire::kCaptureUnknown);
    const Range range = range_of(event.address.value, std::max<std::uint64_t>(block.requested, 1));
    forget_linear_at(range);
    forget_others_at(range);
    // The pool gave freed memory out again: whatever was pending there is not any more.
    pending_.drop_overlapping(range, [](const Range&, const PendingFree&) {});
    if (!pool_blocks_.insert(range, block)) return;
    Pool& pool = pools_[block.pool];
    if (pool.device == kNoDevice) pool.device = block.device;
    pool.live_bytes += block.requested;
    ++pool.live_count;
    pool.high_live_bytes = std::max(pool.high_live_bytes, pool.live_bytes);
    totals_[block.device].pool_live += block.requested;
}

void ProcessState::free_in_stream_order(const Event& event) {
    if (!event.has(wire::kCaptured)) return release_address(event);
    // A node of a graph: it frees at some launch, or never.
    if (PoolBlock* block = pool_blocks_.value_at(event.address.value)) block->maybe_captured = true;
}

void ProcessState::release_to_pool(const Range& range, const PoolBlock& block, const Event* asked) {
    totals_[block.device].pool_live -= block.requested;
    if (asked != nullptr) {
        // A synchronisation tells NULL by what it meant; a free gives the stream as it was passed.
        const std::uint64_t null = asked->has(wire::kPerThreadStream) ? kPerThread : kLegacy;
        const ObjectId stream{asked->extra == 0 ? null : asked->extra};
        pending_.drop_overlapping(range, [](const Range&, const PendingFree&) {});
        pending_.insert(range, {block.requested, block.pool, block.device, stream, asked->thread, block.stack});
    }
    const auto found = pools_.find(block.pool);
    if (found == pools_.end()) return;
    found->second.live_bytes -= block.requested;
    if (--found->second.live_count == 0 && found->second.destroyed) pools_.erase(found);
}

void ProcessState::bind_pool(const Event& event) {
    const bool first = !bound_.contains(event.device);
    bound_[event.device] = event.object;
    Pool& pool = pools_[event.object];
    if (pool.device == kNoDevice) pool.device = event.device;
    if (!first || event.object.value == 0) return;
    // Blocks taken before it was known which pool they came from.
    const auto nameless = pools_.find(ObjectId{});
    if (nameless == pools_.end()) return;
    std::vector<std::uint64_t> moved;
    pool_blocks_.for_each([&](const Range& range, const PoolBlock& block) {
        if (block.pool.value == 0 && block.device == event.device) moved.push_back(range.begin);
    });
    for (const std::uint64_t begin : moved) {
        PoolBlock& block = *pool_blocks_.value_at(begin);
        block.pool = event.object;
        nameless->second.live_bytes -= block.requested;
        --nameless->second.live_count;
        pool.live_bytes += block.requested;
        ++pool.live_count;
    }
    pool.high_live_bytes = std::max(pool.high_live_bytes, pool.live_bytes);
    if (nameless->second.live_count == 0) pools_.erase(nameless);
}

void ProcessState::pool_said(const Event& event) {
    Pool& pool = pools_[event.object];
    if (pool.device == kNoDevice) pool.device = event.device;
    if (event.kind == wire::Kind::kPoolState) {
        pool.threshold = event.extra;
        pool.said = Pool::Word{event.address.value, event.bytes.value, event.sequence};
        used_pools_ = true;
    } else if (event.extra != 0) {
        pool.maximum = event.extra;
    }
}

void ProcessState::synchronized(const Event& event) {
    // A record names no context for a free, so a whole context's synchronisation is taken for its device's
    // frees: what is left is the most that may be pending, and the least is zero in any case.
    const auto done = [&](const Range&, const PendingFree& free) {
        if (event.object.value == 0) return event.device == kNoDevice || free.device == event.device;
        // Each thread has a NULL stream of its own.
        return free.stream == event.object &&
               (event.object.value != kPerThread || free.thread == event.thread);
    };
    pending_.drop_if(done, [](const Range&, const PendingFree&) {});
}

}  // namespace fragscope::analysis
