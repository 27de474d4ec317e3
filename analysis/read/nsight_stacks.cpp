#include "analysis/read/nsight_stacks.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/read/clean_text.h"
#include "analysis/read/nsight_calls.h"
#include "proto/chunk.h"

namespace fragscope::analysis {

namespace {
constexpr std::size_t kMaxFunctions = 60'000;  // a trace file names no more than 65,535
constexpr std::size_t kMaxNameBytes = 1024;
}  // namespace

std::uint32_t NsightStacks::stack(std::uint32_t process, std::int64_t chain) {
    if (chains_.size() + 2 >= trace::kMaxStacks && !chains_.contains(chain)) return 0;
    const std::uint32_t number =
        chains_.try_emplace(chain, static_cast<std::uint32_t>(chains_.size() + 1)).first->second;
    if (users_.empty() || users_.back() != std::pair(process, number)) users_.emplace_back(process, number);
    return number;
}

std::uint32_t NsightStacks::function(std::int64_t name, std::size_t first) {
    const auto known = function_of_.find(name);
    if (known != function_of_.end()) return static_cast<std::uint32_t>(first) + known->second;
    if (functions_.size() == kMaxFunctions) return 0;
    const auto number = static_cast<std::uint32_t>(functions_.size());
    function_of_.emplace(name, number);
    functions_.push_back(name);
    return static_cast<std::uint32_t>(first) + number;
}

void NsightStacks::read_frames(NsightTables& tables) {
    cut_.assign(chains_.size() + 1, false);
    tables.for_each_frame([&](const NsightFrameRow& row) {
        const auto chain = chains_.find(row.chain);
        if (chain == chains_.end()) return true;
        Frame frame;
        frame.stack = chain->second;
        frame.depth = row.depth;
        if (row.depth >= wire::kMaxFrames) {
            cut_[frame.stack] = true;
            return true;
        }
        if (row.symbol && places_.size() + 2 < trace::kMaxTexts) {
            const Place place{row.symbol, row.module};
            const auto number = static_cast<std::uint32_t>(places_.size() + 1);
            frame.word = wire::python_frame(places_.try_emplace(place, number).first->second, 0);
            texts_.try_emplace(*row.symbol);
            if (row.module) texts_.try_emplace(*row.module);
        } else {
            frame.word = wire::address_frame(row.address);
        }
        frames_.push_back(frame);
        return true;
    });
    std::stable_sort(frames_.begin(), frames_.end(), [](const Frame& a, const Frame& b) {
        return std::pair(a.stack, a.depth) < std::pair(b.stack, b.depth);
    });
}

void NsightStacks::read_texts(NsightTables& tables) {
    for (const std::int64_t name : functions_) texts_.try_emplace(name);
    if (texts_.empty()) return;
    tables.for_each_text([&](std::int64_t id, std::string_view text) {
        const auto wanted = texts_.find(id);
        if (wanted != texts_.end()) wanted->second = clean_text(text, kMaxNameBytes);
        return true;
    });
}

std::string NsightStacks::text(std::optional<std::int64_t> id) const {
    if (!id) return "";
    const auto found = texts_.find(*id);
    return found != texts_.end() && found->second
               ? *found->second
               : fmt::format("text {} of StringIds, which is not there", *id);
}

std::uint64_t NsightStacks::finish(NsightTables& tables, Trace& trace) {
    read_frames(tables);
    read_texts(tables);
    for (const std::int64_t name : functions_) trace.functions.emplace_back(nsight_function(text(name)));
    std::vector<std::string> places(places_.size() + 1);
    for (const auto& [place, number] : places_)
        places[number] = text(place.first) + "\n" + text(place.second);

    std::vector<trace::Stack> stacks(chains_.size() + 1);
    for (const Frame& frame : frames_) {
        trace::Stack& stack = stacks[frame.stack];
        // Two frames of one depth: the first is taken.
        if (static_cast<std::uint64_t>(stack.frames_size()) <= frame.depth) stack.add_frames(frame.word);
    }
    std::uint64_t missing = 0;
    for (std::size_t number = 1; number < stacks.size(); ++number) {
        stacks[number].set_id(static_cast<std::uint32_t>(number));
        stacks[number].set_cut(cut_[number]);
        if (stacks[number].frames_size() == 0) {
            stacks[number].set_lost(true);
            ++missing;
        }
    }
    for (const auto& [process, number] : users_) {
        ProcessNames& names = trace.names[process];
        const trace::Stack& stack = stacks[number];
        if (!names.stacks.try_emplace(number, stack).second) continue;
        for (const std::uint64_t frame : stack.frames()) {
            if (wire::frame_form(frame) != wire::FrameForm::kPython) continue;
            const std::uint32_t place = wire::frame_place(frame);
            names.texts.try_emplace(place, places[place]);
        }
    }
    return missing;
}

}  // namespace fragscope::analysis
