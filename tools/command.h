// A command of `fragscope`: a row in the table of main.cpp and a function in a file of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace fragscope::tools {

// Exit statuses of all commands that read a trace; `run` ends with the program's own (see cmd_run.cpp).
enum Exit : int {
    kDone = 0,
    kCannot = 1,  // unreadable, foreign or damaged input; output that cannot be written
    kWrongUsage = 2,
    kIncompleteTrace = 3,  // answered, from a trace that is cut off or damaged: said at the top of the answer
};

struct Command {
    const char* name;
    const char* summary;                // one line, for `fragscope --help`
    int (*run)(int argc, char** argv);  // argv[0] is the command's name
};

int cmd_run(int argc, char** argv);
int cmd_dump(int argc, char** argv);
int cmd_explain(int argc, char** argv);
int cmd_report(int argc, char** argv);
int cmd_state(int argc, char** argv);
int cmd_import(int argc, char** argv);
int cmd_export(int argc, char** argv);
int cmd_doctor(int argc, char** argv);

// Parses a command's options. A value: there is nothing more to do, exit with it (help was asked for, wrong
// usage).
std::optional<int> parse(CLI::App& app, int argc, char** argv);
// "fragscope: …" on standard error.
void complain(const std::string& sentence);

}  // namespace fragscope::tools
