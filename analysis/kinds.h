// Which kinds of records take device memory and which may give memory or address space back.
#pragma once

#include "proto/wire.h"

namespace fragscope::analysis {

// A success takes memory of a device.
constexpr bool acquires(wire::Kind kind) {
    using wire::Kind;
    return kind == Kind::kLinearAcquired || kind == Kind::kPitchAcquired || kind == Kind::kManagedAcquired ||
           kind == Kind::kHandleCreated || kind == Kind::kPoolAcquired || kind == Kind::kContextCreated ||
           kind == Kind::kPrimaryRetained;
}

// After it there may be more memory or address space than before. A synchronisation lets frees take effect,
// and a pool's changed threshold returns chunks.
constexpr bool releases(wire::Kind kind) {
    using wire::Kind;
    return kind == Kind::kLinearReleased || kind == Kind::kHandleReleased || kind == Kind::kUnmapped ||
           kind == Kind::kPoolReleased || kind == Kind::kPoolTrimmed || kind == Kind::kPoolDestroyed ||
           kind == Kind::kContextDestroyed || kind == Kind::kPrimaryReleased || kind == Kind::kPrimaryReset ||
           kind == Kind::kSynchronized || kind == Kind::kReservationFreed || kind == Kind::kPoolAttributeSet;
}

}  // namespace fragscope::analysis
