// Lines of Python in stacks, held against what Python itself says at the same call (lines.py), by every
// Python that the build found and those in MORE_PYTHONS (paths with spaces between), for versions that are
// not on PATH.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "../preload/session.h"

using namespace fragscope;
using namespace fragscope::preload_test;
using wire::Kind;

namespace {

using Lines = std::vector<std::string>;  // "FILE:LINE FUNCTION"

std::map<std::uint64_t, Lines> expected_lines(const std::string& output) {
    std::map<std::uint64_t, Lines> all;
    std::istringstream text(output);
    std::uint64_t bytes = 0;
    for (std::string line; std::getline(text, line);) {
        if (line.rfind("lines ", 0) == 0)
            bytes = std::stoull(line.substr(6));
        else if (line.rfind("  ", 0) == 0)
            all[bytes].push_back(line.substr(2));
    }
    return all;
}

Lines lines_of(const Sent& sent, const SentStack& stack) {
    Lines lines;
    for (const std::uint64_t frame : stack.frames) {
        if (wire::frame_form(frame) != wire::FrameForm::kPython) continue;
        const std::string& place = sent.strings.at(wire::frame_place(frame));
        const std::size_t end = place.find('\n');
        lines.push_back(place.substr(end + 1) + ":" + std::to_string(wire::frame_line(frame)) + " " +
                        place.substr(0, end));
    }
    return lines;
}

struct Interpreter {
    std::string path;
    int minor;
};
std::vector<Interpreter> interpreters() {
    std::vector<Interpreter> all;
    const char* more = std::getenv("MORE_PYTHONS");
    std::istringstream text(std::string(std::getenv("PYTHONS")) + " " + (more != nullptr ? more : ""));
    for (std::string path; text >> path;) {
        const Outcome asked =
            run_plain({path, "-c", "import sys; print(sys.version_info[1], sys.executable)"});
        std::istringstream words(asked.output);
        Interpreter found{"", 0};
        if (asked.status != 0 || !(words >> found.minor >> found.path))
            continue;  // a name without a Python behind it
        all.push_back(found);
    }
    return all;
}

}  // namespace

TEST_CASE("the lines of Python are those that Python itself sees") {
    int known = 0;
    for (const Interpreter& python : interpreters()) {
        CAPTURE(python.path);
        Options options;
        options.stack_bytes = 1;
        options.ring_records = 1u << 16;
        Session session(options);
        const Outcome outcome =
            session.run({python.path, "-I", std::getenv("LINES"), paths().driver + "/libcuda.so.1"});
        REQUIRE(outcome.status == 0);
        const auto sent = session.sent();
        REQUIRE(sent.size() == 1);
        const auto expected = expected_lines(outcome.output);
        REQUIRE(expected.size() > 70);
        const bool supported = python.minor >= 11 && python.minor <= 13;
        known += supported ? 1 : 0;
        std::size_t compared = 0;
        for (const wire::Record& record : sent[0].of(Kind::kLinearAcquired)) {
            if (expected.count(record.bytes) == 0) continue;
            const SentStack& stack = sent[0].stacks.at(record.stack);
            const Lines seen = lines_of(sent[0], stack);
            CHECK(stack.head.flags == (supported ? 0 : wire::kStackNoLines));
            if (supported)
                CHECK(seen == expected.at(record.bytes));
            else
                CHECK(seen.empty());
            ++compared;
        }
        CHECK(compared == expected.size());
    }
    WARN_MESSAGE(known > 0, "no Python from 3.11 to 3.13 was found");
}

TEST_CASE("lines of Python stand where the evaluation loop that runs them stands") {
    for (const Interpreter& python : interpreters()) {
        if (python.minor < 11 || python.minor > 13) continue;
        CAPTURE(python.path);
        Options options;
        options.stack_bytes = 1;
        options.ring_records = 1u << 16;
        Session session(options);
        const Outcome outcome =
            session.run({python.path, "-I", std::getenv("LINES"), paths().driver + "/libcuda.so.1"});
        const auto sent = session.sent();
        REQUIRE(sent.size() == 1);
        std::size_t checked = 0;
        for (const auto& [number, stack] : sent[0].stacks) {
            bool line_before = false, native_between = false, second_run = false;
            for (const std::uint64_t frame : stack.frames) {
                const bool line = wire::frame_form(frame) == wire::FrameForm::kPython;
                second_run = second_run || (line && line_before && native_between);
                native_between = !line && (native_between || line_before);
                line_before = line_before || line;
            }
            const Lines lines = lines_of(sent[0], stack);
            if (lines.size() < 2) continue;
            // The innermost frame of all is not Python's: ctypes called the driver.
            CHECK(wire::frame_form(stack.frames.at(0)) != wire::FrameForm::kPython);
            // sorted() and map() call back from C: their lambdas are in a loop of their own.
            if (lines[1].find("<lambda>") == std::string::npos) continue;
            CHECK(second_run);
            ++checked;
        }
        CHECK(checked >= 3);
    }
}
