// Failures that another tool's file tells of without any events: an error message, an allocator's dump. Each is
// a state and one failed request, like a scenario that a person wrote, and gets the same analysis
// (explain_scenario.h). What the file does not say stays unknown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/scenario.h"

namespace fragscope::analysis {

struct ImportedState {
    std::string kind;      // "torch-message"
    std::string in_words;  // "PyTorch's out-of-memory message"
    std::uint64_t line = 0;  // of the file, from 1, where it begins; 0: the file has no lines
    Scenario scenario;       // its title is what the message says, in short
    std::vector<std::string> not_in_source;  // what it does not say, one sentence each
    // One sentence each: it breaks off, contradicts itself, or a part of it could not be read. The answer is
    // incomplete then.
    std::vector<std::string> warnings;
};

struct ImportedStates {
    std::string kind;  // of the importer
    std::string file;
    std::vector<ImportedState> states;  // in the order of the file
    std::uint64_t before_them = 0;      // earlier ones that were not kept
    std::vector<std::string> warnings;  // of the whole file
};

}  // namespace fragscope::analysis
