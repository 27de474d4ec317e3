#include "analysis/usage.h"

#include <algorithm>

#include "analysis/request.h"

namespace fragscope::analysis {

using wire::Kind;

void UsageRecorder::add(const Event& event) {
    if (event.failed() || event.has(wire::kByShim) || event.has(wire::kContinued) ||
        event.has(wire::kCaptured))
        return;
    Kind kind = event.kind;
    switch (event.kind) {
        case Kind::kPitchAcquired:
            kind = Kind::kLinearAcquired;
            break;
        case Kind::kBlockAcquired:
            kind = Kind::kBlockRefused;
            break;
        case Kind::kLinearAcquired:
        case Kind::kManagedAcquired:
        case Kind::kHandleCreated:
        case Kind::kPoolAcquired:
            break;
        default:
            return;
    }
    const int device = device_of_call(event);
    if (device == kNoDevice) return;
    Use& use = uses_[device][kind];
    ++use.calls;
    use.bytes += std::min(event.bytes.value, UINT64_MAX - use.bytes);
}

std::optional<UsageRecorder::Most> UsageRecorder::most_on(int device) const {
    const auto found = uses_.find(device);
    if (found == uses_.end()) return std::nullopt;
    Most out;
    for (const auto& [kind, use] : found->second) {
        if (out.kind == Kind::kNone || use.bytes > out.use.bytes) out = {kind, use};
    }
    return out;
}

int UsageRecorder::busiest() const {
    int out = kNoDevice;
    std::uint64_t most = 0;
    for (const auto& [device, kinds] : uses_) {
        std::uint64_t bytes = 0;
        for (const auto& [kind, use] : kinds) bytes += std::min(use.bytes, UINT64_MAX - bytes);
        if (out == kNoDevice || bytes > most) {
            out = device;
            most = bytes;
        }
    }
    return out;
}

}  // namespace fragscope::analysis
