#include "analysis/read/nsight_events.h"

#include <limits>

#include "analysis/state_parts.h"

namespace fragscope::analysis {

namespace {

using wire::Kind;

FunctionId id(NsightFunction function) { return {static_cast<std::uint32_t>(function)}; }

Kind kind_of(const NsightMemoryRow& row) {
    switch (row.kind) {
        case NsightMemoryKind::kDevice:
            if (row.pool.address != 0) return row.released ? Kind::kPoolReleased : Kind::kPoolAcquired;
            return row.released ? Kind::kLinearReleased : Kind::kLinearAcquired;
        case NsightMemoryKind::kManaged:
            return row.released ? Kind::kLinearReleased : Kind::kManagedAcquired;
        case NsightMemoryKind::kPinned:
            return row.released ? Kind::kHostReleased : Kind::kHostAcquired;
        case NsightMemoryKind::kArray:
            return row.released ? Kind::kArrayReleased : Kind::kArrayCreated;
        case NsightMemoryKind::kDeviceStatic:
        case NsightMemoryKind::kManagedStatic:
            return row.released ? Kind::kNone : Kind::kGlobalFound;
        case NsightMemoryKind::kPageable:
        case NsightMemoryKind::kUnknown:
            break;
    }
    return Kind::kNone;
}

}  // namespace

const std::vector<std::string> kNsightFunctions{"allocation", "deallocation", "pool event", "synchronization",
                                                "call"};

std::optional<Event> event_of(const NsightMemoryRow& row) {
    Event event;
    event.kind = kind_of(row);
    if (event.kind == Kind::kNone || (row.bytes == 0 && !row.released)) return std::nullopt;
    event.start = {row.at};
    event.device = row.device;
    event.function = id(row.released ? NsightFunction::kDeallocation : NsightFunction::kAllocation);
    event.address = {row.address};
    event.bytes = {row.released ? 0 : row.bytes};
    event.object = {row.context};
    switch (event.kind) {
        case Kind::kPoolAcquired:
            event.object = {row.pool.address};
            event.extra = row.stream;
            break;
        case Kind::kPoolReleased:
            event.object = {};
            event.extra = row.stream;
            break;
        case Kind::kArrayCreated:
        case Kind::kArrayReleased:
            event.address = {row.released ? 0 : row.context};
            event.object = {row.address};
            break;
        case Kind::kGlobalFound:
            event.object = {};
            event.extra = row.kind == NsightMemoryKind::kManagedStatic ? 1 : 0;
            break;
        case Kind::kLinearAcquired:
            if (row.imported_pool == 0) break;
            // Another process's memory, counted there.
            event.kind = Kind::kPoolPointerImported;
            event.bytes = {};
            event.object = {row.imported_pool};
            break;
        default:
            break;
    }
    return event;
}

Event event_of(const NsightPoolRow& row) {
    Event event;
    event.start = {row.at};
    event.device = row.device;
    event.function = id(NsightFunction::kPoolEvent);
    event.object = {row.pool.address};
    switch (row.operation) {
        case NsightPoolOperation::kCreated:
            event.kind = row.imported ? Kind::kPoolImported : Kind::kPoolCreated;
            if (!row.imported) event.extra = wire::pack_location(kLocationDevice, row.device, 0);
            break;
        case NsightPoolOperation::kDestroyed:
            event.kind = Kind::kPoolDestroyed;
            break;
        case NsightPoolOperation::kTrimmed:
            event.kind = Kind::kPoolTrimmed;
            event.bytes = {row.keep};
            break;
    }
    return event;
}

Event event_of(const NsightSynchronizationRow& row) {
    Event event;
    event.start = {row.from};
    event.duration_ns = row.to - row.from;
    event.kind = Kind::kSynchronized;
    event.device = row.device;
    event.function = id(NsightFunction::kSynchronization);
    event.object = {row.stream};
    event.extra = row.context;
    return event;
}

std::optional<Event> pool_state_at(const Event& event, const NsightPool& pool) {
    if (pool.address == 0 || !pool.size || !pool.used || !pool.threshold) return std::nullopt;
    Event out;
    out.start = event.start;
    out.device = event.device;
    out.kind = Kind::kPoolState;
    out.function = id(NsightFunction::kPoolEvent);
    out.address = {*pool.used};
    out.bytes = {*pool.size};
    out.object = {pool.address};
    out.extra = *pool.threshold;
    return out;
}

Event event_of_failed(const NsightCallRow& row, wire::Kind kind, std::int16_t device) {
    constexpr auto kMost = std::numeric_limits<std::uint16_t>::max();
    Event event;
    event.start = {row.from};
    event.duration_ns = row.to - row.from;
    event.thread = row.thread;
    event.kind = kind;
    event.result = row.result > 0 && row.result <= kMost ? static_cast<std::uint16_t>(row.result) : kMost;
    event.device = device;
    if (device == kNoDevice) event.flags = wire::kUnknownDevice;
    if (kind == Kind::kHandleCreated) event.extra = wire::pack_location(kLocationDevice, device, 0);
    return event;
}

// 16 bytes of "GPU-00112233-4455-…" or of the bare digits; empty if it is nothing of that kind.
std::string uuid_bytes(std::string_view text) {
    if (text.starts_with("GPU-")) text.remove_prefix(4);
    std::string out;
    int high = -1;
    for (const char c : text) {
        if (c == '-') continue;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return "";
        if (high < 0) {
            high = digit;
        } else {
            out += static_cast<char>(high * 16 + digit);
            high = -1;
        }
    }
    return out.size() == 16 && high < 0 ? out : "";
}

}  // namespace fragscope::analysis
