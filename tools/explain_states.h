// `fragscope explain` of a file that tells of failures and of no events: a message, an allocator's dump.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/contract.h"
#include "analysis/imported_state.h"
#include "tools/words_explain.h"

namespace fragscope::tools {

struct StateOptions {
    bool json = false;
    bool all = false;
    std::optional<std::uint32_t> number;  // nothing: the last one
    Pages pages = Pages::kWhole;
    std::string objective;                    // empty: none was declared
    std::optional<analysis::Shape> contract;  // nothing: as the request shows
};

// The exit status of the command.
int explain_states(const analysis::ImportedStates& states, const StateOptions& options);

}  // namespace fragscope::tools
