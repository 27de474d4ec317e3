#include "analysis/read/torch_names.h"

#include <algorithm>

namespace fragscope::analysis {

namespace {

// What a trace file can hold: see proto/FORMAT.md.
constexpr std::size_t kMostTexts = (std::size_t{1} << 20) - 1;
constexpr std::uint32_t kMostStacks = (std::uint32_t{1} << 22) - 1;

}  // namespace

std::uint32_t SnapshotNames::text(const std::string& text) {
    if (names_.texts.size() == kMostTexts) {
        complete_ = false;
        return 0;
    }
    const auto number = static_cast<std::uint32_t>(names_.texts.size() + 1);
    names_.texts[number] = text;
    return number;
}

std::uint32_t SnapshotNames::text(std::uint32_t of_file) {
    if (of_file == 0) return 0;
    const auto [known, added] = texts_.try_emplace(of_file, 0);
    if (added) known->second = text(file_.texts[of_file]);
    return known->second;
}

std::uint32_t SnapshotNames::stack(std::uint32_t of_file) const {
    return of_file > kMostStacks ? 0 : of_file;
}

std::uint32_t SnapshotNames::place(const SnapshotFrame& frame) {
    const auto [known, added] = places_.try_emplace({frame.name, frame.file}, 0);
    if (added) {
        const std::string& file = file_.texts[frame.file];
        known->second = text(file_.texts[frame.name] + "\n" + (file.empty() ? "source not told" : file));
    }
    return known->second;
}

void SnapshotNames::add_stacks() {
    for (std::uint32_t i = 1; i < file_.stacks.size(); ++i) {
        if (i > kMostStacks) {
            complete_ = false;
            return;
        }
        trace::Stack& stack = names_.stacks[i];
        stack.set_id(i);
        const std::size_t shown = std::min<std::size_t>(file_.stacks[i].size(), wire::kMaxFrames);
        for (std::size_t f = 0; f < shown; ++f) {
            const SnapshotFrame& frame = file_.frames[file_.stacks[i][f]];
            stack.add_frames(wire::python_frame(place(frame), frame.line));
        }
        stack.set_cut(shown != file_.stacks[i].size());
    }
}

}  // namespace fragscope::analysis
