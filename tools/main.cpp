// The `fragscope` command: finds the command's row and runs it.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "tools/command.h"

namespace fragscope::tools {

namespace {

constexpr std::array kCommands{
    Command{"run", "start a program and record its GPU memory", cmd_run},
    Command{"explain", "say why a request for GPU memory failed, and what would have to change", cmd_explain},
    Command{"report", "say what a trace holds: amounts over time, peaks, failures, costs", cmd_report},
    Command{"state", "say what a program held at a moment, down to the blocks of its framework", cmd_state},
    Command{"dump", "print a trace's events, one a line", cmd_dump},
    Command{"import", "make a trace of what another tool has written", cmd_import},
    Command{"export", "write a trace in another tool's format", cmd_export},
    Command{"doctor", "say before a run what a recording will see and what not", cmd_doctor},
};

void print_help(std::FILE* to) {
    fmt::print(to,
               "Fragscope records what happens to GPU memory in an unmodified CUDA program, and explains its "
               "failures.\n"
               "\n"
               "  fragscope COMMAND [options]\n"
               "\n");
    for (const Command& command : kCommands) fmt::print(to, "  {:<9} {}\n", command.name, command.summary);
    fmt::print(to,
               "\n"
               "`fragscope COMMAND --help` tells more. To begin with:\n"
               "  fragscope run -- ./program its-arguments\n");
}

// What is wrong with the options, for a person. CLI11 says "Could not convert: --limit = x" where a number
// was expected; all options whose values it converts are numbers.
std::string wrong_usage(const CLI::ParseError& error) {
    const std::string said = error.what();
    constexpr std::string_view kPrefix = "Could not convert: ";
    const std::size_t equals = said.find(" = ");
    if (said.rfind(kPrefix, 0) != 0 || equals == std::string::npos) return said;
    return fmt::format("{} {}: expected a number", said.substr(kPrefix.size(), equals - kPrefix.size()),
                       said.substr(equals + 3));
}

}  // namespace

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
        return std::nullopt;
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
            const std::string help = app.help();
            fmt::print("{}{}", help, help.empty() || help.back() != '\n' ? "\n" : "");
            return kDone;
        }
        complain(fmt::format("{} (`{} --help` lists the options)", wrong_usage(e), app.get_name()));
        return kWrongUsage;
    }
}

void complain(const std::string& sentence) { fmt::print(stderr, "fragscope: {}\n", sentence); }

}  // namespace fragscope::tools

int main(int argc, char** argv) {
    using namespace fragscope::tools;
    if (argc < 2) {
        print_help(stderr);
        return kWrongUsage;
    }
    const char* name = argv[1];
    if (std::strcmp(name, "--help") == 0 || std::strcmp(name, "-h") == 0 || std::strcmp(name, "help") == 0) {
        print_help(stdout);
        return kDone;
    }
    if (std::strcmp(name, "--version") == 0) {
        fmt::print("fragscope {}\n", FRAGSCOPE_VERSION);
        return kDone;
    }
    for (const Command& command : kCommands) {
        if (std::strcmp(name, command.name) != 0) continue;
        try {
            return command.run(argc - 1, argv + 1);
        } catch (const std::bad_alloc&) {
            complain(fmt::format("{}: what it needs does not fit into memory", command.name));
            return kCannot;
        } catch (const std::exception& e) {
            complain(fmt::format("{}: {}", command.name, e.what()));
            return kCannot;
        }
    }
    complain(fmt::format("there is no command '{}'; `fragscope --help` lists them", name));
    return kWrongUsage;
}
