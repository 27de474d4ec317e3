#include "analysis/read/kind_name.h"

#include <algorithm>
#include <array>

namespace fragscope::analysis {

namespace {

using wire::Kind;

constexpr KindName kUnknown{Kind::kNone, "unknown", "unknown"};

constexpr std::array kNames{
    KindName{Kind::kLinearAcquired, "linear_acquired", "device memory allocated"},
    KindName{Kind::kPitchAcquired, "pitch_acquired", "pitched device memory allocated"},
    KindName{Kind::kManagedAcquired, "managed_acquired", "managed memory allocated"},
    KindName{Kind::kLinearReleased, "linear_released", "device memory freed"},
    KindName{Kind::kHostAcquired, "host_acquired", "page-locked host memory allocated"},
    KindName{Kind::kHostReleased, "host_released", "page-locked host memory freed"},
    KindName{Kind::kHostRegistered, "host_registered", "host memory page-locked"},
    KindName{Kind::kHostUnregistered, "host_unregistered", "host memory unlocked"},
    KindName{Kind::kReserved, "reserved", "address range reserved"},
    KindName{Kind::kReservationFreed, "reservation_freed", "address range given back"},
    KindName{Kind::kHandleCreated, "handle_created", "physical handle created"},
    KindName{Kind::kHandleReleased, "handle_released", "physical handle released"},
    KindName{Kind::kHandleRetained, "handle_retained", "physical handle retained"},
    KindName{Kind::kHandleExported, "handle_exported", "physical handle exported"},
    KindName{Kind::kHandleImported, "handle_imported", "physical handle imported"},
    KindName{Kind::kMapped, "mapped", "handle mapped to addresses"},
    KindName{Kind::kUnmapped, "unmapped", "addresses unmapped"},
    KindName{Kind::kAccessSet, "access_set", "access to addresses set"},
    KindName{Kind::kPoolCreated, "pool_created", "memory pool created"},
    KindName{Kind::kPoolDestroyed, "pool_destroyed", "memory pool destroyed"},
    KindName{Kind::kPoolTrimmed, "pool_trimmed", "memory pool trimmed"},
    KindName{Kind::kPoolAttributeSet, "pool_attribute_set", "memory pool attribute set"},
    KindName{Kind::kPoolBound, "pool_bound", "memory pool is the device's current one"},
    KindName{Kind::kPoolAcquired, "pool_acquired", "stream-ordered memory allocated"},
    KindName{Kind::kPoolReleased, "pool_released", "stream-ordered memory freed"},
    KindName{Kind::kSynchronized, "synchronized", "stream or context synchronized"},
    KindName{Kind::kContextCreated, "context_created", "context created"},
    KindName{Kind::kContextDestroyed, "context_destroyed", "context destroyed"},
    KindName{Kind::kPrimaryRetained, "primary_retained", "primary context retained"},
    KindName{Kind::kPrimaryReleased, "primary_released", "primary context released"},
    KindName{Kind::kPrimaryReset, "primary_reset", "primary context reset"},
    KindName{Kind::kDeviceMemory, "device_memory", "device memory as the driver states it"},
    KindName{Kind::kPoolState, "pool_state", "memory pool as the driver states it"},
    KindName{Kind::kPoolHigh, "pool_high", "memory pool's highest values as the driver states them"},
    KindName{Kind::kDevice, "device", "device found"},
    KindName{Kind::kDeviceGranularity, "device_granularity", "device's granularities"},
    KindName{Kind::kDeviceAttribute, "device_attribute", "device attribute"},
    KindName{Kind::kDriver, "driver", "driver found"},
    KindName{Kind::kHookMissing, "hook_missing", "function that the driver lacks"},
    KindName{Kind::kEnvironmentComplete, "environment_complete", "environment described"},
    KindName{Kind::kText, "text", "name"},
    KindName{Kind::kTouched, "touched", "memory first written by a copy or memset"},
    KindName{Kind::kFailureSnapshotEnd, "failure_snapshot_end", "state after a failed call described"},
    KindName{Kind::kCalled, "called", "called"},
    KindName{Kind::kArrayCreated, "array_created", "array created"},
    KindName{Kind::kArrayReleased, "array_released", "array destroyed"},
    KindName{Kind::kArrayAliased, "array_aliased", "second name for an array"},
    KindName{Kind::kArrayMapped, "array_mapped", "memory put behind a part of an array"},
    KindName{Kind::kIpcExported, "ipc_exported", "memory offered to other processes"},
    KindName{Kind::kIpcOpened, "ipc_opened", "memory of another process opened"},
    KindName{Kind::kIpcClosed, "ipc_closed", "memory of another process closed"},
    KindName{Kind::kRangeExported, "range_exported", "addresses exported"},
    KindName{Kind::kPoolExported, "pool_exported", "memory pool exported"},
    KindName{Kind::kPoolImported, "pool_imported", "memory pool imported"},
    KindName{Kind::kPoolPointerExported, "pool_pointer_exported", "pool allocation offered to other processes"},
    KindName{Kind::kPoolPointerImported, "pool_pointer_imported", "pool allocation of another process opened"},
    KindName{Kind::kPoolAccessSet, "pool_access_set", "access to a memory pool set"},
    KindName{Kind::kExternalImported, "external_imported", "external memory imported"},
    KindName{Kind::kExternalMapped, "external_mapped", "external memory mapped"},
    KindName{Kind::kExternalReleased, "external_released", "external memory released"},
    KindName{Kind::kGraphicsMapped, "graphics_mapped", "graphics resource mapped"},
    KindName{Kind::kGraphicsUnmapped, "graphics_unmapped", "graphics resource unmapped"},
    KindName{Kind::kGraphicsPointer, "graphics_pointer", "address of a graphics resource"},
    KindName{Kind::kGraphicsReleased, "graphics_released", "graphics resource unregistered"},
    KindName{Kind::kMulticastCreated, "multicast_created", "multicast object created"},
    KindName{Kind::kMulticastDeviceAdded, "multicast_device_added", "device added to a multicast object"},
    KindName{Kind::kMulticastBound, "multicast_bound", "memory bound to a multicast object"},
    KindName{Kind::kMulticastUnbound, "multicast_unbound", "memory unbound from a multicast object"},
    KindName{Kind::kGraphAllocNode, "graph_alloc_node", "allocation node added to a graph"},
    KindName{Kind::kGraphFreeNode, "graph_free_node", "freeing node added to a graph"},
    KindName{Kind::kGraphInstantiated, "graph_instantiated", "graph instantiated"},
    KindName{Kind::kGraphLaunched, "graph_launched", "graph launched"},
    KindName{Kind::kGraphExecReleased, "graph_exec_released", "executable graph destroyed"},
    KindName{Kind::kGraphReleased, "graph_released", "graph destroyed"},
    KindName{Kind::kGraphMemoryTrimmed, "graph_memory_trimmed", "graph memory trimmed"},
    KindName{Kind::kGraphMemory, "graph_memory", "graph memory as the driver states it"},
    KindName{Kind::kModuleLoaded, "module_loaded", "device code loaded"},
    KindName{Kind::kModuleUnloaded, "module_unloaded", "device code unloaded"},
    KindName{Kind::kGlobalFound, "global_found", "address of a device variable"},
    KindName{Kind::kLimitSet, "limit_set", "context limit set"},
    KindName{Kind::kPeerAccessSet, "peer_access_set", "peer access switched"},
    KindName{Kind::kStreamCreated, "stream_created", "stream created"},
    KindName{Kind::kStreamDestroyed, "stream_destroyed", "stream destroyed"},
    KindName{Kind::kGreenContextCreated, "green_context_created", "green context created"},
    KindName{Kind::kGreenContextDestroyed, "green_context_destroyed", "green context destroyed"},
    KindName{Kind::kCheckpoint, "checkpoint", "process checkpoint step"},
    KindName{Kind::kAdvised, "advised", "placement of managed memory advised"},
    KindName{Kind::kMark, "mark", "mark"},
    KindName{Kind::kRangeBegun, "range_begun", "range begun"},
    KindName{Kind::kRangeEnded, "range_ended", "range ended"},
    KindName{Kind::kProbe, "probe", "allocation tried by the recorder after a failure, and undone"},
    KindName{Kind::kProbesEnded, "probes_ended", "trials after a failure ended"},
    KindName{Kind::kSampleEnd, "sample_end", "sample of the driver's numbers complete"},
    KindName{Kind::kBlockAcquired, "block_acquired", "framework block handed out"},
    KindName{Kind::kBlockReleased, "block_released", "framework block taken back"},
    KindName{Kind::kBlockRefused, "block_refused", "framework allocator ran out of memory"},
    KindName{Kind::kBlockWaits, "block_waits", "framework block to wait for an event"},
    KindName{Kind::kBlockWaitOver, "block_wait_over", "event that a framework block waited for has happened"},
    KindName{Kind::kBlockStream, "block_stream", "stream of the framework blocks that follow"},
    KindName{Kind::kActivityAcquired, "activity_acquired", "CUPTI: memory allocated"},
    KindName{Kind::kActivityReleased, "activity_released", "CUPTI: memory freed"},
    KindName{Kind::kActivityPlace, "activity_place", "CUPTI: where the operation came from"},
    KindName{Kind::kActivityPool, "activity_pool", "CUPTI: memory pool changed"},
    KindName{Kind::kActivityPoolKeeps, "activity_pool_keeps", "CUPTI: what the memory pool keeps"},
    KindName{Kind::kActivityUnified, "activity_unified", "CUPTI: unified memory counter"},
    KindName{Kind::kActivityLost, "activity_lost", "CUPTI: records dropped"},
    KindName{Kind::kActivityState, "activity_state", "use of CUPTI"},
    KindName{Kind::kBlockSegment, "block_segment", "segment of a framework's allocator, as it tells of it"},
};

}  // namespace

const KindName& kind_name(wire::Kind kind) {
    const auto found =
        std::find_if(kNames.begin(), kNames.end(), [&](const KindName& n) { return n.kind == kind; });
    return found != kNames.end() ? *found : kUnknown;
}

std::optional<wire::Kind> kind_from_id(std::string_view id) {
    const auto found =
        std::find_if(kNames.begin(), kNames.end(), [&](const KindName& n) { return n.id == id; });
    if (found == kNames.end()) return std::nullopt;
    return found->kind;
}

}  // namespace fragscope::analysis
