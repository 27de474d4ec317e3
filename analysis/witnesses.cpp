#include "analysis/witnesses.h"

#include <algorithm>

#include "analysis/kinds.h"

namespace fragscope::analysis {

using wire::Kind;

namespace {

// `failed`: null where nothing failed.
Witnesses witnesses(const EventLog& events, std::size_t first, const Event* failed,
                    const RequestFacts& request) {
    Witnesses out;
    bool block_given_back = false;
    for (std::size_t i = first; i < events.size(); ++i) {
        const Event& event = events[i];
        if (event.has(wire::kByShim) || event.has(wire::kContinued) || event.failed()) continue;
        if (releases(event.kind)) break;
        const std::uint64_t bytes = event.bytes.value;
        // A success of the very request shows that something else has changed: from here on nothing is a
        // witness.
        if (failed != nullptr && event.kind == failed->kind &&
            device_of_call(event) == device_of_call(*failed) && bytes >= request.requested) {
            break;
        }
        if (event.kind == Kind::kBlockReleased || event.kind == Kind::kBlockWaitOver) block_given_back = true;
        if (event.kind == Kind::kReserved) out.reservation = std::max(out.reservation, bytes);
        if (device_of_call(event) != request.device || event.has(wire::kCaptured)) continue;
        if (event.kind == Kind::kLinearAcquired) {
            out.linear = std::max(out.linear, bytes);
            out.pieces_together += bytes;
        } else if (event.kind == Kind::kHandleCreated) {
            out.handle = std::max(out.handle, bytes);
            out.handles_together += bytes;
            out.pieces_together += bytes;
        } else if (event.kind == Kind::kPoolAcquired) {
            out.pool = std::max(out.pool, bytes);
        } else if (event.kind == Kind::kBlockAcquired && !block_given_back) {
            out.block = std::max(out.block, bytes);
        }
    }
    return out;
}

}  // namespace

Witnesses witnesses_of(const Trace& trace, const Failure& failure, const RequestFacts& request) {
    const auto& events = trace.events[failure.process.value];
    const Event failed = events[failure.index];
    return witnesses(events, failure.index + 1, &failed, request);
}

Witnesses witnesses_from(const Trace& trace, ProcessIndex process, std::size_t first,
                         const RequestFacts& request) {
    return witnesses(trace.events[process.value], first, nullptr, request);
}

}  // namespace fragscope::analysis
