#include "collector/names.h"

#include <algorithm>
#include <cstring>

#include "collector/utf8.h"
#include "proto/chunk.h"

namespace fragscope::collector {

namespace {

constexpr std::uint16_t kKnownStackFlags = wire::kStackCut | wire::kStackLost | wire::kStackNoLines;

// The first `sizeof(Payload)` bytes of the text, which must be that long.
template <typename Payload>
Payload payload_of(const Text& text) {
    Payload payload;
    std::memcpy(&payload, text.text.data(), sizeof payload);
    return payload;
}

bool is_known_form(std::uint64_t frame) { return wire::frame_form(frame) <= wire::FrameForm::kPython; }

}  // namespace

bool is_name(wire::TextKind kind) {
    return kind == wire::TextKind::kString || kind == wire::TextKind::kModule ||
           kind == wire::TextKind::kStack;
}

NameTable::NameTable() : texts_(trace::kMaxTexts), modules_(trace::kMaxModules), stacks_(trace::kMaxStacks) {}

bool NameTable::Numbers::add(std::uint32_t number) {
    if (number >= defined_.size()) {
        // Doubled, as numbers usually count upwards; never beyond the limit.
        const std::size_t wanted = std::max<std::size_t>(std::size_t{number} + 1, 2 * defined_.size());
        defined_.resize(std::min<std::size_t>(wanted, limit_));
    }
    if (defined_[number]) return false;
    defined_[number] = true;
    return true;
}

NameTable::Took NameTable::take(const Text& text, trace::Names& out) {
    switch (text.kind) {
        case wire::TextKind::kString:
            return take_text(text, out);
        case wire::TextKind::kModule:
            return take_module(text, out);
        case wire::TextKind::kStack:
            return take_stack(text, out);
        default:
            return Took::kRefused;
    }
}

NameTable::Took NameTable::take_text(const Text& text, trace::Names& out) {
    if (!texts_.possible(text.id)) return Took::kRefused;
    if (!texts_.add(text.id)) return Took::kKnown;
    trace::Text& added = *out.add_texts();
    added.set_id(text.id);
    added.set_text(to_utf8(text.text));
    return Took::kNew;
}

NameTable::Took NameTable::take_module(const Text& text, trace::Names& out) {
    if (!modules_.possible(text.id) || text.text.size() < sizeof(wire::ModuleText)) return Took::kRefused;
    const auto payload = payload_of<wire::ModuleText>(text);
    const std::size_t rest = text.text.size() - sizeof payload;
    if (payload.build_id_bytes > wire::kMaxBuildIdBytes || payload.build_id_bytes > rest ||
        payload.begin > payload.end)
        return Took::kRefused;
    if (!modules_.add(text.id)) return Took::kKnown;
    trace::CodeModule& added = *out.add_modules();
    added.set_id(text.id);
    added.set_build_id(text.text.substr(sizeof payload, payload.build_id_bytes));
    added.set_path(to_utf8(std::string_view(text.text).substr(sizeof payload + payload.build_id_bytes)));
    added.set_begin(payload.begin);
    added.set_end(payload.end);
    added.set_bias(payload.bias);
    return Took::kNew;
}

NameTable::Took NameTable::take_stack(const Text& text, trace::Names& out) {
    if (!stacks_.possible(text.id) || text.text.size() < sizeof(wire::StackText)) return Took::kRefused;
    const auto payload = payload_of<wire::StackText>(text);
    if (payload.frames > wire::kMaxFrames || (payload.flags & ~kKnownStackFlags) != 0 ||
        text.text.size() != sizeof payload + payload.frames * sizeof(std::uint64_t))
        return Took::kRefused;
    std::vector<std::uint64_t> frames(payload.frames);
    if (!frames.empty())
        std::memcpy(frames.data(), text.text.data() + sizeof payload, frames.size() * sizeof frames[0]);
    if (!std::all_of(frames.begin(), frames.end(), is_known_form)) return Took::kRefused;
    if (!stacks_.add(text.id)) return Took::kKnown;
    trace::Stack& added = *out.add_stacks();
    added.set_id(text.id);
    added.set_origin(payload.origin);
    added.mutable_frames()->Add(frames.begin(), frames.end());
    added.set_cut((payload.flags & wire::kStackCut) != 0);
    added.set_lost((payload.flags & wire::kStackLost) != 0);
    added.set_no_lines((payload.flags & wire::kStackNoLines) != 0);
    return Took::kNew;
}

}  // namespace fragscope::collector
