#include "analysis/recurrence.h"

#include <algorithm>
#include <unordered_set>

#include "analysis/request.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

Kind release_of(Kind acquired) {
    switch (acquired) {
        case Kind::kLinearAcquired:
            return Kind::kLinearReleased;
        case Kind::kHandleCreated:
            return Kind::kHandleReleased;
        case Kind::kPoolAcquired:
            return Kind::kPoolReleased;
        case Kind::kBlockAcquired:
            return Kind::kBlockReleased;
        default:
            return Kind::kNone;
    }
}

}  // namespace

Interval Recurrence::uses() const {
    if (acquisitions == 0 || most_at_once == 0) return {};
    return {acquisitions / most_at_once, (acquisitions + most_at_once - 1) / most_at_once};
}

Recurrence recurrence_of(const Trace& trace, ProcessIndex process, int device, const RequestMade& request) {
    Recurrence out;
    const Kind kind = request.kind;
    out.kind = kind;
    out.bytes = request.bytes;
    out.site_known = request.stack != 0;
    const Kind release = release_of(kind);
    if (release == Kind::kNone || request.bytes == 0 || process.value >= trace.events.size()) return out;
    const auto name_of = [&](const Event& event) {
        return kind == Kind::kHandleCreated ? event.object.value : event.address.value;
    };
    std::unordered_set<std::uint64_t> live;
    for (const Event& event : trace.events[process.value]) {
        if (event.failed() || event.has(wire::kByShim) || event.has(wire::kCaptured)) continue;
        if (event.kind == kind && event.bytes.value == request.bytes && device_of_call(event) == device) {
            ++out.acquisitions;
            if (out.site_known && event.stack == request.stack) ++out.at_this_site;
            live.insert(name_of(event));
            out.most_at_once = std::max<std::uint64_t>(out.most_at_once, live.size());
        } else if (!live.empty() &&
                   (event.kind == release ||
                    // cuMemFree takes memory of a pool too, and cuMemFreeAsync linear memory.
                    (event.kind == Kind::kLinearReleased && kind == Kind::kPoolAcquired) ||
                    (event.kind == Kind::kPoolReleased && kind == Kind::kLinearAcquired))) {
            live.erase(name_of(event));
        }
    }
    return out;
}

}  // namespace fragscope::analysis
