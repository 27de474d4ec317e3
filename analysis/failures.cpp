#include "analysis/failures.h"

#include <algorithm>

namespace fragscope::analysis {
namespace {

using wire::Kind;

// Calls that answer "out of memory" because memory, address space or a table of the driver is short.
bool takes_memory(Kind kind) {
    switch (kind) {
        case Kind::kLinearAcquired:
        case Kind::kPitchAcquired:
        case Kind::kManagedAcquired:
        case Kind::kHostAcquired:
        case Kind::kHostRegistered:
        case Kind::kReserved:
        case Kind::kHandleCreated:
        case Kind::kHandleImported:
        case Kind::kMapped:
        case Kind::kAccessSet:
        case Kind::kPoolCreated:
        case Kind::kPoolAcquired:
        case Kind::kContextCreated:
        case Kind::kPrimaryRetained:
        case Kind::kArrayCreated:
        case Kind::kArrayMapped:
        case Kind::kIpcOpened:
        case Kind::kPoolImported:
        case Kind::kPoolPointerImported:
        case Kind::kExternalImported:
        case Kind::kExternalMapped:
        case Kind::kGraphicsMapped:
        case Kind::kMulticastCreated:
        case Kind::kMulticastBound:
        case Kind::kGraphAllocNode:
        case Kind::kGraphInstantiated:
        case Kind::kGraphLaunched:
        case Kind::kModuleLoaded:
        case Kind::kLimitSet:
        case Kind::kPeerAccessSet:
        case Kind::kStreamCreated:
        case Kind::kGreenContextCreated:
        case Kind::kCheckpoint:
        case Kind::kBlockRefused:
        case Kind::kCalled:  // a launch whose local memory does not fit, for one
            return true;
        default:
            return false;
    }
}

}  // namespace

bool is_failure(const Event& event) {
    if (event.has(wire::kByShim) || event.has(wire::kContinued)) return false;
    return event.failed() || event.kind == Kind::kBlockRefused;
}

std::vector<Failure> list_failures(const Trace& trace) {
    struct Dated {
        Failure failure;
        std::uint64_t time;
    };
    std::vector<Dated> found;
    for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
        std::uint64_t latest = 0;
        trace.events[process].for_each_failed([&](std::size_t i, const Event& event) {
            if (!is_failure(event)) return;
            // Inside a process the sequence decides, so that the order never runs against it.
            latest = std::max(latest, event.start.value + event.duration_ns);
            Failure failure;
            failure.process = {process};
            failure.index = i;
            failure.allocation = (event.result == kOutOfMemory || event.kind == Kind::kBlockRefused) &&
                                 takes_memory(event.kind);
            found.push_back({failure, latest});
        });
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Dated& a, const Dated& b) { return a.time < b.time; });
    std::vector<Failure> out;
    out.reserve(found.size());
    for (Dated& dated : found) {
        dated.failure.number = static_cast<std::uint32_t>(out.size() + 1);
        out.push_back(dated.failure);
    }
    return out;
}

std::optional<std::uint32_t> default_failure(const std::vector<Failure>& failures) {
    for (auto at = failures.rbegin(); at != failures.rend(); ++at) {
        if (at->allocation) return at->number;
    }
    return std::nullopt;
}

void note_answer(FailureSnapshot& snapshot, const Event& event, std::size_t index) {
    if (event.kind == Kind::kDeviceMemory) {
        snapshot.devices[event.device] = {event.address.value, event.bytes.value, index};
    } else if (event.kind == Kind::kPoolState) {
        PoolWord& pool = snapshot.pools[event.object];
        pool.used = event.address.value;
        pool.reserved = event.bytes.value;
        pool.threshold = event.extra;
        pool.device = event.device;
    } else if (event.kind == Kind::kGraphMemory) {
        snapshot.graphs[event.device] = {event.address.value, event.bytes.value};
    } else if (event.kind == Kind::kPoolHigh) {
        PoolWord& pool = snapshot.pools[event.object];
        pool.used_high = event.address.value;
        pool.reserved_high = event.bytes.value;
        if (event.extra != 0) pool.maximum = event.extra;
        pool.device = event.device;
    }
}

FailureSnapshot snapshot_of(const EventLog& events, std::size_t failed) {
    FailureSnapshot out;
    out.moment = failed;
    const Event& failure = events[failed];
    bool asked = false;
    for (std::size_t i = failed + 1; i < events.size(); ++i) {
        const Event& event = events[i];
        if (event.thread != failure.thread) continue;
        if (event.sequence == failure.sequence && event.has(wire::kContinued)) continue;
        if (event.kind == Kind::kFailureSnapshotEnd && event.object.value == failure.sequence.value) {
            out.complete = true;
            out.captured = event.has(wire::kCaptured);
            out.no_context = event.has(wire::kNoContext);
            out.pools_not_asked = event.bytes.value;
            break;
        }
        if (!event.has(wire::kByShim) || !event.has(wire::kSnapshot)) break;
        if (event.failed()) continue;
        if (event.kind == Kind::kDeviceMemory && !asked) {
            out.moment = i;
            asked = true;
        }
        note_answer(out, event, i);
    }
    if (!out.complete) {
        // Its end is missing, so it may be another's or half of one: none of its numbers is used.
        out.devices.clear();
        out.pools.clear();
        out.graphs.clear();
        out.moment = failed;
    }
    return out;
}

}  // namespace fragscope::analysis
