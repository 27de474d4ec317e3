// The program that is to be recorded: whether the loader will put the recorder into it, and how it comes to
// the driver.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "collector/program_file.h"
#include "tools/doctor.h"
#include "tools/elf_facts.h"

namespace fragscope::tools {

namespace {

constexpr int kMaxInterpreters = 4;  // as many as the kernel follows

std::string search_path() {
    const char* path = std::getenv("PATH");
    return path != nullptr ? path : "/bin:/usr/bin";
}

// The words of a "#!" line; empty: it is no script.
std::vector<std::string> script_line(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    char text[256] = {};
    const ssize_t length = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (length < 2 || text[0] != '#' || text[1] != '!') return {};
    std::istringstream line(std::string(text + 2).substr(0, std::string(text + 2).find('\n')));
    std::vector<std::string> words;
    for (std::string word; line >> word;) words.push_back(word);
    return words;
}

// What `env` would run: its first word that is neither an option nor a variable.
std::string word_behind_env(const std::vector<std::string>& words) {
    for (std::size_t i = 1; i < words.size(); ++i)
        if (words[i].front() != '-' && words[i].find('=') == std::string::npos) return words[i];
    return "";
}

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

// Which file the loader takes for each library that the program needs, as the loader itself says without
// running it.
std::string where_loaded(const ElfFacts& facts, const std::string& path, const std::string& library) {
    // Only the system's own loader is asked: another one may be any program.
    if (!begins(facts.interpreter, "/lib") && !begins(facts.interpreter, "/usr/lib")) return "";
    const std::optional<ChildOutput> listing = output_of({facts.interpreter, "--list", path});
    if (!listing) return "";
    std::istringstream lines(listing->text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t arrow = line.find(library + " => ");
        if (arrow == std::string::npos) continue;
        const std::string found = line.substr(arrow + library.size() + 4);
        return begins(found, "not found") ? "not found" : found.substr(0, found.find(" ("));
    }
    return "";
}

void examine_runtime(const ElfFacts& facts, const std::string& path, std::vector<Finding>& out) {
    const auto needs = [&](const char* prefix) {
        const auto found = std::find_if(facts.needed.begin(), facts.needed.end(),
                                        [&](const std::string& name) { return begins(name, prefix); });
        return found != facts.needed.end() ? *found : std::string();
    };
    bool known = false;
    if (const std::string shared = needs("libcudart.so"); !shared.empty()) {
        known = true;
        const std::string where = where_loaded(facts, path, shared);
        if (where == "not found")
            out.push_back(
                {FindingState::kProblem, "CUDA runtime",
                 fmt::format("{} needs {}, which the loader does not find: it will not start.", path, shared),
                 "Add the folder that holds it to LD_LIBRARY_PATH."});
        else
            out.push_back(
                {FindingState::kOk, "CUDA runtime",
                 fmt::format("It uses the shared CUDA runtime {}{}: records will name its functions too.",
                             shared, where.empty() ? "" : " (" + where + ")"),
                 ""});
    }
    if (facts.static_cudart) {
        known = true;
        out.push_back(
            {FindingState::kOk, "CUDA runtime",
             fmt::format(
                 "It carries the CUDA runtime in itself{}: its calls of the driver are recorded; which "
                 "runtime function led to one can only be seen in call stacks.",
                 facts.nvcc_release.empty() ? "" : fmt::format(" (compiled by nvcc {})", facts.nvcc_release)),
             ""});
    }
    if (!needs("libcuda.so").empty()) {
        known = true;
        out.push_back(
            {FindingState::kOk, "CUDA driver", "It is linked with the driver library directly.", ""});
    }
    if (!known)
        out.push_back({FindingState::kNote, "CUDA runtime",
                       "The program's own file shows no CUDA runtime: if it uses CUDA, a library does it "
                       "that it loads, or a "
                       "process that it starts. Those are recorded as well.",
                       ""});
    const char* asan_options = std::getenv("ASAN_OPTIONS");
    const bool told = asan_options != nullptr &&
                      std::string(asan_options).find("verify_asan_link_order=0") != std::string::npos;
    if (!needs("libasan.so").empty() && !told)
        out.push_back(
            {FindingState::kProblem, "AddressSanitizer",
             "It is built with AddressSanitizer, which refuses to start behind a preloaded library.",
             "Set ASAN_OPTIONS=verify_asan_link_order=0 for the recording."});
    out.push_back({FindingState::kNote, "ways past the recorder",
                   "Whether it opens libraries with RTLD_DEEPBIND or dlmopen cannot be known before it runs: "
                   "memory that such "
                   "libraries take shows up as unattributed.",
                   ""});
}

void examine_python(const std::string& path, std::vector<Finding>& out) {
    if (!begins(file_name(path), "python")) return;
    const std::optional<ChildOutput> said =
        output_of({path, "-I", "-S", "-c",
                   "import sys; print('%d.%d %d' % (*sys.version_info[:2], sys.hexversion >= 0x30b0000))"});
    if (!said || said->status != 0 || said->text.size() < 5) {
        out.push_back({FindingState::kNote, "Python", "This Python does not tell its version.", ""});
        return;
    }
    const std::string version = said->text.substr(0, said->text.find(' '));
    if (said->text.find(" 1") != std::string::npos)
        out.push_back({FindingState::kOk, "Python",
                       fmt::format("Python {}: call stacks hold its functions and lines.", version), ""});
    else
        out.push_back(
            {FindingState::kNote, "Python",
             fmt::format(
                 "Python {}: call stacks hold the interpreter's own functions only; from Python 3.11 on they "
                 "hold the program's functions and lines.",
                 version),
             ""});
}

}  // namespace

std::vector<Finding> examine_the_program(const std::vector<std::string>& program) {
    std::vector<Finding> out;
    std::string name = program.front();
    for (int depth = 0;; ++depth) {
        const collector::ProgramFile file = collector::examine_program(name, search_path());
        if (file.path.empty()) {
            out.push_back({FindingState::kProblem, "program", file.error + ".", ""});
            return out;
        }
        if (!file.warning.empty()) {
            out.push_back({FindingState::kProblem, "program", file.warning + ".", ""});
            return out;
        }
        const std::vector<std::string> words = script_line(file.path);
        if (!words.empty() && depth < kMaxInterpreters) {
            name = words.front();
            if (file_name(name) == "env" && !word_behind_env(words).empty()) name = word_behind_env(words);
            out.push_back({FindingState::kOk, "program",
                           fmt::format("{} is a script, run by {}.", file.path, name), ""});
            continue;
        }
        const ElfFacts facts = read_elf_facts(file.path, {});
        if (!facts.is_elf) {
            out.push_back(
                {FindingState::kNote, "program",
                 fmt::format("{} is neither a program nor a script with \"#!\": a shell will run it.",
                             file.path),
                 ""});
            return out;
        }
        out.push_back(
            {FindingState::kOk, "program",
             fmt::format("{} is a 64-bit program, and preloaded libraries are loaded into it.", file.path),
             ""});
        examine_runtime(facts, file.path, out);
        examine_python(file.path, out);
        return out;
    }
}

}  // namespace fragscope::tools
