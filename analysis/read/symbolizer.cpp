#include "analysis/read/symbolizer.h"

#include <fmt/format.h>

#include "proto/wire.h"

namespace fragscope::analysis {

namespace {

constexpr std::size_t kMaxRemembered = std::size_t{1}
                                       << 18;  // names of frames; beyond that all are forgotten

FrameName python_frame(const ProcessNames& names, std::uint64_t frame) {
    FrameName name;
    name.form = NameForm::kPython;
    name.line = wire::frame_line(frame);
    const auto place = names.texts.find(wire::frame_place(frame));
    if (place == names.texts.end()) return name;  // its record was lost
    const std::size_t end = std::min(place->second.find('\n'), place->second.size());
    name.function = place->second.substr(0, end);
    if (end < place->second.size()) name.file = place->second.substr(end + 1);
    return name;
}

}  // namespace

std::vector<FrameName> Symbolizer::frames(const ProcessNames& names, const trace::Stack& stack) {
    std::vector<FrameName> out;
    for (const std::uint64_t frame : stack.frames()) {
        switch (wire::frame_form(frame)) {
            case wire::FrameForm::kModule:
                module_frame(names, frame, out);
                break;
            case wire::FrameForm::kPython:
                out.push_back(python_frame(names, frame));
                break;
            default: {
                FrameName name;
                name.form = NameForm::kAddress;
                name.offset = wire::frame_address(frame);
                out.push_back(std::move(name));
            }
        }
    }
    return out;
}

void Symbolizer::module_frame(const ProcessNames& names, std::uint64_t frame, std::vector<FrameName>& out) {
    const std::uint64_t offset = wire::frame_offset(frame);
    const auto module = names.modules.find(wire::frame_module(frame));
    if (module == names.modules.end()) {
        FrameName name;
        name.offset = offset;
        name.why = "which file it lies in was lost while recording";
        out.push_back(std::move(name));
        return;
    }
    if (remembered_ > kMaxRemembered) {
        files_.clear();
        remembered_ = 0;
    }
    File& file = files_[module->second.build_id() + '\n' + module->second.path()];
    auto known = file.known.find(offset);
    if (known == file.known.end()) {
        known = file.known.emplace(offset, look_up(module->second, offset, file)).first;
        remembered_ += known->second.size();
    }
    out.insert(out.end(), known->second.begin(), known->second.end());
}

std::vector<FrameName> Symbolizer::look_up(const trace::CodeModule& module, std::uint64_t offset,
                                           File& file) {
    FrameName base;
    base.module = module.path();
    base.offset = offset;
    std::vector<CodePlace> places;
    if (file.problem.empty() && offset != 0) {
        // The instruction of the call, which ends where the next one begins: a call that never returns may be
        // the last of its function.
        SymbolProcess::Answer answer = process_.places(module.path(), module.build_id(), offset - 1);
        places = std::move(answer.places);
        if (!answer.problem.empty()) file.problem = answer.problem;
    }
    if (places.empty()) {
        base.why = file.problem.empty() ? "the file has no name for this place" : file.problem;
        return {std::move(base)};
    }
    std::vector<FrameName> out;
    for (CodePlace& place : places) {
        FrameName& name = out.emplace_back(base);
        name.form = place.symbol ? NameForm::kSymbol : NameForm::kSource;
        name.function = std::move(place.function);
        name.file = std::move(place.file);
        name.line = place.line;
        name.inlined = place.inlined;
        name.into = place.symbol ? place.into + 1 : 0;  // to `offset`, which is one behind what was looked up
    }
    return out;
}

}  // namespace fragscope::analysis
