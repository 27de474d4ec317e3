#include "analysis/recurrence.h"

#include <algorithm>

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

RecurrenceWatch::RecurrenceWatch(int device, const RequestMade& request)
    : device_(device),
      request_(request),
      release_(request.bytes == 0 ? Kind::kNone : release_of(request.kind)) {
    seen_.kind = request.kind;
    seen_.bytes = request.bytes;
    seen_.site_known = request.stack != 0;
}

std::uint64_t RecurrenceWatch::name_of(const Event& event) const {
    return request_.kind == Kind::kHandleCreated ? event.object.value : event.address.value;
}

void RecurrenceWatch::add(const Event& event) {
    const Kind kind = request_.kind;
    const bool made = event.kind == kind && event.bytes.value == request_.bytes;
    if (!made && live_.empty()) return;
    if (release_ == Kind::kNone) return;
    if (event.failed() || event.has(wire::kByShim) || event.has(wire::kCaptured)) return;
    if (made && device_of_call(event) == device_) {
        ++seen_.acquisitions;
        if (seen_.site_known && event.stack == request_.stack) ++seen_.at_this_site;
        live_.insert(name_of(event));
        seen_.most_at_once = std::max<std::uint64_t>(seen_.most_at_once, live_.size());
    } else if (!live_.empty() && (event.kind == release_ ||
                                  // cuMemFree takes memory of a pool too, and cuMemFreeAsync linear memory.
                                  (event.kind == Kind::kLinearReleased && kind == Kind::kPoolAcquired) ||
                                  (event.kind == Kind::kPoolReleased && kind == Kind::kLinearAcquired))) {
        live_.erase(name_of(event));
    }
}

}  // namespace fragscope::analysis
