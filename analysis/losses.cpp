#include "analysis/losses.h"

#include <fmt/format.h>

#include <array>

#include "analysis/read/kind_name.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr unsigned bit(Layer layer) { return 1u << static_cast<unsigned>(layer); }

// What one lost record of a kind may have hidden, by layer.
struct Hidden {
    unsigned more = 0;          // layers that may hold more than the records say
    unsigned less = 0;          // layers that may hold less
    bool bytes_stated = false;  // how much more is in Loss.acquired_bytes
};

constexpr unsigned kOwned = bit(Layer::kBlocks) | bit(Layer::kArrays) | bit(Layer::kHost);

Hidden hidden_by(Kind kind) {
    switch (kind) {
        case Kind::kLinearAcquired:
        case Kind::kManagedAcquired:
            return {bit(Layer::kBlocks), 0, true};
        case Kind::kPitchAcquired:  // the record's size is without the pitch
            return {bit(Layer::kBlocks), 0, false};
        case Kind::kLinearReleased:
            return {0, bit(Layer::kBlocks) | bit(Layer::kPools), false};
        // What a context owns goes with it, and nothing does with a context that is not known.
        case Kind::kContextCreated:
        case Kind::kContextDestroyed:
        case Kind::kPrimaryRetained:
        case Kind::kPrimaryReleased:
        case Kind::kPrimaryReset:
            return {kOwned, kOwned, false};
        case Kind::kHostAcquired:
        case Kind::kHostRegistered:
            return {bit(Layer::kHost), 0, true};
        case Kind::kHostReleased:
        case Kind::kHostUnregistered:
            return {0, bit(Layer::kHost), false};
        case Kind::kReserved:
            return {bit(Layer::kAddresses), 0, false};
        case Kind::kReservationFreed:
            return {0, bit(Layer::kAddresses), false};
        case Kind::kHandleCreated:
            return {bit(Layer::kHandles) | bit(Layer::kPayload), 0, true};
        // They keep memory alive that was released otherwise.
        case Kind::kHandleRetained:
        case Kind::kHandleImported:
        case Kind::kMulticastCreated:
        case Kind::kMulticastBound:
            return {bit(Layer::kHandles), 0, false};
        case Kind::kMapped:
            return {bit(Layer::kHandles) | bit(Layer::kAddresses) | bit(Layer::kPayload),
                    bit(Layer::kPayload), false};
        case Kind::kHandleReleased:
            return {0, bit(Layer::kHandles), false};
        case Kind::kUnmapped:
            return {0, bit(Layer::kHandles) | bit(Layer::kAddresses) | bit(Layer::kPayload), false};
        case Kind::kArrayMapped:
            return {bit(Layer::kHandles), bit(Layer::kHandles), false};
        case Kind::kArrayCreated:
            return {bit(Layer::kArrays), 0, false};
        case Kind::kArrayReleased:
            return {0, bit(Layer::kArrays), false};
        case Kind::kPoolAcquired:
            return {bit(Layer::kPools), 0, true};
        case Kind::kPoolReleased:
        case Kind::kSynchronized:
            return {0, bit(Layer::kPools), false};
        case Kind::kPoolCreated:
        case Kind::kPoolDestroyed:
        case Kind::kPoolBound:
        case Kind::kPoolAttributeSet:
        case Kind::kPoolTrimmed:
        case Kind::kPoolImported:
        case Kind::kPoolPointerImported:
            return {bit(Layer::kPools), bit(Layer::kPools), false};
        case Kind::kTouched:
            return {bit(Layer::kPayload), 0, false};
        case Kind::kGraphAllocNode:
        case Kind::kGraphInstantiated:
        case Kind::kGraphExecReleased:
        case Kind::kGraphReleased:
            return {bit(Layer::kGraphs), bit(Layer::kGraphs), false};
        case Kind::kCheckpoint:
            return {0, bit(Layer::kBlocks) | bit(Layer::kArrays) | bit(Layer::kHandles) | bit(Layer::kPools),
                    false};
        case Kind::kBlockAcquired:
            return {bit(Layer::kFramework), 0, false};
        case Kind::kBlockReleased:
        case Kind::kBlockWaitOver:
            return {0, bit(Layer::kFramework), false};
        case Kind::kBlockWaits:
            return {bit(Layer::kFramework), 0, false};
        case Kind::kBlockSegment:
            return {bit(Layer::kFramework), bit(Layer::kFramework), false};
        // Nothing that has a sum of its own.
        case Kind::kHandleExported:
        case Kind::kAccessSet:
        case Kind::kDeviceMemory:
        case Kind::kPoolState:
        case Kind::kPoolHigh:
        case Kind::kDevice:
        case Kind::kDeviceGranularity:
        case Kind::kDeviceAttribute:
        case Kind::kDriver:
        case Kind::kHookMissing:
        case Kind::kEnvironmentComplete:
        case Kind::kText:
        case Kind::kFailureSnapshotEnd:
        case Kind::kCalled:
        case Kind::kArrayAliased:
        case Kind::kIpcExported:
        case Kind::kIpcOpened:
        case Kind::kIpcClosed:
        case Kind::kRangeExported:
        case Kind::kPoolExported:
        case Kind::kPoolPointerExported:
        case Kind::kPoolAccessSet:
        case Kind::kExternalImported:
        case Kind::kExternalMapped:
        case Kind::kExternalReleased:
        case Kind::kGraphicsMapped:
        case Kind::kGraphicsUnmapped:
        case Kind::kGraphicsPointer:
        case Kind::kGraphicsReleased:
        case Kind::kMulticastDeviceAdded:
        case Kind::kMulticastUnbound:
        case Kind::kGraphFreeNode:
        case Kind::kGraphLaunched:
        case Kind::kGraphMemoryTrimmed:
        case Kind::kGraphMemory:
        case Kind::kModuleLoaded:
        case Kind::kModuleUnloaded:
        case Kind::kGlobalFound:
        case Kind::kLimitSet:
        case Kind::kPeerAccessSet:
        case Kind::kStreamCreated:
        case Kind::kStreamDestroyed:
        case Kind::kGreenContextCreated:
        case Kind::kGreenContextDestroyed:
        case Kind::kAdvised:
        case Kind::kMark:
        case Kind::kRangeBegun:
        case Kind::kRangeEnded:
        case Kind::kProbe:
        case Kind::kProbesEnded:
        case Kind::kSampleEnd:
        case Kind::kBlockRefused:
        case Kind::kBlockStream:
        case Kind::kActivityAcquired:
        case Kind::kActivityReleased:
        case Kind::kActivityPlace:
        case Kind::kActivityPool:
        case Kind::kActivityPoolKeeps:
        case Kind::kActivityUnified:
        case Kind::kActivityLost:
        case Kind::kActivityState:
        case Kind::kNone:
            return {};
    }
    return {};
}

// What a lost record of the kind makes uncertain beside the sums of a layer.
const char* also_uncertain(Kind kind) {
    switch (kind) {
        case Kind::kText:
            return "names of functions, files, marks or call stacks may be missing";
        case Kind::kMark:
        case Kind::kRangeBegun:
        case Kind::kRangeEnded:
            return "which phase of the program a call belongs to may be wrong";
        case Kind::kDeviceMemory:
        case Kind::kPoolState:
        case Kind::kPoolHigh:
        case Kind::kGraphMemory:
        case Kind::kSampleEnd:
        case Kind::kFailureSnapshotEnd:
            return "some moments lack the driver's numbers";
        case Kind::kProbe:
        case Kind::kProbesEnded:
            return "some trials after a failure are missing";
        case Kind::kBlockRefused:
            return "requests that a framework's allocator gave up may be missing";
        case Kind::kBlockStream:
            return "which stream a framework's blocks are for may be wrong";
        case Kind::kActivityAcquired:
        case Kind::kActivityReleased:
        case Kind::kActivityPlace:
        case Kind::kActivityPool:
        case Kind::kActivityPoolKeeps:
        case Kind::kActivityUnified:
        case Kind::kActivityLost:
        case Kind::kActivityState:
            return "some of what CUPTI told is missing";
        case Kind::kModuleLoaded:
        case Kind::kModuleUnloaded:
        case Kind::kLimitSet:
        case Kind::kPeerAccessSet:
        case Kind::kStreamCreated:
        case Kind::kStreamDestroyed:
            return "what came with a change of memory that no record explains may be missing from its list";
        case Kind::kIpcOpened:
        case Kind::kIpcClosed:
        case Kind::kExternalMapped:
        case Kind::kExternalImported:
            return "memory of others that this process holds may be missing from its list";
        default:
            return nullptr;
    }
}

constexpr std::array<const char*, 9> kLayerWords = {
    "linear memory",      "physical handles",    "arrays",
    "pools' live blocks", "reserved addresses",  "page-locked memory",
    "written payload",    "addresses of graphs", "blocks of a framework's allocator"};

std::string layers_in_words(unsigned layers) {
    std::string out;
    for (unsigned layer = 0; layer < kLayerWords.size(); ++layer) {
        if ((layers >> layer & 1u) != 0)
            out += (out.empty() ? "" : ", ") + std::string(kLayerWords.at(layer));
    }
    return out;
}

}  // namespace

Losses losses_of(const Trace& trace, ProcessIndex process) {
    Losses out;
    if (process.value >= trace.losses.size()) return out;
    const trace::Loss& loss = trace.losses[process.value];
    out.counted = loss.has_acquisitions() && loss.has_releases() && loss.has_others();
    out.acquisitions = loss.acquisitions() != 0;
    if (loss.has_acquired_bytes()) out.acquired_bytes = loss.acquired_bytes();
    out.releases = loss.releases() != 0;
    const bool of_any_kind =
        loss.rings_damaged() != 0 || loss.records_refused() != 0 || trace.end.events_not_written() != 0;
    const std::uint64_t given_up =
        loss.acquisitions() + loss.releases() + loss.others() + loss.records_without_ring();
    out.unclassified = of_any_kind || loss.others() != 0 || loss.records_without_ring() != 0;
    out.records = given_up + loss.records_refused();
    if (!out.counted || of_any_kind || given_up == 0) return out;
    std::uint64_t named = 0;
    bool known = true;
    for (const auto& [kind, count] : loss.records_by_kind()) {
        known = known && kind != 0 && kind <= static_cast<std::uint32_t>(wire::kLastKind);
        named += std::min(count, UINT64_MAX - named);
        if (known && count != 0) out.by_kind[static_cast<Kind>(kind)] = count;
    }
    if (!known || named != given_up) out.by_kind.clear();
    // How much those without a ring would have acquired nobody counted.
    if (loss.records_without_ring() != 0) out.acquired_bytes.reset();
    return out;
}

Losses narrowed(const Losses& losses, Layer layer) {
    if (losses.by_kind.empty()) return losses;
    Losses out;
    out.counted = true;
    out.acquired_bytes = losses.acquired_bytes;
    for (const auto& [kind, count] : losses.by_kind) {
        const Hidden hidden = hidden_by(kind);
        if (((hidden.more | hidden.less) & bit(layer)) == 0) continue;
        out.by_kind[kind] = count;
        out.records += count;
        if ((hidden.less & bit(layer)) != 0) out.releases = true;
        if ((hidden.more & bit(layer)) == 0) continue;
        out.acquisitions = true;
        if (!hidden.bytes_stated) out.acquired_bytes.reset();
    }
    return out;
}

bool may_lack(const Losses& losses, Kind kind) {
    return losses.by_kind.empty() ? losses.any() : losses.by_kind.contains(kind);
}

Losses with_contradictions(const Losses& losses, const Contradictions& contradictions) {
    Losses out = losses;
    if (contradictions.unknown_releases + contradictions.unknown_handles != 0) {
        out.acquisitions = true;
        out.acquired_bytes.reset();
    }
    if (contradictions.overlapping_acquisitions != 0) out.releases = true;
    return out;
}

Interval weakened(const Interval& interval, const Losses& losses) {
    Interval out = interval;
    if (!losses.any()) return out;
    if (!losses.counted || losses.unclassified || losses.releases) out.low = 0;
    if (!losses.counted || losses.unclassified || (losses.acquisitions && !losses.acquired_bytes)) {
        out.high.reset();
    } else if (losses.acquisitions && out.high) {
        // Each of the lost ones may have been rounded up to a page of its own.
        const std::uint64_t pages =
            losses.records > UINT64_MAX / kDefaultPage ? UINT64_MAX : losses.records * kDefaultPage;
        out = out + Interval{0, *losses.acquired_bytes} + Interval{0, pages};
    }
    return out;
}

std::vector<std::string> lost_in_words(const Losses& losses) {
    std::vector<std::string> out;
    for (const auto& [kind, count] : losses.by_kind) {
        const Hidden hidden = hidden_by(kind);
        std::string why = layers_in_words(hidden.more | hidden.less);
        if (!why.empty()) {
            why += (hidden.more | hidden.less) == (hidden.more & hidden.less)
                       ? " may hold more or less than said"
                   : hidden.more != 0 ? " may hold more than said"
                                      : " may hold less than said";
        } else if (const char* other = also_uncertain(kind); other != nullptr) {
            why = other;
        } else {
            why = "no sum of memory rests on them";
        }
        out.push_back(fmt::format("{} of {}: {}", count, kind_name(kind).words, why));
    }
    return out;
}

}  // namespace fragscope::analysis
