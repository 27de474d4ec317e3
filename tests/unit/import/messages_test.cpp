// Messages of failed requests, in the wordings that programs have, with numbers of our own. For each the cause that a
// careful reader comes to, computed by hand in the comment above it. All of them are printed as a table at the end,
// with those of a folder of real ones where FRAGSCOPE_CORPUS names one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "analysis/explain_state.h"
#include "analysis/read/message_text.h"
#include "tests/unit/import/imported.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

ImportedStates states_in(const std::string& text) {
    InputResult read = read_text(text);
    REQUIRE_MESSAGE(read.states, read.error);
    return std::move(*read.states);
}

// The last one, which `explain` takes.
report::Explanation explained(const std::string& text) {
    const ImportedStates states = states_in(text);
    return explain_state(states, states.states.size() - 1);
}

std::string cause_of(const report::Verdict& verdict) {
    return report::Verdict::Cause_Name(verdict.cause()) +
           (verdict.constraint().empty() ? "" : " (" + verdict.constraint() + ")");
}

const Scenario& last(const ImportedStates& states) { return states.states.back().scenario; }

bool any_has(const std::vector<std::string>& texts, const std::string& part) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

std::string verdict_of(const std::string& text) { return cause_of(explained(text).verdict()); }

}  // namespace

TEST_CASE("PyTorch's sentences: what would have to be removed decides") {
    // 22.78 GiB are more than 12.73 free and 9.35 unused together (22.08).
    CHECK(verdict_of("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.80 GiB. GPU 0 has a total capacity "
                     "of 31.50 GiB of which 12.75 GiB is free. Including non-PyTorch memory, this process has 18.70 GiB "
                     "memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 9.40 GiB is reserved by "
                     "PyTorch but unallocated.") == "capacity_exhaustion");
    // 158 MiB: not in 115.69 MiB free, and 910 MiB lie unused in segments that hold blocks: in pieces.
    CHECK(verdict_of("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 158.00 MiB. GPU 0 has a total capacity "
                     "of 23.69 GiB of which 115.69 MiB is free. Process 4711 has 23.57 GiB memory in use. Of the allocated "
                     "memory 22.14 GiB is allocated by PyTorch, and 910.35 MiB is reserved by PyTorch but unallocated.") ==
          "allocator_external_fragmentation");
    // 960 MiB of 15.52 GiB that nobody held: the driver refused for no reason that is there.
    CHECK(verdict_of("OutOfMemoryError: CUDA out of memory. Tried to allocate 960.00 MiB. GPU 0 has a total capacity of "
                     "23.99 GiB of which 15.52 GiB is free. Of the allocated memory 6.78 GiB is allocated by PyTorch, and "
                     "76.36 MiB is reserved by PyTorch but unallocated.") == "other_constraint (driver_refused)");
    // 8.13 of 8.20 GiB: it should have fitted, but not by more than the driver may need.
    CHECK(verdict_of("RuntimeError: CUDA out of memory. Tried to allocate 8.13 GiB (GPU 0; 10.76 GiB total capacity; 643.50 "
                     "MiB already allocated; 8.20 GiB free; 32.50 MiB cached)") == "undetermined");
    // 2 GiB of a device that another process fills: 31.36 less 30.57 of the other leaves 0.79, with this one's own
    // 0.77; without the other it fits.
    const report::Explanation other = explained(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 31.36 GiB of which 2.62 MiB is free. "
        "Process 81034 has 30.57 GiB memory in use. Including non-PyTorch memory, this process has 784.00 MiB memory in "
        "use. Of the allocated memory 179.69 MiB is allocated by PyTorch, and 12.31 MiB is reserved by PyTorch but "
        "unallocated.");
    // A segment of 20 MiB may have been wanted for a block of little more than 1 MiB, and 12 MiB lie unused in pieces.
    CHECK(other.verdict().cause() == report::Verdict::undetermined);
}

TEST_CASE("PyTorch's parentheses: reserved memory is in total, cached memory is what lies unused") {
    // 5.28 reserved less 3.53 in blocks leaves 1.75 in pieces; 1.65 asked for, 1.40 free.
    CHECK(verdict_of("RuntimeError: CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total capacity; 3.53 GiB "
                     "already allocated; 1.40 GiB free; 5.28 GiB reserved in total by PyTorch) If reserved memory is >> "
                     "allocated memory try setting max_split_size_mb to avoid fragmentation.") ==
          "allocator_external_fragmentation");
    // 9.49 less 9.18 (0.31) and 0.56 free are less than 1006 MiB.
    CHECK(verdict_of("RuntimeError: CUDA out of memory. Tried to allocate 1006.00 MiB (GPU 0; 10.91 GiB total capacity; 9.18 "
                     "GiB already allocated; 569.81 MiB free; 9.49 GiB reserved in total by PyTorch)") ==
          "capacity_exhaustion");
    const ImportedStates old = states_in(
        "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 3; 10.92 GiB total capacity; 8.50 GiB already "
        "allocated; 200.00 MiB free; 1.25 GiB cached)");
    const Scenario& scenario = last(old);
    CHECK(scenario.device_name == "GPU 3");
    REQUIRE(scenario.segments.size() == 1);
    // "X.XX GiB" is 0.005 GiB either way: 5368709.12 bytes, whole ones inside.
    CHECK(scenario.segments[0].unused == Interval{kGiB * 5 / 4 - 5368709, kGiB * 5 / 4 + 5368709});
    CHECK(scenario.device.device_free == Interval{200 * kMiB - 5242, 200 * kMiB + 5242});
    const ImportedStates limited = states_in(
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 3.00 GiB already "
        "allocated; 4.00 GiB free; 4.00 GiB allowed; 3.25 GiB reserved in total by PyTorch)");
    // 3.25 and 2.00 are more than the 4.00 allowed, and the device has 4.00: the share refused it.
    CHECK(cause_of(explain_state(limited, 0).verdict()) == "commitment_limit");
}

TEST_CASE("\"Tried to allocate\" is a segment: what a gap has to have for the block is less") {
    const auto in_gap = [](const std::string& tried) {
        return *last(states_in("CUDA out of memory. Tried to allocate " + tried +
                               ". GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free. Of the allocated memory "
                               "7.00 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated."))
                    .request.in_gap;
    };
    CHECK(in_gap("2.00 MiB") == Interval{512, kMiB});
    CHECK(in_gap("20.00 MiB") == Interval{kMiB + 512, 20 * kMiB});
    CHECK(in_gap("158.00 MiB") == Interval{156 * kMiB + 512, 158 * kMiB});
    // 1.945 to 1.955 GiB: 1991.68 to 2001.92 MiB; whole 2 MiB in it: 1992 to 2000.
    CHECK(in_gap("1.95 GiB") == Interval{1990 * kMiB + 512, 2000 * kMiB});
}

TEST_CASE("processes: this one is told by what PyTorch has reserved") {
    // 25.50 + 3.14 GiB are reserved here: only the second holds as much. Two others would leave it open.
    const ImportedStates states = states_in(
        "CUDA out of memory. Tried to allocate 124.68 GiB. GPU 0 has a total capacity of 95.22 GiB of which 51.23 GiB is free. "
        "Process 608946 has 14.91 GiB memory in use. Process 734147 has 29.07 GiB memory in use. Of the allocated memory "
        "25.50 GiB is allocated by PyTorch, and 3.14 GiB is reserved by PyTorch but unallocated.");
    const ScenarioDevice& device = last(states).device;
    // 14.91 GiB, 0.005 GiB either way.
    CHECK(device.other_processes == Interval{16004121887, 16014859304});
    CHECK(any_has(states.states.back().not_in_source, "process 734147 is this one"));
    CHECK(states.states.back().warnings.empty());
    const ImportedStates open = states_in(
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 95.00 GiB of which 1.00 MiB is free. "
        "Process 1 has 40.00 GiB memory in use. Process 2 has 50.00 GiB memory in use. Of the allocated memory 30.00 GiB is "
        "allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated.");
    CHECK(any_has(open.states.back().not_in_source, "several hold as much"));
}

TEST_CASE("what contradicts itself is said, and the answer is incomplete") {
    const ImportedStates spilled = states_in(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
        "which 0 bytes is free. Of the allocated memory 13.98 GiB is allocated by PyTorch, and 129.48 MiB is reserved by "
        "PyTorch but unallocated.");
    CHECK(any_has(spilled.states.back().warnings, "a part of it is not on the device"));
    CHECK_FALSE(explain_state(spilled, 0).health().complete());
    const ImportedStates more = states_in(
        "RuntimeError: CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total capacity; 5.53 GiB already "
        "allocated; 1.40 GiB free; 5.28 GiB reserved in total by PyTorch)");
    CHECK(any_has(more.states.back().warnings, "contradicts itself"));
    const ImportedStates cut = states_in(
        "CUDA out of memory. Tried to allocate 158.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 115.69 MiB is free. "
        "Process 4711 has 23.5");
    CHECK(any_has(cut.states.back().warnings, "breaks off"));
    // Nothing is known of what the allocator has unused.
    CHECK(explain_state(cut, 0).verdict().cause() == report::Verdict::undetermined);
    CHECK_FALSE(explain_state(cut, 0).health().complete());
}

TEST_CASE("private pools: what the message calls allocated there lies unused, and serves them only") {
    // 10.74 GiB: 7.86 free, nothing unused outside of private pools, 12.03 unused in them.
    const std::string text =
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 10.74 GiB. GPU 0 has a total capacity of 47.53 GiB of which "
        "7.86 GiB is free. Process 471567 has 39.44 GiB memory in use. Of the allocated memory 38.50 GiB is allocated by "
        "PyTorch, with 12.03 GiB allocated in private pools (e.g., CUDA Graphs), and 512.00 MiB is reserved by PyTorch but "
        "unallocated.";
    const ImportedStates states = states_in(text);
    REQUIRE(last(states).segments.size() == 2);
    CHECK(last(states).segments[1].owner == "private");
    CHECK(last(states).segments[1].unused == last(states).segments[1].bytes);
    // Without what lies in private pools it does not fit however gaps are moved: 7.86 + 0.5.
    CHECK(verdict_of(text) == "other_constraint (pool_ownership)");
}

TEST_CASE("the cudaMallocAsync backend, and other platforms") {
    const std::string async =
        "torch.cuda.OutOfMemoryError: Allocation on device 5 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 54.14 GiB\nRequested               : 686.41 MiB\nDevice limit            : 79.35 GiB\n"
        "Free (according to CUDA): 27.19 MiB\nPyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 17179869184.00 GiB\n";
    const ImportedStates states = states_in(async);
    CHECK(last(states).device_name == "GPU 5");
    CHECK_FALSE(last(states).device.allocator_limit);
    // 25 GiB are the pool's or somebody else's: the message does not say whose.
    CHECK(verdict_of(async) == "undetermined");
    CHECK(verdict_of("XPU out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 6.00 GiB "
                     "is free. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch "
                     "but unallocated.") == "capacity_exhaustion");
    CHECK(verdict_of("NPU out of memory. Tried to allocate 4.00 GiB (NPU 2; 60.97 GiB total capacity; 57.99 GiB already "
                     "allocated; 57.99 GiB current active; 1.14 GiB free; 58.90 GiB reserved in total by PyTorch) If "
                     "reserved memory is >> allocated memory") == "capacity_exhaustion");
}

TEST_CASE("a message reads the same however it is wrapped, prefixed, coloured or escaped") {
    const std::string whole =
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 158.00 MiB. GPU 0 has a total capacity of 23.69 GiB of "
        "which 115.69 MiB is free. Process 4711 has 23.57 GiB memory in use. Of the allocated memory 22.14 GiB is allocated "
        "by PyTorch, and 910.35 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large";
    const auto numbers = [](const std::string& text) {
        const ImportedStates states = states_in(text);
        CHECK(states.states.size() == 1);
        CHECK(states.states.back().warnings.empty());
        const Scenario& scenario = last(states);
        return fmt::format("{} {} {} {}", in_words(scenario.request.bytes), in_words(scenario.device.capacity),
                           in_words(*scenario.device.device_free), in_words(*scenario.segments.at(0).unused));
    };
    const std::string right = numbers(whole);
    const auto wrapped = [&](std::size_t width, const std::string& prefix, const std::string& end) {
        std::string out;
        for (std::size_t at = 0; at < whole.size(); at += width) out += prefix + whole.substr(at, width) + end;
        return out;
    };
    for (const std::size_t width : {5U, 17U, 40U, 79U, 80U, 133U}) CHECK(numbers(wrapped(width, "", "\n")) == right);
    CHECK(numbers(wrapped(60, "[rank3]: ", "\n")) == right);
    CHECK(numbers(wrapped(60, "2024-06-01 12:00:01,123 ERROR ", "\r\n")) == right);
    CHECK(numbers(wrapped(60, "(EngineCore_0 pid=4711) ERROR 06-01 12:00:01 [core.py:396] ", "\n")) == right);
    CHECK(numbers(wrapped(60, "> ", "\n")) == right);
    CHECK(numbers(wrapped(60, "\xe2\x94\x82 ", " \xe2\x94\x82\n")) == right);
    CHECK(numbers(wrapped(60, "\x1b[31m", "\x1b[0m\n")) == right);
    CHECK(numbers("{\"level\":\"error\",\"msg\":\"" + wrapped(60, "", "\\n") + "\"}\n") == right);
    std::string wide = "\xff\xfe";
    for (const char c : whole) wide += std::string{c, '\0'};
    CHECK(numbers(wide) == right);
}

TEST_CASE("a message in the middle of a long log is found, and the last one is explained") {
    std::string log;
    for (int i = 0; i < 20000; ++i) log += fmt::format("step {}: loss 0.{}, 12.5 GiB/s out of 40\n", i, i % 97);
    const auto message = [](int gpu) {
        return fmt::format("[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {0} has a "
                           "total capacity of 8.00 GiB of which 1.00 GiB is free. Of the allocated memory 6.00 GiB is "
                           "allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n",
                           gpu);
    };
    const std::string text = log + message(0) + log + message(3) + "RuntimeError: CUDA error: out of memory\n" + log;
    const ImportedStates states = states_in(text);
    // The bare line says of the second what is known better.
    REQUIRE(states.states.size() == 2);
    CHECK(states.states[0].line == 20001);
    CHECK(states.states[1].line == 40002);
    const report::Explanation explanation = explain_state(states, 1);
    CHECK(explanation.id() == "failure:2");
    CHECK(explanation.of_failures() == 2);
    CHECK(explanation.scenario().line() == 40002);
    CHECK(explanation.health().imported_kind() == "torch-message");
    CHECK(explanation.health().complete());
    CHECK_FALSE(explanation.health().not_in_source().empty());
    // 2 GiB against 1 GiB free and 0.1 GiB unused.
    CHECK(explanation.verdict().cause() == report::Verdict::capacity_exhaustion);
}

TEST_CASE("a text without any message gets a sentence that says what was looked for") {
    const InputResult read = read_text("epoch 1: loss 0.3\nepoch 2: loss 0.2\n");
    CHECK_FALSE(read.states);
    CHECK(read.error.find("its 2 lines tell of no failed request for GPU memory") != std::string::npos);
    CHECK(read.error.find("out of memory. Tried to allocate") != std::string::npos);
    CHECK(read_text("CUDA out of memory. Tried", "message").states);
    CHECK(read_text("x", "nonsense").error.find("there is no kind 'nonsense'") != std::string::npos);
}

TEST_CASE("amounts: every number that is written so, with what a locale makes of it") {
    const auto taken = [](std::string_view text) {
        const auto out = take_amount(text);
        REQUIRE(out);
        return *out;
    };
    CHECK(taken("0bytesis") == Interval::exactly(0));
    CHECK(taken("512bytes") == Interval::exactly(512));
    CHECK(taken("1.00KiB") == Interval{1019, 1029});      // 0.995 KiB is 1018.88, 1.005 KiB 1029.12
    CHECK(taken("1,50MiB") == Interval{1567622, 1578106});  // 1.495 MiB is 1567621.12, 1.505 MiB 1578106.88
    CHECK(taken("8,589,934,592bytes") == Interval::exactly(8589934592));
    CHECK(taken("9029127168") == Interval::exactly(9029127168));
    std::string_view huge = "99999999999999999999bytes";
    CHECK_FALSE(take_amount(huge));
    std::string_view too_large = "17179869184.00GiB";
    CHECK_FALSE(take_amount(too_large));
}

TEST_CASE("all messages of a folder of real ones: none is without an answer") {
    const char* folder = std::getenv("FRAGSCOPE_CORPUS");
    if (folder == nullptr) {
        MESSAGE("FRAGSCOPE_CORPUS names no folder of real messages: not looked at");
        return;
    }
    const auto show = [](const std::string& name, const std::string& text) {
        const InputResult read = read_text(text);
        if (!read.states) {
            fmt::print("{:<34} {:<20} {:<44} {}\n", name, "-", "no failed request", text.substr(0, 70));
            return;
        }
        for (std::size_t i = 0; i < read.states->states.size(); ++i) {
            const ImportedState& state = read.states->states[i];
            fmt::print("{:<34} {:<20} {:<44} {}{}\n", name, state.kind, cause_of(explain_state(*read.states, i).verdict()),
                       state.scenario.title, state.warnings.empty() ? "" : " [!] " + state.warnings.front());
        }
    };
    for (const char* file : {"messages/other_messages.txt", "messages/pytorch_oom_messages.jsonl", "rmm/rmm_debug_logs.txt"}) {
        std::ifstream lines(std::filesystem::path(folder) / file);
        REQUIRE(lines);
        std::string line;
        while (std::getline(lines, line)) {
            if (line.empty() || line.front() == '#') continue;
            const std::size_t tab = line.find('\t');
            const std::size_t quote = line.find("\"src\":\"");
            const std::string name = tab != std::string::npos ? line.substr(0, tab)
                                     : quote != std::string::npos
                                         ? line.substr(quote + 7, line.find('"', quote + 7) - quote - 7)
                                         : "";
            show(name, (tab != std::string::npos ? line.substr(tab + 1) : line) + "\n");
        }
    }
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(folder) / "tf_bfc")) {
        std::ifstream in(entry.path(), std::ios::binary);
        show(entry.path().filename().string(),
             std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    }
}
