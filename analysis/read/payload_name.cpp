#include "analysis/read/payload_name.h"

namespace fragscope::analysis {

namespace {

constexpr PayloadField amount(std::string_view name) { return {name, PayloadForm::kBytes}; }
constexpr PayloadField number(std::string_view name) { return {name, PayloadForm::kNumber}; }

}  // namespace

PayloadNames payload_names(wire::Kind kind) {
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
            names.address = amount("free_bytes");
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
        default:
            break;
    }
    return names;
}

}  // namespace fragscope::analysis
