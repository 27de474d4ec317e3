// What processes held at moments that somebody names: one message for each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "analysis/trace.h"
#include "proto/state.pb.h"

namespace fragscope::analysis {

struct AtSequence {
    std::uint64_t sequence = 0;
};
struct AtMarks {
    std::string text;
    bool prefix = false;  // marks that begin with the text, too
};
struct AtFailure {
    std::uint32_t number = 0;  // from 1, as `list_failures` has them
};
struct AtEnd {};

struct StateQuestion {
    std::string asked;  // as the person wrote it
    std::variant<AtSequence, AtMarks, AtFailure, AtEnd> where;
    std::optional<std::uint32_t> process;
    // What the answers hold: at many moments the lists of one part are often all that is wanted.
    bool driver = true;
    bool framework = true;
};

// "17", "mark:TEXT", "mark:TEXT*", "failure:2", "end"; nothing: it is none of them.
std::optional<StateQuestion> state_question(const std::string& asked);

// Calls `answer` for each moment that the question names, process by process and in order of time inside
// each, reading the events once. Stops, and returns an empty text, when `answer` says false. Otherwise a
// sentence without a full stop that says why there is no answer, or nothing.
std::string answer_states(const Trace& trace, const StateQuestion& question,
                          const std::function<bool(const report::State&)>& answer);

}  // namespace fragscope::analysis
