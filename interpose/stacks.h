// Call stacks by number: where in the program a driver function was called, and which function of the runtime
// interface the program had called for it. A stack has the same number for all threads and, after a fork, in
// the child; the collector is told it once by each attachment, ahead of the first record that names it.
#pragma once

#include <cstdint>

#include "proto/wire.h"

namespace fragscope::interpose {

// Different stacks over the life of a process. Further ones have number 0 and are counted as lost texts.
inline constexpr std::uint32_t kMaxStacks = 1u << 20;

// Records of this kind say by `bytes` how much memory was taken, or address space.
constexpr bool takes_bytes(wire::Kind kind) {
    using wire::Kind;
    switch (kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kManagedAcquired:
        case Kind::kHostAcquired:
        case Kind::kHostRegistered:
        case Kind::kReserved:
        case Kind::kHandleCreated:
        case Kind::kMapped:
        case Kind::kPoolAcquired:
        case Kind::kArrayCreated:
        case Kind::kArrayMapped:
        case Kind::kExternalImported:
        case Kind::kMulticastCreated:
        case Kind::kMulticastBound:
        case Kind::kGraphAllocNode:
        case Kind::kModuleLoaded:
            return true;
        default:
            return false;
    }
}
// What such calls want is memory, though their records do not say how much.
constexpr bool takes_memory(wire::Kind kind) {
    using wire::Kind;
    switch (kind) {
        case Kind::kHandleRetained:
        case Kind::kHandleImported:
        case Kind::kPoolCreated:
        case Kind::kPoolImported:
        case Kind::kPoolPointerImported:
        case Kind::kContextCreated:
        case Kind::kPrimaryRetained:
        case Kind::kGreenContextCreated:
        case Kind::kStreamCreated:
        case Kind::kArrayAliased:
        case Kind::kIpcOpened:
        case Kind::kExternalMapped:
        case Kind::kGraphicsMapped:
        case Kind::kGraphInstantiated:
        case Kind::kGraphLaunched:
        case Kind::kLimitSet:
        case Kind::kAccessSet:
            return true;
        default:
            return takes_bytes(kind);
    }
}

// The number of the stack of the calling thread, which is inside of a wrapper that returns to `caller`, told
// to the collector; 0: nothing is known. `deep` false: only the function of the runtime interface is wanted.
std::uint32_t call_stack(const void* caller, bool deep);

}  // namespace fragscope::interpose
