#include "analysis/witnesses.h"

#include <algorithm>

#include "analysis/kinds.h"

namespace fragscope::analysis {

using wire::Kind;

Witnesses witnesses_of(const Trace& trace, const Failure& failure, const RequestFacts& request) {
    Witnesses out;
    const auto& events = trace.events[failure.process.value];
    const Event& failed = events[failure.index];
    for (std::size_t i = failure.index + 1; i < events.size(); ++i) {
        const Event& event = events[i];
        if (event.has(wire::kByShim) || event.has(wire::kContinued) || event.failed()) continue;
        if (releases(event.kind)) break;
        const std::uint64_t bytes = event.bytes.value;
        // A success of the very request shows that something else has changed: from here on nothing is a
        // witness.
        if (event.kind == failed.kind && device_of_call(event) == device_of_call(failed) &&
            bytes >= request.requested) {
            break;
        }
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
        }
    }
    return out;
}

}  // namespace fragscope::analysis
