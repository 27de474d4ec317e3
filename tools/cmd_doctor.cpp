// `fragscope doctor`: before a long run, what a recording of it will see and what not.
//
// Exit status: 0 recording will work; 1 it will not, or not of this program; 2 wrong usage.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "collector/launch.h"
#include "collector/utf8.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/doctor.h"
#include "tools/json_text.h"
#include "tools/shim_path.h"
#include "tools/words.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

namespace {

constexpr std::size_t kIndent = 9;  // "problem  "

const char* word_of(FindingState state) {
    switch (state) {
        case FindingState::kOk:
            return "ok";
        case FindingState::kNote:
            return "note";
        case FindingState::kProblem:
            return "problem";
    }
    return "";
}

std::string in_words(const std::vector<Finding>& findings, const Style& style) {
    std::string out;
    for (const Finding& finding : findings) {
        std::string said = finding.says;
        if (!finding.to_do.empty()) said += " " + finding.to_do;
        std::string before = fmt::format("{:<{}}", word_of(finding.state), kIndent);
        for (const std::string& line : wrap(printable(collector::to_utf8(said), style.utf8),
                                            static_cast<std::size_t>(style.width) - kIndent)) {
            out += before + line + "\n";
            before.assign(kIndent, ' ');
        }
    }
    const auto count = [&](FindingState state) {
        return static_cast<std::uint64_t>(std::count_if(findings.begin(), findings.end(),
                                                        [&](const Finding& f) { return f.state == state; }));
    };
    const std::uint64_t problems = count(FindingState::kProblem);
    out += problems != 0
               ? fmt::format("\nRecording will not work as it is: {}.\n", counted(problems, "problem"))
               : fmt::format("\nRecording will work; {}.\n", counted(count(FindingState::kNote), "note"));
    return out;
}

std::string in_json(const std::vector<Finding>& findings) {
    std::string out;
    for (const Finding& finding : findings)
        out +=
            fmt::format("{{\"state\":\"{}\",\"about\":{},\"says\":{},\"to_do\":{}}}\n",
                        word_of(finding.state), quoted(finding.about),
                        quoted(collector::to_utf8(finding.says)), quoted(collector::to_utf8(finding.to_do)));
    return out;
}

}  // namespace

int cmd_doctor(int argc, char** argv) {
    CLI::App app(
        "Says before a long run what a recording will see and what not: of this machine,\n"
        "and of a program. The program is not started; the GPU is not used.\n"
        "  fragscope doctor [OPTIONS] [-- PROGRAM [ITS ARGUMENTS]]",
        "fragscope doctor");
    app.footer(
        "Example:\n"
        "  fragscope doctor -- python train.py\n\n"
        "Exit status: 0 recording will work; 1 it will not; 2 wrong usage.");
    std::string shim;
    bool json = false;
    app.add_option("--shim", shim, "the recorder to preload (default: the libfragscope.so that\ncame along)")
        ->type_name("FILE");
    app.add_flag("--json", json, "one JSON object a line, one for each finding");
    app.prefix_command();
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;
    std::vector<std::string> program = app.remaining();
    if (!program.empty() && program.front() == "--") {
        program.erase(program.begin());
        if (program.empty()) {
            complain("which program? As in: fragscope doctor -- ./program its-arguments");
            return kWrongUsage;
        }
    }
    if (!program.empty() && program.front().rfind('-', 0) == 0) {
        complain(fmt::format("there is no option {}; `fragscope doctor --help` lists them", program.front()));
        return kWrongUsage;
    }
    collector::occupy_standard_descriptors();
    if (shim.empty()) {
        shim = find_shim();
    } else if (char* whole = ::realpath(shim.c_str(), nullptr); whole != nullptr) {
        shim = whole;
        std::free(whole);
    }
    std::vector<Finding> findings = examine_machine(shim);
    if (!program.empty())
        for (Finding& finding : examine_the_program(program)) findings.push_back(std::move(finding));
    if (!write_answer(json ? in_json(findings) : in_words(findings, style_of_stdout()))) return kCannot;
    const bool works = std::none_of(findings.begin(), findings.end(),
                                    [](const Finding& f) { return f.state == FindingState::kProblem; });
    return works ? kDone : kCannot;
}

}  // namespace fragscope::tools
