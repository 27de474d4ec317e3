// `fragscope explain --scenario`: states written by hand (SCENARIOS.md), one a line.
#pragma once

#include <optional>
#include <string>

#include "analysis/contract.h"
#include "tools/words_explain.h"

namespace fragscope::tools {

struct ScenarioOptions {
    std::string file;  // "-": standard input
    bool json = false;
    bool check = false;  // compare with what each line expects
    Pages pages = Pages::kWhole;
    std::string objective;  // empty: none was declared
    std::optional<analysis::Shape> contract;  // nothing: as the request shows
};

// The exit status of the command.
int explain_scenarios(const ScenarioOptions& options);

}  // namespace fragscope::tools
