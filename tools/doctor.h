// What `fragscope doctor` finds out before a recording: of the machine, and of the program that is to be
// recorded. Nothing here uses the GPU, makes a CUDA context or loads a driver into this process; what has to
// be loaded is loaded by a child.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fragscope::tools {

enum class FindingState {
    kOk,
    kNote,     // recording works, and something will be different from what one may expect
    kProblem,  // nothing, or not the program, can be recorded
};

struct Finding {
    FindingState state;
    std::string about;  // stable: used in JSON
    std::string says;   // one sentence
    std::string to_do;  // one sentence; empty: nothing
};

std::vector<Finding> examine_machine(const std::string& shim);
std::vector<Finding> examine_the_program(const std::vector<std::string>& program);

// What a child process wrote, and how it ended. Nothing: it could not be started, or did not end in time.
struct ChildOutput {
    std::string text;  // stdout and stderr, at most 64 KiB
    int status = 0;    // as a shell says it: 128 + the signal's number
};
std::optional<ChildOutput> output_of(const std::vector<std::string>& command,
                                     const std::vector<std::string>& more_environment = {});
// Runs `work` in a forked child; what it returns comes back.
std::optional<ChildOutput> output_of_child(const std::function<std::string()>& work);

}  // namespace fragscope::tools
