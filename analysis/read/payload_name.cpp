#include "analysis/read/payload_name.h"

namespace fragscope::analysis {

namespace {

constexpr PayloadField amount(std::string_view name) { return {name, PayloadForm::kBytes}; }
constexpr PayloadField number(std::string_view name) { return {name, PayloadForm::kNumber}; }

}  // namespace

PayloadNames payload_names(wire::Kind kind, std::uint16_t flags) {
    PayloadNames names;
    switch (kind) {
        case wire::Kind::kPitchAcquired:
            names.extra = amount("granted_bytes");
            break;
        case wire::Kind::kReserved:
            names.object = amount("alignment_bytes");
            break;
        case wire::Kind::kMapped:
            names.extra = amount("offset_bytes");
            break;
        case wire::Kind::kPoolCreated:
            names.bytes = amount("maximum_bytes");
            break;
        case wire::Kind::kPoolTrimmed:
            names.bytes = amount("keep_bytes");
            break;
        case wire::Kind::kPoolAttributeSet:
            names.bytes = number("value");
            names.extra = number("attribute");
            break;
        case wire::Kind::kContextCreated:
            names.bytes = number("context_flags");
            break;
        case wire::Kind::kDeviceMemory:
            names.address = amount("device_free_bytes");
            names.bytes = amount("total_bytes");
            break;
        case wire::Kind::kPoolState:
            names.address = amount("used_bytes");
            names.bytes = amount("reserved_bytes");
            names.extra = amount("release_threshold_bytes");
            break;
        case wire::Kind::kPoolHigh:
            names.address = amount("used_high_bytes");
            names.bytes = amount("reserved_high_bytes");
            names.extra = amount("maximum_bytes");
            break;
        case wire::Kind::kFailureSnapshotEnd:
            names.object = number("of_sequence");
            names.bytes = number("pools_not_asked");
            names.extra = number("failures_without_snapshot");
            break;
        case wire::Kind::kMulticastCreated:
            names.address = number("devices");
            break;
        case wire::Kind::kMulticastBound:
        case wire::Kind::kMulticastUnbound:
            names.address = amount("offset_bytes");
            break;
        case wire::Kind::kGraphInstantiated:
        case wire::Kind::kGreenContextCreated:
            names.bytes = number("flags");
            break;
        case wire::Kind::kGraphMemory:
            names.address = amount("used_bytes");
            names.bytes = amount("reserved_bytes");
            names.object = amount("used_high_bytes");
            names.extra = amount("reserved_high_bytes");
            break;
        case wire::Kind::kModuleLoaded:
        case wire::Kind::kModuleUnloaded:
            names.address = number("is_library");
            break;
        case wire::Kind::kLimitSet:
            names.address = number("limit");
            names.bytes = number("value");
            break;
        case wire::Kind::kPeerAccessSet:
            names.address = number("enabled");
            break;
        case wire::Kind::kCheckpoint:
            names.address = number("step");
            names.object = number("process_id");
            break;
        case wire::Kind::kPoolAccessSet:
            names.address = number("protection");
            break;
        case wire::Kind::kExternalMapped:
            names.extra = amount("offset_bytes");
            break;
        case wire::Kind::kMark:
        case wire::Kind::kRangeBegun:
            names.address = number("domain");
            names.bytes = number("payload");
            names.object = number("text");
            break;
        case wire::Kind::kRangeEnded:
            names.address = number("domain");
            break;
        case wire::Kind::kProbe:
            names.address = number("mechanism");
            names.object = number("of_sequence");
            names.extra = amount("granularity_bytes");
            break;
        case wire::Kind::kProbesEnded:
            names.address = number("reason");
            names.bytes = number("nanoseconds");
            names.object = number("of_sequence");
            names.extra = amount("most_at_once_bytes");
            break;
        case wire::Kind::kBlockAcquired:
        case wire::Kind::kBlockReleased:
        case wire::Kind::kBlockRefused:
            names.object = {"total_allocated_bytes", PayloadForm::kTotal};
            names.extra = {"total_reserved_bytes", PayloadForm::kTotal};
            if ((flags & wire::kRequestTold) == 0) break;
            names.extra = kind == wire::Kind::kBlockAcquired ? amount("requested_bytes") : number("segment");
            break;
        case wire::Kind::kBlockSegment:
            names.object = number("stream");
            names.extra = number("segment");
            break;
        case wire::Kind::kBlockWaits:
            names.extra = number("stream");
            break;
        case wire::Kind::kActivityAcquired:
        case wire::Kind::kActivityReleased:
            names.object = number("activity");
            names.extra = number("pool");
            break;
        case wire::Kind::kActivityPlace:
            names.address = number("program_counter");
            names.bytes = number("context_and_stream");
            names.object = number("text");
            names.extra = number("source_text");
            break;
        case wire::Kind::kActivityPool:
            names.object = number("activity");
            names.extra = amount("used_bytes");
            break;
        case wire::Kind::kActivityPoolKeeps:
            names.bytes = amount("release_threshold_bytes");
            names.object = amount("minimum_to_keep_bytes");
            names.extra = number("pid");
            break;
        case wire::Kind::kActivityUnified:
            names.bytes = number("value");
            names.object = number("activity");
            names.extra = number("period_ns");
            break;
        case wire::Kind::kActivityLost:
            names.bytes = number("records");
            break;
        case wire::Kind::kActivityState:
            names.address = number("state");
            names.bytes = number("api_version");
            names.object = number("result");
            names.extra = number("text");
            break;
        case wire::Kind::kSampleEnd:
            names.address = number("reason");
            names.bytes = number("pools_not_asked");
            break;
        default:
            break;
    }
    return names;
}

}  // namespace fragscope::analysis
