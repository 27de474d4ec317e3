// What each kind of record does to the state: one row for every kind, so that a new one cannot be forgotten
// (the compiler asks for it).
#include "analysis/state.h"

#include <algorithm>
#include <utility>

namespace fragscope::analysis {

using wire::Kind;

ProcessState::ProcessState(std::map<int, std::uint64_t> page_by_device, std::int64_t pid)
    : page_by_device_(std::move(page_by_device)), pid_(pid) {}

void ProcessState::apply(const Event& event) {
    if (event.failed()) return;
    switch (event.kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kManagedAcquired:
            return acquire_linear(event);
        case Kind::kLinearReleased:
            return release_address(event);
        case Kind::kHostAcquired:
        case Kind::kHostRegistered:
            return acquire_host(event);
        case Kind::kHostReleased:
        case Kind::kHostUnregistered:
            return release_host(event);

        case Kind::kReserved:
            return reserve(event);
        case Kind::kReservationFreed:
            return free_reservation(event);
        case Kind::kHandleCreated:
        case Kind::kHandleImported:
        case Kind::kMulticastCreated:
            return add_handle(event);
        case Kind::kHandleRetained:
            return retain(event);
        case Kind::kHandleReleased:
            if (!release_handle(event.object)) ++contradictions_.unknown_releases;
            return;
        case Kind::kHandleExported:
            if (Physical* physical = physical_of(event.object)) export_physical(*physical);
            return;
        case Kind::kMapped:
            return map(event);
        case Kind::kUnmapped:
            return unmap(event);
        case Kind::kAccessSet:
            return set_access(event);
        case Kind::kTouched:
            return touch(event);
        case Kind::kMulticastBound:
            return bind_multicast(event);

        case Kind::kPoolCreated:
            return create_pool(event);
        case Kind::kPoolDestroyed:
            return destroy_pool(event);
        case Kind::kPoolAttributeSet:
            return set_pool_attribute(event);
        case Kind::kPoolBound:
            return bind_pool(event);
        case Kind::kPoolAcquired:
            return acquire_from_pool(event);
        case Kind::kPoolReleased:
            return free_in_stream_order(event);
        case Kind::kSynchronized:
            return synchronized(event);
        case Kind::kPoolState:
        case Kind::kPoolHigh:
            return pool_said(event);
        case Kind::kPoolExported:
            if (const auto pool = pools_.find(event.object); pool != pools_.end())
                pool->second.exported = true;
            return;
        case Kind::kPoolImported:
            pools_[event.object].imported = true;
            return;

        case Kind::kArrayCreated:
            return create_array(event);
        case Kind::kArrayReleased:
            return release_array(event);
        case Kind::kArrayAliased:
            return arrays_.alias(event.object, ObjectId{event.address.value});
        case Kind::kArrayMapped:
            return map_array(event);

        case Kind::kIpcExported:
            if (const auto block = linear_.find(event.address.value)) {
                ipc_exports_.add(event.extra, block->range.begin, block->value.granted, block->value.device);
            }
            return export_range(range_of(event.address.value, 1));
        case Kind::kPoolPointerExported:
            return export_range(range_of(event.address.value, 1));
        case Kind::kRangeExported:
            return export_range(range_of(event.address.value, event.bytes.value));
        case Kind::kIpcOpened:
            return foreign_.open(event.address.value,
                                 {ForeignKind::kIpc, 0, event.object, event.extra, 0, event.device});
        case Kind::kIpcClosed:
            if (!foreign_.close(event.address.value, ForeignKind::kIpc)) ++contradictions_.unknown_releases;
            return;
        case Kind::kPoolPointerImported:
            return foreign_.open(event.address.value,
                                 {ForeignKind::kPoolPointer, 0, event.object, event.extra, 0, event.device});
        case Kind::kExternalImported:
            return foreign_.import_external(event.object, event.bytes.value);
        case Kind::kExternalMapped:
            return foreign_.open(event.address.value, {ForeignKind::kExternal, event.bytes.value,
                                                       event.object, 0, 0, event.device});
        case Kind::kExternalReleased:
            if (!foreign_.release_external(event.object)) ++contradictions_.unknown_releases;
            return;
        case Kind::kGraphicsPointer:
            return foreign_.open(event.address.value, {ForeignKind::kGraphics, event.bytes.value,
                                                       event.object, 0, 0, event.device});
        case Kind::kGraphicsUnmapped:
        case Kind::kGraphicsReleased:
            return foreign_.unmap_graphics(event.object);

        case Kind::kGraphAllocNode:
            return graphs_.add_node(event, event.object);
        case Kind::kGraphInstantiated:
            return graphs_.instantiate(event.object, ObjectId{event.extra});
        case Kind::kGraphExecReleased:
            return graphs_.release_executable(event.object);
        case Kind::kGraphReleased:
            return graphs_.release_graph(event.object);
        case Kind::kGraphMemory:
            if (event.bytes.value != 0 || event.extra != 0) graphs_.note_use();
            return;

        case Kind::kContextCreated:
            created_contexts_[event.object] = event.device;
            return;
        case Kind::kContextDestroyed:
            return destroy_context(event.object);
        case Kind::kPrimaryRetained: {
            Primary& primary = primary_[event.device];
            primary.context = event.object;
            ++primary.retained;
            return;
        }
        case Kind::kPrimaryReleased:
            return release_primary(event);
        case Kind::kPrimaryReset:
            return reset_device(event.device);
        case Kind::kModuleLoaded:
            modules_[event.object] = ObjectId{event.extra};
            return;
        case Kind::kModuleUnloaded:
            modules_.erase(event.object);
            return;
        case Kind::kCheckpoint:
            if (event.object.value != 0 && pid_ != 0 &&
                event.object.value != static_cast<std::uint64_t>(pid_))
                return;
            if (event.address.value == kCheckpointTaken) checkpointed_ = true;
            if (event.address.value == kCheckpointRestored) checkpointed_ = false;
            return;

        // What these change has no bytes that any call states: its share is in what no record explains. When
        // they came is told by balance.h.
        case Kind::kLimitSet:
        case Kind::kPeerAccessSet:
        case Kind::kStreamCreated:
        case Kind::kStreamDestroyed:
        case Kind::kGreenContextCreated:
        case Kind::kGreenContextDestroyed:
        case Kind::kGraphLaunched:
        case Kind::kGraphMemoryTrimmed:
        // A node that frees at some launch, or never.
        case Kind::kGraphFreeNode:
        // A pool keeps what it is told to keep; what it gave back, its next kPoolState tells.
        case Kind::kPoolTrimmed:
        case Kind::kPoolAccessSet:
        // No memory of their own, and nothing that holds any.
        case Kind::kMulticastDeviceAdded:
        case Kind::kMulticastUnbound:  // the call names no memory: what was bound stays "maybe held"
        case Kind::kGraphicsMapped:
        case Kind::kGlobalFound:  // in its module's memory, or managed
        // Managed pages move; where to, no record says.
        case Kind::kAdvised:
        // The program's own words, and the shim's.
        case Kind::kMark:
        case Kind::kRangeBegun:
        case Kind::kRangeEnded:
        case Kind::kText:
        case Kind::kCalled:
        // A layer of its own (framework blocks), or said once more (CUPTI).
        case Kind::kBlockAcquired:
        case Kind::kBlockReleased:
        case Kind::kBlockRefused:
        case Kind::kBlockWaits:
        case Kind::kBlockWaitOver:
        case Kind::kBlockStream:
        case Kind::kBlockSegment:
        case Kind::kActivityAcquired:
        case Kind::kActivityReleased:
        case Kind::kActivityPlace:
        case Kind::kActivityPool:
        case Kind::kActivityPoolKeeps:
        case Kind::kActivityUnified:
        case Kind::kActivityLost:
        case Kind::kActivityState:
        // Tried and undone.
        case Kind::kProbe:
        case Kind::kProbesEnded:
        // The driver's word, and what was found out about it.
        case Kind::kDeviceMemory:
        case Kind::kSampleEnd:
        case Kind::kFailureSnapshotEnd:
        case Kind::kDevice:
        case Kind::kDeviceGranularity:
        case Kind::kDeviceAttribute:
        case Kind::kDriver:
        case Kind::kHookMissing:
        case Kind::kEnvironmentComplete:
        case Kind::kNone:
            return;
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

}  // namespace fragscope::analysis
