// Every kind of record is handled on purpose: what it does to the books of a device stands in one table here,
// from the payload's meaning in proto/wire.h and the driver's documentation of the call.
#include "analysis/kinds.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>

#include "analysis/charged.h"
#include "analysis/read/kind_name.h"
#include "analysis/state.h"
#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

enum class Does { kNothing, kTakes, kGivesBack };

struct Row {
    Kind kind;
    Does does;  // applied to the state of `held()`
};

// Addresses and handles of what `held` holds.
constexpr std::uint64_t kLinearAt = 0x10000000;
constexpr std::uint64_t kMappedAt = 0x40000000;
constexpr std::uint64_t kPooledAt = 0x60000000;
constexpr std::uint64_t kNowhere = 0x70000000;
constexpr std::uint64_t kHandle = 5;
constexpr std::uint64_t kUnmappedHandle = 6;
constexpr std::uint64_t kArray = 0xa0;
constexpr std::uint64_t kPool = 0xb00;

Event made(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object, std::uint64_t extra) {
    Event event;
    event.kind = kind;
    event.device = 0;
    event.address = {address};
    event.bytes = {bytes};
    event.object = {object};
    event.extra = extra;
    return event;
}

ProcessState held() {
    ProcessState state({{0, 2 * kMiB}});
    state.apply(made(Kind::kPrimaryRetained, 0, 0, kContext, 0));
    state.apply(made(Kind::kLinearAcquired, kLinearAt, 3 * kMiB, kContext, 0));
    state.apply(made(Kind::kHandleCreated, 0, 2 * kMiB, kHandle, wire::pack_location(1, 0, 0)));
    state.apply(made(Kind::kMapped, kMappedAt, 2 * kMiB, kHandle, 0));
    state.apply(made(Kind::kHandleReleased, 0, 0, kHandle, 0));
    state.apply(made(Kind::kHandleCreated, 0, 2 * kMiB, kUnmappedHandle, wire::pack_location(1, 0, 0)));
    state.apply(made(Kind::kArrayCreated, kContext, kMiB, kArray, 0));
    state.apply(made(Kind::kPoolAcquired, kPooledAt, kMiB, kPool, 7));
    return state;
}

// The record of this kind that touches what is held, if any does.
Event touching(Kind kind) {
    switch (kind) {
        case Kind::kLinearReleased:
            return made(kind, kLinearAt, 0, kContext, 0);
        case Kind::kPoolReleased:
            return made(kind, kPooledAt, 0, 0, 7);
        case Kind::kHandleReleased:
            return made(kind, 0, 0, kUnmappedHandle, 0);
        case Kind::kUnmapped:
            return made(kind, kMappedAt, 2 * kMiB, 0, 0);
        case Kind::kArrayReleased:
            return made(kind, 0, 0, kArray, 0);
        case Kind::kArrayCreated:
            return made(kind, kContext, kMiB, kArray + 1, 0);
        case Kind::kContextDestroyed:
            return made(kind, 0, 0, kContext, 0);
        case Kind::kHandleCreated:
            return made(kind, 0, 2 * kMiB, 77, wire::pack_location(1, 0, 0));
        case Kind::kPoolAcquired:
            return made(kind, kNowhere, kMiB, kPool, 7);
        case Kind::kCheckpoint:
            return made(kind, 2, 0, 0, 0);
        default:
            return made(kind, kNowhere, kMiB, 0x99, 0);
    }
}

// In the order of wire::Kind.
constexpr std::array kRows = {
    Row{Kind::kLinearAcquired, Does::kTakes},
    Row{Kind::kPitchAcquired, Does::kTakes},
    Row{Kind::kManagedAcquired, Does::kTakes},  // at most
    Row{Kind::kLinearReleased, Does::kGivesBack},
    Row{Kind::kHostAcquired, Does::kNothing},
    Row{Kind::kHostReleased, Does::kNothing},
    Row{Kind::kHostRegistered, Does::kNothing},
    Row{Kind::kHostUnregistered, Does::kNothing},
    Row{Kind::kReserved, Does::kNothing},
    Row{Kind::kReservationFreed, Does::kNothing},
    Row{Kind::kHandleCreated, Does::kTakes},
    Row{Kind::kHandleReleased, Does::kGivesBack},
    Row{Kind::kHandleRetained, Does::kNothing},
    Row{Kind::kHandleExported, Does::kNothing},
    Row{Kind::kHandleImported, Does::kNothing},
    Row{Kind::kMapped, Does::kNothing},
    Row{Kind::kUnmapped, Does::kGivesBack},  // its handle was released before
    Row{Kind::kAccessSet, Does::kNothing},
    Row{Kind::kPoolCreated, Does::kNothing},
    Row{Kind::kPoolDestroyed, Does::kNothing},
    Row{Kind::kPoolTrimmed, Does::kNothing},
    Row{Kind::kPoolAttributeSet, Does::kNothing},
    Row{Kind::kPoolBound, Does::kNothing},
    Row{Kind::kPoolAcquired, Does::kTakes},
    Row{Kind::kPoolReleased, Does::kGivesBack},
    Row{Kind::kSynchronized, Does::kNothing},
    Row{Kind::kContextCreated, Does::kNothing},
    Row{Kind::kContextDestroyed, Does::kGivesBack},
    Row{Kind::kPrimaryRetained, Does::kNothing},
    Row{Kind::kPrimaryReleased, Does::kGivesBack},
    Row{Kind::kPrimaryReset, Does::kGivesBack},
    Row{Kind::kDeviceMemory, Does::kNothing},
    Row{Kind::kPoolState, Does::kNothing},
    Row{Kind::kPoolHigh, Does::kNothing},
    Row{Kind::kDevice, Does::kNothing},
    Row{Kind::kDeviceGranularity, Does::kNothing},
    Row{Kind::kDeviceAttribute, Does::kNothing},
    Row{Kind::kDriver, Does::kNothing},
    Row{Kind::kHookMissing, Does::kNothing},
    Row{Kind::kEnvironmentComplete, Does::kNothing},
    Row{Kind::kText, Does::kNothing},
    Row{Kind::kTouched, Does::kNothing},
    Row{Kind::kFailureSnapshotEnd, Does::kNothing},
    Row{Kind::kCalled, Does::kNothing},
    Row{Kind::kArrayCreated, Does::kTakes},
    Row{Kind::kArrayReleased, Does::kGivesBack},
    Row{Kind::kArrayAliased, Does::kNothing},
    Row{Kind::kArrayMapped, Does::kNothing},
    Row{Kind::kIpcExported, Does::kNothing},
    Row{Kind::kIpcOpened, Does::kNothing},
    Row{Kind::kIpcClosed, Does::kNothing},
    Row{Kind::kRangeExported, Does::kNothing},
    Row{Kind::kPoolExported, Does::kNothing},
    Row{Kind::kPoolImported, Does::kNothing},
    Row{Kind::kPoolPointerExported, Does::kNothing},
    Row{Kind::kPoolPointerImported, Does::kNothing},
    Row{Kind::kPoolAccessSet, Does::kNothing},
    Row{Kind::kExternalImported, Does::kNothing},
    Row{Kind::kExternalMapped, Does::kNothing},
    Row{Kind::kExternalReleased, Does::kNothing},
    Row{Kind::kGraphicsMapped, Does::kNothing},
    Row{Kind::kGraphicsUnmapped, Does::kNothing},
    Row{Kind::kGraphicsPointer, Does::kNothing},
    Row{Kind::kGraphicsReleased, Does::kNothing},
    Row{Kind::kMulticastCreated, Does::kNothing},
    Row{Kind::kMulticastDeviceAdded, Does::kNothing},
    Row{Kind::kMulticastBound, Does::kNothing},
    Row{Kind::kMulticastUnbound, Does::kNothing},
    Row{Kind::kGraphAllocNode, Does::kNothing},
    Row{Kind::kGraphFreeNode, Does::kNothing},
    Row{Kind::kGraphInstantiated, Does::kNothing},
    Row{Kind::kGraphLaunched, Does::kNothing},
    Row{Kind::kGraphExecReleased, Does::kNothing},
    Row{Kind::kGraphReleased, Does::kNothing},
    Row{Kind::kGraphMemoryTrimmed, Does::kNothing},
    Row{Kind::kGraphMemory, Does::kNothing},
    Row{Kind::kModuleLoaded, Does::kNothing},
    Row{Kind::kModuleUnloaded, Does::kNothing},
    Row{Kind::kGlobalFound, Does::kNothing},
    Row{Kind::kLimitSet, Does::kNothing},
    Row{Kind::kPeerAccessSet, Does::kNothing},
    Row{Kind::kStreamCreated, Does::kNothing},
    Row{Kind::kStreamDestroyed, Does::kNothing},
    Row{Kind::kGreenContextCreated, Does::kNothing},
    Row{Kind::kGreenContextDestroyed, Does::kNothing},
    Row{Kind::kCheckpoint, Does::kGivesBack},  // the step "checkpoint": until it is restored
    Row{Kind::kAdvised, Does::kNothing},
    Row{Kind::kMark, Does::kNothing},
    Row{Kind::kRangeBegun, Does::kNothing},
    Row{Kind::kRangeEnded, Does::kNothing},
    Row{Kind::kProbe, Does::kNothing},
    Row{Kind::kProbesEnded, Does::kNothing},
    Row{Kind::kSampleEnd, Does::kNothing},
    Row{Kind::kBlockAcquired, Does::kNothing},
    Row{Kind::kBlockReleased, Does::kNothing},
    Row{Kind::kBlockRefused, Does::kNothing},
    Row{Kind::kBlockWaits, Does::kNothing},
    Row{Kind::kBlockWaitOver, Does::kNothing},
    Row{Kind::kBlockStream, Does::kNothing},
    Row{Kind::kActivityAcquired, Does::kNothing},
    Row{Kind::kActivityReleased, Does::kNothing},
    Row{Kind::kActivityPlace, Does::kNothing},
    Row{Kind::kActivityPool, Does::kNothing},
    Row{Kind::kActivityPoolKeeps, Does::kNothing},
    Row{Kind::kActivityUnified, Does::kNothing},
    Row{Kind::kActivityLost, Does::kNothing},
    Row{Kind::kActivityState, Does::kNothing},
    Row{Kind::kBlockSegment, Does::kNothing},
};

// What the process may be charged for on the device: of pools only their live blocks, of arrays their texels.
std::uint64_t most(const ProcessState& state) {
    if (state.checkpointed()) return 0;
    const DeviceTotals& totals = state.totals(0);
    return *charged_linear(state, 0).high + *charged_handles(state, 0).high + totals.array_texels +
           totals.pool_live + totals.managed;
}

}  // namespace

TEST_CASE("each kind has its row, in order") {
    REQUIRE(kRows.size() == static_cast<std::size_t>(wire::kLastKind));
    for (std::size_t i = 0; i < kRows.size(); ++i) {
        CHECK(static_cast<std::size_t>(kRows[i].kind) == i + 1);
        CHECK(kind_name(kRows[i].kind).kind == kRows[i].kind);
    }
}

TEST_CASE("each kind does to the books what its row says, and nothing when it failed") {
    for (const Row& row : kRows) {
        CAPTURE(kind_name(row.kind).id);
        ProcessState state = held();
        const std::uint64_t before = most(state);
        Event event = touching(row.kind);
        event.result = 1;
        state.apply(event);
        CHECK(most(state) == before);
        CHECK(state.contradictions()() == 0);
        event.result = 0;
        state.apply(event);
        switch (row.does) {
            case Does::kTakes:
                CHECK(most(state) > before);
                CHECK(acquires(row.kind));
                break;
            case Does::kGivesBack:
                CHECK(most(state) < before);
                CHECK(releases(row.kind));
                break;
            case Does::kNothing:
                CHECK(most(state) == before);
                break;
        }
    }
}

TEST_CASE("no kind takes the books below zero, whatever it names and however often") {
    constexpr std::array kAddresses = {std::uint64_t{0}, kLinearAt, kMappedAt,
                                       kPooledAt,        kNowhere,  UINT64_MAX};
    constexpr std::array kObjects = {std::uint64_t{0}, kHandle, kUnmappedHandle, kArray, kPool, kContext};
    for (const Row& row : kRows) {
        if (row.does == Does::kTakes) continue;
        CAPTURE(kind_name(row.kind).id);
        ProcessState state = held();
        const std::uint64_t before = most(state);
        for (int twice = 0; twice < 2; ++twice) {
            for (const std::uint64_t address : kAddresses) {
                for (const std::uint64_t object : kObjects) {
                    for (const std::uint64_t extra : kObjects) {
                        state.apply(made(row.kind, address, kMiB, object, extra));
                        REQUIRE(most(state) <= before);
                    }
                }
            }
        }
        const DeviceTotals& totals = state.totals(0);
        CHECK(totals.linear_requested <= 3 * kMiB);
        CHECK(totals.handles <= 4 * kMiB);
        CHECK(totals.handles_maybe <= 4 * kMiB);
        CHECK(totals.mapped <= before);
        CHECK(totals.array_count <= 1);
        for (const auto& [id, pool] : state.pools()) CHECK(pool.live_bytes <= kMiB);
    }
}
