#include "analysis/state.h"

#include <utility>

namespace fragscope::analysis {

using wire::Kind;

namespace {
// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of cuda.h.
constexpr std::uint64_t kLegacy = 1;
constexpr std::uint64_t kPerThread = 2;
}  // namespace

ProcessState::ProcessState(std::map<int, std::uint64_t> page_by_device)
    : page_by_device_(std::move(page_by_device)) {}

void ProcessState::apply(const Event& event) {
    if (event.failed()) return;
    switch (event.kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kManagedAcquired:
            acquire_linear(event);
            break;
        case Kind::kLinearReleased:
            if (event.address.value != 0 && !release_address(event)) ++contradictions_.unknown_releases;
            break;
        case Kind::kHostAcquired:
        case Kind::kHostRegistered: {
            const HostBlock block{event.bytes.value, event.kind == Kind::kHostRegistered, event.object};
            const auto [at, fresh] = host_.try_emplace(event.address.value, block);
            if (!fresh) {
                ++contradictions_.overlapping_acquisitions;
                host_bytes_ -= at->second.bytes;
                at->second = block;
            }
            host_bytes_ += block.bytes;
            break;
        }
        case Kind::kHostReleased:
        case Kind::kHostUnregistered: {
            const auto found = host_.find(event.address.value);
            if (found == host_.end()) {
                if (event.address.value != 0) ++contradictions_.unknown_releases;
            } else {
                host_bytes_ -= found->second.bytes;
                host_.erase(found);
            }
            break;
        }
        case Kind::kReserved: {
            const Range range = range_of(event.address.value, event.bytes.value);
            if (reservations_.overlaps(range)) {
                ++contradictions_.overlapping_acquisitions;
                reservations_.cut(range, [](const auto&) {});
            }
            reservations_.insert(range, {});
            ever_reserved_.add(range);
            break;
        }
        case Kind::kReservationFreed: {
            bool found = false;
            reservations_.cut(range_of(event.address.value, event.bytes.value),
                              [&](const auto&) { found = true; });
            if (!found) ++contradictions_.unknown_releases;
            break;
        }
        case Kind::kHandleCreated:
        case Kind::kHandleImported: {
            Physical made;
            made.bytes = event.bytes.value;
            made.imported = event.kind == Kind::kHandleImported;
            made.on_device = !made.imported && wire::location_type(event.extra) == kLocationDevice;
            made.device = made.on_device ? wire::location_id(event.extra) : kNoDevice;
            made.references = 1;
            if (handles_.find(event.object) != nullptr) {
                // The driver gives no live handle value twice: the release of the older one is missing.
                ++contradictions_.overlapping_acquisitions;
                while (release_handle(event.object)) {
                }
            }
            if (made.on_device) {
                totals_[made.device].handles += made.bytes;
                std::uint64_t& largest = largest_created_[made.device];
                largest = std::max(largest, made.bytes);
            }
            handles_.add(event.object, physical_.add(std::move(made)));
            break;
        }
        case Kind::kHandleRetained:
            retain(event);
            break;
        case Kind::kHandleReleased:
            if (!release_handle(event.object)) ++contradictions_.unknown_releases;
            break;
        case Kind::kHandleExported: {
            const HandleTable::Named* named = handles_.find(event.object);
            Physical* physical = named == nullptr ? nullptr : physical_.find(named->physical);
            if (physical != nullptr) physical->exported = true;
            break;
        }
        case Kind::kMapped:
            map(event);
            break;
        case Kind::kUnmapped:
            unmap(event);
            break;
        case Kind::kAccessSet: {
            const Range range = range_of(event.address.value, event.bytes.value);
            auto& access = access_[event.object.value];
            access.cut(range, [](const auto&) {});
            access.insert(range, event.extra);
            break;
        }
        case Kind::kPoolCreated: {
            Pool pool;
            pool.on_device = wire::location_type(event.extra) == kLocationDevice;
            pool.device = pool.on_device ? wire::location_id(event.extra) : kNoDevice;
            if (event.bytes.value != 0) pool.maximum = event.bytes.value;
            pools_.insert_or_assign(event.object, pool);
            used_pools_ = true;
            break;
        }
        case Kind::kPoolDestroyed: {
            const auto found = pools_.find(event.object);
            if (found == pools_.end()) {
                ++contradictions_.unknown_releases;
            } else if (found->second.live_count == 0) {
                pools_.erase(found);
            } else {
                found->second.destroyed = true;
            }
            break;
        }
        case Kind::kPoolAttributeSet:
            // CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC and CU_MEMPOOL_ATTR_RELEASE_THRESHOLD of cuda.h.
            if (event.extra == 2) pools_[event.object].no_opportunistic_reuse = event.bytes.value == 0;
            if (event.extra == 4) pools_[event.object].threshold = event.bytes.value;
            break;
        case Kind::kPoolBound:
            bind_pool(event);
            break;
        case Kind::kPoolAcquired:
            acquire_from_pool(event);
            break;
        case Kind::kPoolReleased:
            if (event.has(wire::kCaptured)) {
                // A node of a graph: it frees at some launch, or never.
                if (PoolBlock* block = pool_blocks_.value_at(event.address.value))
                    block->maybe_captured = true;
            } else if (event.address.value != 0 && !release_address(event) &&
                       !event.has(wire::kCaptureUnknown)) {
                ++contradictions_.unknown_releases;
            }
            break;
        case Kind::kSynchronized:
            synchronized(event);
            break;
        case Kind::kContextCreated:
            created_contexts_[event.object] = event.device;
            break;
        case Kind::kContextDestroyed:
            destroy_context(event.object);
            break;
        case Kind::kPrimaryRetained: {
            Primary& primary = primary_[event.device];
            primary.context = event.object;
            ++primary.retained;
            break;
        }
        case Kind::kPrimaryReleased: {
            const auto found = primary_.find(event.device);
            if (found != primary_.end() && found->second.retained > 0 && --found->second.retained == 0) {
                destroy_context(found->second.context);
            }
            break;
        }
        case Kind::kPrimaryReset:
            reset_device(event.device);
            break;
        case Kind::kPoolState: {
            Pool& pool = pools_[event.object];
            if (pool.device == kNoDevice) pool.device = event.device;
            pool.threshold = event.extra;
            used_pools_ = true;
            break;
        }
        case Kind::kPoolHigh: {
            Pool& pool = pools_[event.object];
            if (pool.device == kNoDevice) pool.device = event.device;
            if (event.extra != 0) pool.maximum = event.extra;
            break;
        }
        case Kind::kTouched:
            touch(event);
            break;
        default:
            break;  // queries and environment: they change no memory
    }
}

std::uint64_t ProcessState::page(int device) const {
    const auto found = page_by_device_.find(device);
    return found == page_by_device_.end() || found->second == 0 ? kDefaultPage : found->second;
}

const DeviceTotals& ProcessState::totals(int device) const {
    static const DeviceTotals kNothing;
    const auto found = totals_.find(device);
    return found == totals_.end() ? kNothing : found->second;
}

ObjectId ProcessState::bound_pool(int device) const {
    const auto found = bound_.find(device);
    return found == bound_.end() ? ObjectId{} : found->second;
}

std::optional<std::uint64_t> ProcessState::access(std::uint64_t location, Address address) const {
    const auto found = access_.find(location);
    if (found == access_.end()) return std::nullopt;
    const auto extent = found->second.find(address.value);
    return extent ? std::optional(extent->value) : std::nullopt;
}

// --------------------------------------------------------------------------------------- linear blocks

void ProcessState::acquire_linear(const Event& event) {
    LinearBlock block;
    block.kind = event.kind;
    block.requested = event.bytes.value;
    block.granted = event.kind == Kind::kPitchAcquired && event.extra > event.bytes.value ? event.extra
                                                                                          : event.bytes.value;
    block.device = event.device;
    block.context = event.object;
    const Range range = range_of(event.address.value, block.granted);
    forget_block_at(range);
    if (!linear_.insert(range, block)) return;
    DeviceTotals& totals = totals_[block.device];
    if (block.kind == Kind::kManagedAcquired) {
        totals.managed += block.granted;
        return;
    }
    totals.linear_requested += block.requested;
    if (block.granted <= kPackedUpTo) {
        totals.linear_rounded += block.granted;
        ++totals.small_count;
    } else {
        totals.linear_rounded += round_up(block.granted, page(block.device));
    }
}

// The books drop a block that was removed from linear_.
void ProcessState::forget_linear(const LinearBlock& block) {
    DeviceTotals& totals = totals_[block.device];
    if (block.kind == Kind::kManagedAcquired) {
        totals.managed -= block.granted;
        return;
    }
    totals.linear_requested -= block.requested;
    if (block.granted <= kPackedUpTo) {
        totals.linear_rounded -= block.granted;
        --totals.small_count;
    } else {
        totals.linear_rounded -= round_up(block.granted, page(block.device));
    }
}

// An acquisition at an address that is not free: whatever was there has been released without a record.
void ProcessState::forget_block_at(const Range& range) {
    if (linear_.overlaps(range)) {
        ++contradictions_.overlapping_acquisitions;
        linear_.drop_overlapping(range, [&](const Range&, const LinearBlock& gone) { forget_linear(gone); });
    }
    if (pool_blocks_.overlaps(range)) {
        ++contradictions_.overlapping_acquisitions;
        pool_blocks_.drop_overlapping(
            range, [&](const Range& at, const PoolBlock& gone) { release_to_pool(at, gone, nullptr); });
    }
}

bool ProcessState::release_address(const Event& event) {
    if (auto block = linear_.take(event.address.value)) {
        forget_linear(block->value);
        return true;
    }
    if (auto block = pool_blocks_.take(event.address.value)) {
        release_to_pool(block->range, block->value, event.kind == Kind::kPoolReleased ? &event : nullptr);
        return true;
    }
    return false;
}

template <typename Owned>
void ProcessState::free_owned(Owned&& owned) {
    linear_.drop_if(
        [&](const Range&, const LinearBlock& block) { return owned(block.context, block.device); },
        [&](const Range&, const LinearBlock& gone) { forget_linear(gone); });
    for (auto at = host_.begin(); at != host_.end();) {
        if (!at->second.registered && owned(at->second.context, kNoDevice)) {
            host_bytes_ -= at->second.bytes;
            at = host_.erase(at);
        } else {
            ++at;
        }
    }
}

// Takes the context's linear, pitched, managed and page-locked memory with it; neither VMM handles nor pools.
void ProcessState::destroy_context(ObjectId context) {
    free_owned([&](ObjectId owner, int) { return owner == context; });
    created_contexts_.erase(context);
}

void ProcessState::reset_device(int device) {
    const auto found = primary_.find(device);
    const ObjectId primary = found == primary_.end() ? ObjectId{} : found->second.context;
    free_owned([&](ObjectId owner, int on) {
        if (primary.value != 0 && owner == primary) return true;
        return primary.value == 0 && on == device && !created_contexts_.contains(owner);
    });
}

std::size_t ProcessState::contexts(int device) const {
    auto count = static_cast<std::size_t>(
        std::count_if(created_contexts_.begin(), created_contexts_.end(),
                      [&](const auto& context) { return context.second == device; }));
    const auto primary = primary_.find(device);
    if (primary != primary_.end() && primary->second.retained != 0) ++count;
    return count;
}

std::uint64_t ProcessState::largest_created(int device) const {
    const auto found = largest_created_.find(device);
    return found == largest_created_.end() ? 0 : found->second;
}

// -------------------------------------------------------------------------------------- virtual memory

void ProcessState::retain(const Event& event) {
    PhysicalId id = 0;
    HandleTable::Named* named = handles_.find(event.object);
    if (const auto mapping = mappings_.find(event.address.value)) {
        id = mapping->value.physical;
    } else if (named != nullptr) {
        id = named->physical;
    }
    Physical* physical = physical_.find(id);
    if (physical == nullptr) {
        ++contradictions_.unknown_handles;
        return;
    }
    if (named != nullptr && named->physical != id) {
        // The value stood for something else until now: its releases are missing.
        ++contradictions_.overlapping_acquisitions;
        while (release_handle(event.object)) {
        }
        named = nullptr;
    }
    ++physical->references;
    if (named != nullptr) {
        ++named->count;
    } else {
        handles_.add(event.object, id);
    }
}

// One reference less; false if the handle is not known.
bool ProcessState::release_handle(ObjectId handle) {
    HandleTable::Named* named = handles_.find(handle);
    if (named == nullptr) return false;
    const PhysicalId id = named->physical;
    if (named->count == 1) {
        handles_.erase(handle);
    } else {
        --named->count;
    }
    if (Physical* physical = physical_.find(id)) {
        if (physical->references > 0) --physical->references;
        drop_if_unused(id, *physical);
    }
    return true;
}

void ProcessState::drop_if_unused(PhysicalId id, const Physical& physical) {
    if (physical.references != 0 || physical.mapped_bytes != 0) return;
    if (physical.on_device) totals_[physical.device].handles -= physical.bytes;
    physical_.erase(id);
}

void ProcessState::map(const Event& event) {
    const HandleTable::Named* named = handles_.find(event.object);
    if (named == nullptr) {
        ++contradictions_.unknown_handles;
        return;
    }
    const PhysicalId id = named->physical;
    const Range range = range_of(event.address.value, event.bytes.value);
    if (mappings_.overlaps(range)) {
        ++contradictions_.overlapping_acquisitions;
        unmap(event);
    }
    Physical* physical = physical_.find(id);
    if (physical == nullptr || !mappings_.insert(range, {id, range.begin, event.extra})) return;
    physical->mapped_bytes += range.size();
    if (physical->on_device) totals_[physical->device].mapped += range.size();
}

void ProcessState::unmap(const Event& event) {
    const Range range = range_of(event.address.value, event.bytes.value);
    bool found = false;
    mappings_.cut(range, [&](const auto& part) {
        found = true;
        Physical* physical = physical_.find(part.value.physical);
        if (physical == nullptr) return;
        physical->mapped_bytes -= part.removed.size();
        if (physical->on_device) totals_[physical->device].mapped -= part.removed.size();
        drop_if_unused(part.value.physical, *physical);
    });
    if (!found) ++contradictions_.unknown_releases;
    for (auto& [location, access] : access_) access.cut(range, [](const auto&) {});
}

void ProcessState::touch(const Event& event) {
    const Range written = range_of(event.address.value, event.bytes.value);
    mappings_.for_each_in(written, [&](const Range& range, const Mapping& mapping) {
        const std::uint64_t begin = std::max(range.begin, written.begin);
        const std::uint64_t end = std::min(range.end, written.end);
        Physical* physical = physical_.find(mapping.physical);
        if (physical == nullptr) return;
        physical->touched.add(range_of(begin - mapping.begin + mapping.offset, end - begin));
        touched_mapped_memory_ = true;
    });
}

// ----------------------------------------------------------------------------------------------- pools

void ProcessState::acquire_from_pool(const Event& event) {
    used_pools_ = true;
    if (event.has(wire::kCaptured) || event.has(wire::kCaptureUnknown)) ++captured_;
    if (event.has(wire::kCaptured)) return;
    PoolBlock block;
    block.requested = event.bytes.value;
    block.pool = event.object.value != 0 ? event.object : bound_pool(event.device);
    block.device = event.device;
    block.stream = ObjectId{event.extra};
    block.maybe_captured = event.has(wire::kCaptureUnknown);
    const Range range = range_of(event.address.value, std::max<std::uint64_t>(block.requested, 1));
    forget_block_at(range);
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

void ProcessState::release_to_pool(const Range& range, const PoolBlock& block, const Event* asked) {
    totals_[block.device].pool_live -= block.requested;
    if (asked != nullptr) {
        // A synchronisation tells NULL by what it meant; a free gives the stream as it was passed.
        const std::uint64_t null = asked->has(wire::kPerThreadStream) ? kPerThread : kLegacy;
        const ObjectId stream{asked->extra == 0 ? null : asked->extra};
        pending_.drop_overlapping(range, [](const Range&, const PendingFree&) {});
        pending_.insert(range, {block.requested, block.pool, block.device, stream, asked->thread});
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
    if (!first) return;
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
