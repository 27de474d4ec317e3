// JAX's device memory profiles. They are written here field by field, as JAX writes them (kinds "buffer" and
// "executable", the size of an executable -1 where it is not known); the right values stand in each test.
#include "analysis/read/jax_profile.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>

#include "analysis/callers.h"
#include "analysis/explain.h"
#include "analysis/report.h"
#include "analysis/state.h"
#include "tests/unit/import/imported.h"
#include "tests/unit/import/pprof_made.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Two devices' arrays from two places, and three programs, of one of which the size is not known.
JaxProfile example() {
    JaxProfile profile;
    profile.sample(2, 6 * kMiB, "buffer", "cuda:0",
                   {{"apply", "/app/model.py", 12}, {"main", "/app/train.py", 3}});
    profile.sample(1, 1 * kMiB, "buffer", "cuda:0", {{"load", "/app/data.py", 7}});
    profile.sample(4, 8 * kMiB, "buffer", "cuda:1",
                   {{"apply", "/app/model.py", 12}, {"main", "/app/train.py", 3}});
    profile.sample(2, 300, "executable", "", {{"compile", "/jax/compiler.py", 99}});
    profile.sample(1, -1, "executable", "", {{"compile", "/jax/compiler.py", 99}});
    return profile;
}

ReadResult import_profile(const std::string& bytes, const std::string& kind = "") {
    return import_text(bytes, kind, "memory.prof");
}

Trace imported(const std::string& bytes) {
    ReadResult read = import_profile(bytes);
    REQUIRE_MESSAGE(read.trace, read.error);
    return std::move(*read.trace);
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// "buffer on cuda:0: 3 of 7340032, from load 1048576\n…": the groups of the report, the largest first.
std::string words(const report::Report& report) {
    std::string out;
    for (const report::HeldAtMoment& held : report.held()) {
        out += fmt::format("{} on {}: {} of {}{}", held.what(), held.device().empty() ? "?" : held.device(),
                           held.count(), held.bytes().low_bytes(),
                           held.bytes().has_high_bytes() ? "" : " or more");
        for (const report::CallSite& site : held.sites())
            out += fmt::format(", {} from {}", site.bytes().low_bytes(),
                               site.stack().frames_size() == 0 ? "nowhere" : site.stack().frames(0));
        out += "\n";
    }
    return out;
}

}  // namespace

TEST_CASE("what was alive is summed by kind and device, and by the places that made it") {
    for (const bool packed : {false, true}) {
        const std::string bytes = example().bytes();
        const Trace trace = imported(packed ? gzipped(bytes) : bytes);
        CHECK(trace.session.provenance().kind() == "jax-profile");
        CHECK(warnings_of(trace).empty());
        // Nothing becomes an event, so no book says anything of it.
        CHECK(trace.events[0].empty());
        CHECK(trace.end.events() == 0);
        ReportOptions options;
        options.stack_words = [](const ProcessNames& names, const trace::Stack& stack) {
            std::vector<std::string> out;
            for (const std::uint64_t frame : stack.frames())
                out.push_back(
                    fmt::format("{}:{}", names.texts.at(wire::frame_place(frame)), wire::frame_line(frame)));
            for (std::string& line : out) std::replace(line.begin(), line.end(), '\n', ' ');
            return out;
        };
        const report::Report report = make_report(trace, options);
        // 6 and 1 MiB on the one device, 8 MiB on the other; 2 programs of 300 bytes and one of unknown size.
        CHECK(words(report) ==
              "buffer on cuda:1: 4 of 8388608, 8388608 from apply /app/model.py:12\n"
              "buffer on cuda:0: 3 of 7340032, 6291456 from apply /app/model.py:12, 1048576 from load "
              "/app/data.py:7\n"
              "executable on ?: 3 of 300 or more, 300 from compile /jax/compiler.py:99\n");
        CHECK(report.held(2).sizes_not_told() == 1);
        CHECK(report.held(1).sites(0).stack().frames_size() == 2);
    }
}

TEST_CASE("nothing failed in a profile, and the explanation says what it holds instead") {
    const report::Explanation explanation = explain_failure(imported(example().bytes()));
    CHECK(explanation.verdict().cause() == report::Verdict::no_failure);
    CHECK(holds(explanation.verdict().summary(), "A profile holds no calls, so none that failed"));
    CHECK(holds(explanation.verdict().summary(),
                "in 10 allocations, the sizes of 1 of which it does not tell"));
}

TEST_CASE("samples that no single profile has are refused or told") {
    // The difference of two profiles.
    JaxProfile less;
    less.sample(-3, -kMiB, "buffer", "cuda:0", {});
    CHECK(holds(import_profile(less.bytes()).error,
                "sample 1 counts -3 allocations: it is the difference of two profiles"));
    JaxProfile odd;
    odd.sample(1, kMiB, "buffer", "cuda:0", {});
    odd.sample(1, -kMiB, "buffer", "cuda:0", {});
    odd.sample(0, 0, "buffer", "cuda:0", {});
    odd.sample(1, std::int64_t{1} << 60, "buffer", "cuda:0", {});
    const Trace trace = imported(odd.bytes());
    CHECK(trace.processes[0].held_size() == 1);
    CHECK(holds(
        warnings_of(trace),
        "2 of the profile's samples make no sense. The first is sample 2: 1 buffers of -1048576 bytes"));
    // Another program's profile.
    JaxProfile other("samples", "cpu");
    other.sample(1, 1, "", "", {});
    CHECK(holds(import_profile(other.bytes()).error,
                "its samples count \"samples\", \"cpu\", expected \"allocations\" and \"space\""));
    CHECK(holds(warnings_of(imported(JaxProfile().bytes())), "The profile holds no samples"));
}

TEST_CASE("numbers that name nothing, and fields that are none, are refused with the place") {
    const auto broken = [](auto&& change) {
        JaxProfile profile = example();
        change(profile.rest());
        return import_profile(profile.bytes()).error;
    };
    CHECK(holds(broken([](Message& rest) { rest.message(2, Message().packed(2, {1})); }),
                "sample 6 has 1 values, expected 2"));
    CHECK(holds(broken([](Message& rest) {
                    rest.message(2, Message().packed(1, {77}).packed(2, {1, 2}));
                }),
                "a sample names place 77, which is not there"));
    CHECK(holds(broken([](Message& rest) { rest.message(2, Message()); }),
                "it has no values, expected one for each type"));
    CHECK(holds(broken([](Message& rest) { rest.message(4, Message().number(1, 1)); }),
                "it has the number 1, which another one has"));
    CHECK(holds(broken([](Message& rest) {
                    rest.message(4, Message().number(1, 99).message(4, Message().number(1, 1234)));
                }),
                "a line names function 1234, which is not there"));
    CHECK(holds(broken([](Message& rest) { rest.message(5, Message().number(2, 1)); }),
                "it has no number, expected one from 1 on"));
    CHECK(holds(broken([](Message& rest) { rest.message(5, Message().number(1, 99).number(2, 9999)); }),
                "a function names text 9999"));
    CHECK(holds(broken([](Message& rest) {
                    rest.message(2, Message().packed(2, {1, 2}).message(3, Message().number(1, 9999)));
                }),
                "a label names text 9999, expected one of"));
    CHECK(import_profile("", "jax-profile").error.find("it names no types of values") != std::string::npos);
    CHECK(
        import_profile("\x0a\xff", "jax-profile").error.find("at offset 1 there is no room for the bytes") !=
        std::string::npos);
}

TEST_CASE("cut anywhere or with flipped bits, a profile is refused or read, and never more than that") {
    const std::string whole = example().bytes();
    std::size_t read = 0;
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const ReadResult result = import_profile(whole.substr(0, length), "jax-profile");
        CHECK((result.trace.has_value() || holds(result.error, "memory.prof")));
        read += result.trace ? 1 : 0;
    }
    // All texts are named, so without one of them nothing can be read.
    CHECK(read == 0);
    std::mt19937 random(77);
    for (int round = 0; round < 2000; ++round) {
        std::string damaged = whole;
        for (unsigned flip = 1 + random() % 4; flip > 0; --flip) {
            const std::size_t at = random() % damaged.size();
            damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        }
        const ReadResult result = import_profile(damaged, "jax-profile");
        CHECK((result.trace.has_value() || holds(result.error, "memory.prof")));
    }
}

TEST_CASE("deep stacks are cut, and stacks that differ too often are refused") {
    JaxProfile deep;
    std::vector<JaxProfile::Frame> frames;
    for (int i = 0; i < 300; ++i) frames.push_back({"f", "/app/a.py", i + 1});
    deep.sample(1, 10, "buffer", "cuda:0", frames);
    const Trace trace = imported(deep.bytes());
    const trace::Stack& stack = trace.names[0].stacks.at(1);
    CHECK(stack.frames_size() == static_cast<int>(wire::kMaxFrames));
    CHECK(stack.cut());
    JaxProfile many;
    for (std::size_t i = 0; i <= kMaxJaxPlaces; ++i)
        many.sample(1, 10, "buffer", "cuda:0", {{"f", "/app/a.py", static_cast<std::int64_t>(i) + 1}});
    CHECK(holds(import_profile(many.bytes()).error, "more than 32768 kinds, devices and call stacks differ"));
}
