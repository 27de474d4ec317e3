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
