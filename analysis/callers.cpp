#include "analysis/callers.h"

#include <fmt/format.h>

#include <utility>

namespace fragscope::analysis {
namespace {

const ProcessNames* names_of(const Trace& trace, ProcessIndex process) {
    return process.value < trace.names.size() ? &trace.names[process.value] : nullptr;
}

// "train.py: step, line 12" of a Python frame's text "step\ntrain.py".
std::string python_words(const std::string& place, std::uint32_t line) {
    const std::size_t cut = place.find('\n');
    const std::string function = place.substr(0, cut);
    const std::string file = cut == std::string::npos ? "" : place.substr(cut + 1);
    return fmt::format("{} ({}{}) [Python]", function, file.empty() ? "file not known" : file,
                       line == 0 ? std::string() : fmt::format(":{}", line));
}

void add_frame(const Trace& trace, ProcessIndex process, std::uint64_t frame, report::CallStack& out) {
    switch (wire::frame_form(frame)) {
        case wire::FrameForm::kPython:
            out.add_frames(
                python_words(text_of(trace, process, wire::frame_place(frame)), wire::frame_line(frame)));
            return;
        case wire::FrameForm::kAddress:
            out.add_frames(fmt::format("{:#x} (code without a file)", wire::frame_address(frame)));
            return;
        case wire::FrameForm::kModule:
            break;
        default:
            out.add_frames("a frame of a form that this version does not know");
            return;
    }
    const std::uint64_t offset = wire::frame_offset(frame);
    const ProcessNames* names = names_of(trace, process);
    const auto module = names->modules.find(wire::frame_module(frame));
    if (module == names->modules.end()) {
        out.add_frames(fmt::format("{:#x} in a file whose name was lost", offset));
        return;
    }
    const std::string& path = module->second.path();
    out.add_frames(fmt::format(
        "{}+{:#x}", path.empty() ? "a file without a name" : path.substr(path.rfind('/') + 1), offset));
}

}  // namespace

std::string text_of(const Trace& trace, ProcessIndex process, std::uint64_t id) {
    const ProcessNames* names = names_of(trace, process);
    if (names != nullptr && id <= UINT32_MAX) {
        const auto found = names->texts.find(static_cast<std::uint32_t>(id));
        if (found != names->texts.end()) return found->second;
    }
    return fmt::format("text {} (lost)", id);
}

std::optional<report::CallStack> call_stack_of(const Trace& trace, ProcessIndex process, std::uint32_t stack,
                                               const StackWords& words) {
    if (stack == 0) return std::nullopt;
    report::CallStack out;
    const ProcessNames* names = names_of(trace, process);
    const auto found = names == nullptr ? decltype(names->stacks.end()){} : names->stacks.find(stack);
    if (names == nullptr || found == names->stacks.end()) {
        out.add_frames(fmt::format("call stack {}, whose frames were lost", stack));
        return out;
    }
    if (found->second.origin() != 0) out.set_origin(text_of(trace, process, found->second.origin()));
    if (words) {
        for (std::string& line : words(*names, found->second)) out.add_frames(std::move(line));
    } else {
        for (const std::uint64_t frame : found->second.frames()) add_frame(trace, process, frame, out);
    }
    out.set_cut(found->second.cut());
    out.set_lost(found->second.lost());
    out.set_no_lines(found->second.no_lines());
    return out;
}

}  // namespace fragscope::analysis
