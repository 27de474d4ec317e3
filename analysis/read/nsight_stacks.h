// Call chains and names of an Nsight export for the events that name them: only what is used is held.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/read/nsight_tables.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

class NsightStacks {
  public:
    // The number of a stack that the events of this process name; the same chain has the same number in all.
    // 0: there are more than a trace can name.
    std::uint32_t stack(std::uint32_t process, std::int64_t chain);
    // The number of a function that is named so in StringIds, counted from `first`.
    std::uint32_t function(std::int64_t name, std::size_t first);
    bool any() const { return !chains_.empty(); }

    // Reads what the numbers stand for, and puts it into the trace: the functions behind those that are
    // there, the stacks into the names of their processes. Chains that are nowhere in the file: how many.
    std::uint64_t finish(NsightTables& tables, Trace& trace);

  private:
    struct Frame {
        std::uint32_t stack = 0;
        std::uint64_t depth = 0;
        std::uint64_t word = 0;  // wire::FrameForm
    };
    using Place = std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>;  // symbol, module
    void read_frames(NsightTables& tables);
    void read_texts(NsightTables& tables);
    std::string text(std::optional<std::int64_t> id) const;

    std::unordered_map<std::int64_t, std::uint32_t> chains_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> users_;  // process and stack
    std::unordered_map<std::int64_t, std::uint32_t> function_of_;
    std::vector<std::int64_t> functions_;
    std::map<Place, std::uint32_t> places_;
    std::vector<Frame> frames_;
    std::vector<bool> cut_;  // by stack
    std::unordered_map<std::int64_t, std::optional<std::string>> texts_;
};

}  // namespace fragscope::analysis
