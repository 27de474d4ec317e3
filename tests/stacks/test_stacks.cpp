// The shim's stacks against backtrace() of glibc, called from inside of the driver at the same call: from the
// caller of the driver function outwards both must give the same addresses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "../preload/session.h"

using namespace fragscope;
using namespace fragscope::preload_test;
using wire::Kind;

namespace {

const std::string& library(const std::string& name) {
    static const std::map<std::string, std::string> all = [] {
        std::map<std::string, std::string> paths;
        std::istringstream text(std::getenv("SHAPES"));
        for (std::string each; text >> each;)
            paths[each.substr(0, each.find('='))] = each.substr(each.find('=') + 1);
        return paths;
    }();
    return all.at(name);
}

std::string host() { return std::getenv("HOST"); }

struct Seen {
    std::string shape;
    std::vector<std::uint64_t> frames;
};
// By the size of the allocation.
std::map<std::uint64_t, Seen> lines(const std::string& output, const std::string& what) {
    std::map<std::uint64_t, Seen> all;
    std::istringstream text(output);
    std::string shape;
    for (std::string line; std::getline(text, line);) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        if (word == "shape") words >> shape;
        if (word != what) continue;
        std::uint64_t bytes = 0;
        words >> bytes >> std::hex;
        Seen seen{shape, {}};
        for (std::uint64_t address = 0; words >> address;) seen.frames.push_back(address);
        all[bytes] = seen;
    }
    return all;
}

std::vector<std::uint64_t> addresses(const Sent& sent, const SentStack& stack) {
    std::vector<std::uint64_t> all;
    for (const std::uint64_t frame : stack.frames) {
        if (wire::frame_form(frame) == wire::FrameForm::kAddress) {
            all.push_back(wire::frame_address(frame));
            continue;
        }
        REQUIRE(wire::frame_form(frame) == wire::FrameForm::kModule);
        const SentModule& module = sent.modules.at(wire::frame_module(frame));
        const std::uint64_t address = wire::frame_offset(frame) + module.head.bias;
        CHECK(address > module.head.begin);
        CHECK(address <= module.head.end);
        all.push_back(address);
    }
    return all;
}

std::string text_of(const std::vector<std::uint64_t>& frames) {
    std::ostringstream text;
    for (const std::uint64_t frame : frames) text << ' ' << std::hex << frame;
    return text.str();
}

// Where the program's part of backtrace()'s frames begins: after those of the driver and the shim.
void check_same(const std::vector<std::uint64_t>& ours, const Seen& seen) {
    CAPTURE(seen.shape);
    REQUIRE(!ours.empty());
    const auto begin = std::find(seen.frames.begin(), seen.frames.end(), ours[0]);
    REQUIRE(begin != seen.frames.end());
    const auto length = static_cast<std::size_t>(seen.frames.end() - begin);
    const std::size_t expected = std::min<std::size_t>(length, wire::kMaxFrames);
    CAPTURE(text_of(ours));
    CAPTURE(text_of(std::vector<std::uint64_t>(begin, seen.frames.end())));
    REQUIRE(ours.size() == expected);
    int interrupted = 0;
    for (std::size_t i = 0; i < expected; ++i) {
        // An interrupted instruction's own address is one less than what is told: that of an instruction
        // after a call is what readers of a stack expect, who look one byte before it.
        if (ours[i] == begin[static_cast<std::ptrdiff_t>(i)] + 1)
            ++interrupted;
        else
            CHECK(ours[i] == begin[static_cast<std::ptrdiff_t>(i)]);
    }
    CHECK(interrupted == (seen.shape.find("signal") != std::string::npos ? 1 : 0));
}

Options with_stacks() {
    Options options;
    options.stack_bytes = 1;
    options.ring_records = 1u << 16;
    return options;
}

std::size_t check_process(const Sent& sent, const std::map<std::uint64_t, Seen>& seen) {
    std::size_t compared = 0;
    for (const wire::Record& record : sent.of(Kind::kLinearAcquired)) {
        if (record.bytes == 0 || seen.count(record.bytes) == 0) continue;
        REQUIRE(record.stack != 0);
        REQUIRE(sent.stacks.count(record.stack) == 1);
        const SentStack& stack = sent.stacks.at(record.stack);
        const Seen& expected = seen.at(record.bytes);
        const bool cut = expected.shape == "thousand";
        CHECK(stack.head.flags == (cut ? wire::kStackCut : 0));
        CHECK(stack.head.origin == 0);
        check_same(addresses(sent, stack), expected);
        ++compared;
    }
    return compared;
}

constexpr std::size_t kShapeCount = 12;

}  // namespace

TEST_CASE("stacks are what backtrace() sees, however the code was compiled") {
    Session session(with_stacks());
    const Outcome outcome = session.run(
        {host(), "shapes", library("plain"), library("fast"), library("stripped"), library("sections")});
    REQUIRE(outcome.status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    const auto seen = lines(outcome.output, "at");
    REQUIRE(seen.size() == 4 * kShapeCount);
    CHECK(check_process(sent[0], seen) == seen.size());

    // Each module is told once, under its own path and with its build-id.
    std::set<std::string> paths;
    for (const auto& [number, module] : sent[0].modules) {
        CHECK(paths.insert(module.path).second);
        CHECK(module.build_id.empty() == (module.path == library("stripped")));
    }
    CHECK(paths.count(host()) == 1);
    CHECK(paths.count(library("fast")) == 1);
    for (const auto& [number, times] : sent[0].stack_texts) CHECK(times == 1);
}

TEST_CASE("stacks of several threads, and no more texts than there are stacks") {
    Options options = with_stacks();
    options.ring_count = 8;
    Session session(options);
    const Outcome outcome = session.run({host(), "threads", library("fast")});
    REQUIRE(outcome.status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    auto seen = lines(outcome.output, "at");
    REQUIRE(seen.size() == 80 * kShapeCount);
    // Lines of several threads are mixed, so which shape it was is not known: by the length of the stack.
    std::size_t compared = 0;
    for (const wire::Record& record : sent[0].of(Kind::kLinearAcquired)) {
        if (seen.count(record.bytes) == 0) continue;
        Seen expected = seen.at(record.bytes);
        const SentStack& stack = sent[0].stacks.at(record.stack);
        const auto ours = addresses(sent[0], stack);
        REQUIRE(!ours.empty());
        const auto begin = std::find(expected.frames.begin(), expected.frames.end(), ours[0]);
        REQUIRE(begin != expected.frames.end());
        CHECK(ours.size() == std::min<std::size_t>(wire::kMaxFrames,
                                                   static_cast<std::size_t>(expected.frames.end() - begin)));
        CHECK(std::equal(ours.begin(), ours.end(), begin,
                         [](std::uint64_t a, std::uint64_t b) { return a == b || a == b + 1; }));
        ++compared;
    }
    CHECK(compared == seen.size());
    // The threads' own beginnings are alike; so each shape has one stack, but for those that depend on an
    // address.
    CHECK(sent[0].stacks.size() == kShapeCount);
}

TEST_CASE("code that was unloaded is not taken for what is loaded at its place") {
    Session session(with_stacks());
    const Outcome outcome = session.run({host(), "again", library("first"), library("second")});
    REQUIRE(outcome.status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    std::set<std::string> places;
    std::istringstream text(outcome.output);
    for (std::string line; std::getline(text, line);)
        if (line.rfind("loaded", 0) == 0) places.insert(line);
    // If this loader puts them at different places, the test shows less than it could.
    WARN(places.size() == 1);
    const auto seen = lines(outcome.output, "at");
    REQUIRE(seen.size() == 4 * kShapeCount);
    CHECK(check_process(sent[0], seen) == seen.size());
    std::set<std::string> paths;
    for (const auto& [number, module] : sent[0].modules) paths.insert(module.path);
    CHECK(paths.count(library("first")) == 1);
    CHECK(paths.count(library("second")) == 1);
}

TEST_CASE("code without unwind tables is passed by its frame pointer, where that leads to a call") {
    Session session(with_stacks());
    const Outcome outcome = session.run({host(), "generated"});
    REQUIRE(outcome.status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    const auto around = lines(outcome.output, "around");
    const auto taken = sent[0].of(Kind::kLinearAcquired);
    REQUIRE(taken.size() == 5);
    REQUIRE(around.size() == 5);
    std::uint64_t page = 0;
    std::sscanf(std::strstr(outcome.output.c_str(), "page "), "page %lx", &page);

    const SentStack& good = sent[0].stacks.at(taken[0].stack);
    const auto frames = addresses(sent[0], good);
    const auto& outside = around.at(taken[0].bytes).frames;
    CHECK(good.head.flags == 0);
    // allocate(), the generated code, then what called it: the same function as called backtrace(), somewhat
    // further.
    REQUIRE(frames.size() == outside.size() + 2);
    CHECK(good.frames[1] == wire::address_frame(page + 6));
    CHECK(frames[2] > outside[0]);
    CHECK(frames[2] < outside[0] + 200);
    CHECK(std::equal(frames.begin() + 3, frames.end(), outside.begin() + 1));
    // Here it leads nowhere: not guessed, and said.
    for (std::size_t i = 1; i < taken.size(); ++i) {
        const SentStack& lost = sent[0].stacks.at(taken[i].stack);
        CHECK(lost.head.flags == wire::kStackLost);
        REQUIRE(lost.frames.size() == 2);
        CHECK(lost.frames[1] == wire::address_frame(page + 10));
    }
}

TEST_CASE("a forked child tells its own collector what its parent told") {
    Session session(with_stacks());
    const Outcome outcome = session.run({host(), "forked", library("fast")});
    REQUIRE(outcome.status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 2);
    const auto seen = lines(outcome.output, "at");
    for (const Sent& process : sent)
        for (const wire::Record& record : process.of(Kind::kLinearAcquired)) {
            REQUIRE(process.stacks.count(record.stack) == 1);
            const auto frames = addresses(process, process.stacks.at(record.stack));
            const Seen& expected = seen.at(record.bytes);
            CHECK(std::find(expected.frames.begin(), expected.frames.end(), frames.at(0)) !=
                  expected.frames.end());
        }
    CHECK(sent[0].of(Kind::kLinearAcquired).size() == 2 * kShapeCount);
    CHECK(sent[1].of(Kind::kLinearAcquired).size() == kShapeCount);
}

TEST_CASE("stacks only for what was asked for") {
    for (const bool failing : {false, true})
        for (const std::uint64_t from : {std::uint64_t{5}, UINT64_MAX}) {
            Options options = with_stacks();
            options.stack_bytes = from;
            options.stack_failures = true;
            Session session(options);
            std::vector<std::string> variables;
            if (failing) variables.push_back("FAKE_FAIL=cuMemAlloc_v2");
            REQUIRE(session.run({host(), "shapes", library("fast")}, variables).status == 0);
            const auto sent = session.sent();
            REQUIRE(sent.size() == 1);
            const auto taken = sent[0].of(Kind::kLinearAcquired);
            REQUIRE(taken.size() == kShapeCount);
            for (const wire::Record& record : taken)
                CHECK((record.stack != 0) == (failing || record.bytes >= from));
        }
}
