#include "analysis/consumers.h"

#include <algorithm>

namespace fragscope::analysis {
namespace {

using wire::Kind;

constexpr std::uint32_t kLookedUp = 1024;

MadeBy made_by(const ProcessState& state, Address address) {
    if (const auto block = state.linear().find(address.value))
        return block->value.kind == Kind::kManagedAcquired ? MadeBy::kManaged : MadeBy::kLinear;
    if (state.mappings().find(address.value)) return MadeBy::kHandle;
    if (state.pool_blocks().find(address.value)) return MadeBy::kPool;
    return MadeBy::kAny;
}

// Whether a mapping of another handle ends where this one begins.
bool continues_another(const ProcessState& state, const Event& event) {
    if (event.address.value == 0) return false;
    const auto before = state.mappings().find(event.address.value - 1);
    const auto own = state.mappings().find(event.address.value);
    return before && own && before->value.physical != own->value.physical;
}

// Whether another device than the one whose memory it is may use it from now on.
bool reaches_a_peer(const ProcessState& state, const Event& event) {
    if (event.extra == 0 || wire::location_type(event.object.value) != kLocationDevice) return false;
    const auto mapping = state.mappings().find(event.address.value);
    const Physical* physical = mapping ? state.physical().find(mapping->value.physical) : nullptr;
    return physical != nullptr && physical->on_device &&
           physical->device != wire::location_id(event.object.value);
}

}  // namespace

void ConsumerRecorder::note(Use use, MadeBy kind, const Event& event) {
    Seen& seen = seen_.at(static_cast<std::size_t>(use)).at(static_cast<std::size_t>(kind));
    ++seen.count;
    constexpr std::size_t kNamed = 8;
    if (seen.functions.size() < kNamed &&
        std::find(seen.functions.begin(), seen.functions.end(), event.function) == seen.functions.end())
        seen.functions.push_back(event.function);
}

void ConsumerRecorder::add(const ProcessState& state, const Event& event) {
    if (event.failed() || event.has(wire::kByShim)) return;
    switch (event.kind) {
        case Kind::kTouched:
            note(Use::kCopied, made_by(state, event.address), event);
            break;
        case Kind::kIpcExported:
            note(Use::kIpcExported, MadeBy::kLinear, event);
            break;
        case Kind::kRangeExported:
            note(Use::kRangeExported, made_by(state, event.address), event);
            break;
        case Kind::kHandleExported:
            note(Use::kHandleExported, MadeBy::kHandle, event);
            break;
        case Kind::kPoolExported:
        case Kind::kPoolPointerExported:
            note(Use::kPoolExported, MadeBy::kPool, event);
            break;
        case Kind::kAccessSet:
            if (reaches_a_peer(state, event)) note(Use::kPeers, MadeBy::kHandle, event);
            break;
        case Kind::kPeerAccessSet:
            if (event.address.value == 1) note(Use::kPeers, MadeBy::kLinear, event);
            break;
        case Kind::kPoolAccessSet:
            note(Use::kPeers, MadeBy::kPool, event);
            break;
        case Kind::kMulticastBound:
            note(Use::kMulticast, MadeBy::kHandle, event);
            break;
        case Kind::kArrayMapped:
            if (event.object.value != 0) note(Use::kArrays, MadeBy::kHandle, event);
            break;
        case Kind::kGraphLaunched:
            note(Use::kGraphs, MadeBy::kAny, event);
            break;
        case Kind::kBlockAcquired:
            if (blocks_looked_up_ < kLookedUp) {
                ++blocks_looked_up_;
                blocks_lie_in_ = made_by(state, event.address);
            }
            note(Use::kBlocks, blocks_lie_in_, event);
            break;
        case Kind::kMapped:
            if (continues_another(state, event)) note(Use::kStitched, MadeBy::kHandle, event);
            break;
        default:
            break;
    }
}

const ConsumerRecorder::Seen* ConsumerRecorder::seen(Use use, MadeBy kind) const {
    const Seen& found = seen_.at(static_cast<std::size_t>(use)).at(static_cast<std::size_t>(kind));
    return found.count == 0 ? nullptr : &found;
}

}  // namespace fragscope::analysis
