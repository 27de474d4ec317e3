// Which kinds of records take device memory and which may give memory or address space back.
#pragma once

#include "proto/wire.h"

namespace fragscope::analysis {

// A success takes memory of a device.
constexpr bool acquires(wire::Kind kind) {
    using wire::Kind;
    return kind == Kind::kLinearAcquired || kind == Kind::kPitchAcquired || kind == Kind::kManagedAcquired ||
           kind == Kind::kHandleCreated || kind == Kind::kPoolAcquired || kind == Kind::kArrayCreated ||
           kind == Kind::kContextCreated || kind == Kind::kPrimaryRetained;
}

// A success may take memory of a device of an amount that no call states: it is in what no record explains.
constexpr bool takes_unstated(wire::Kind kind) {
    using wire::Kind;
    return kind == Kind::kContextCreated || kind == Kind::kPrimaryRetained || kind == Kind::kModuleLoaded ||
           kind == Kind::kGraphInstantiated || kind == Kind::kGraphLaunched || kind == Kind::kLimitSet ||
           kind == Kind::kPeerAccessSet || kind == Kind::kStreamCreated ||
           kind == Kind::kGreenContextCreated || kind == Kind::kHostRegistered ||
           kind == Kind::kExternalImported || kind == Kind::kGraphicsMapped || kind == Kind::kArrayCreated ||
           kind == Kind::kMulticastCreated;
}

// After it there may be more memory or address space than before. A synchronisation lets frees take effect,
// and a pool's changed threshold returns chunks.
constexpr bool releases(wire::Kind kind) {
    using wire::Kind;
    switch (kind) {
        case Kind::kLinearReleased:
        case Kind::kHandleReleased:
        case Kind::kUnmapped:
        case Kind::kReservationFreed:
        case Kind::kPoolReleased:
        case Kind::kPoolTrimmed:
        case Kind::kPoolDestroyed:
        case Kind::kPoolAttributeSet:
        case Kind::kContextDestroyed:
        case Kind::kPrimaryReleased:
        case Kind::kPrimaryReset:
        case Kind::kSynchronized:
        case Kind::kArrayReleased:
        case Kind::kArrayMapped:
        case Kind::kIpcClosed:
        case Kind::kExternalReleased:
        case Kind::kGraphicsUnmapped:
        case Kind::kGraphicsReleased:
        case Kind::kMulticastUnbound:
        case Kind::kGraphExecReleased:
        case Kind::kGraphReleased:
        case Kind::kGraphMemoryTrimmed:
        case Kind::kModuleUnloaded:
        case Kind::kLimitSet:
        case Kind::kPeerAccessSet:
        case Kind::kStreamDestroyed:
        case Kind::kGreenContextDestroyed:
        case Kind::kCheckpoint:
            return true;
        default:
            return false;
    }
}

}  // namespace fragscope::analysis
