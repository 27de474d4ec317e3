// What processes held at moments that somebody names: one message for each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "analysis/callers.h"
#include "analysis/domain_shown.h"
#include "analysis/moment.h"
#include "analysis/trace.h"
#include "proto/state.pb.h"

namespace fragscope::analysis {

struct StateQuestion {
    std::string asked;  // as the person wrote it
    Where where;
    std::optional<std::uint32_t> process;
    // What the answers hold: at many moments the lists of one part are often all that is wanted.
    bool driver = true;
    bool framework = true;
    // Only this domain, and none of the lists.
    std::optional<DomainName> domain;
    StackWords stack_words;  // for the places that hold what leaks
};

// Calls `answer` for each moment that the question names, process by process and in order of time inside
// each, reading the events once. Stops, and returns an empty text, when `answer` says false. Otherwise a
// sentence without a full stop that says why there is no answer, or nothing.
std::string answer_states(const Trace& trace, const StateQuestion& question,
                          const std::function<bool(const report::State&)>& answer);

}  // namespace fragscope::analysis
