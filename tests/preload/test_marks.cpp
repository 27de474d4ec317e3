// What the program says of itself reaches the trace, by fragscope.h and by NVTX; and another tool that
// listens to NVTX hears the same as without the shim. What is expected is what marks.cpp says.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "session.h"

using namespace fragscope;
using fragscope::preload_test::Outcome;
using fragscope::preload_test::paths;
using fragscope::preload_test::Sent;
using fragscope::preload_test::Session;
using wire::Kind;

namespace {

struct Said {
    Kind kind;
    std::string function, domain, text;
    std::uint64_t payload = 0;
    bool operator==(const Said&) const = default;
};

std::string text_of(const Sent& sent, std::uint64_t id) {
    if (id == 0) return "";
    const auto known = sent.strings.find(static_cast<std::uint32_t>(id));
    return known != sent.strings.end() ? known->second : "UNKNOWN";
}

std::vector<Said> said(const Sent& sent) {
    std::vector<Said> all;
    for (const wire::Record& record : sent.records)
        if (record.kind == Kind::kMark || record.kind == Kind::kRangeBegun ||
            record.kind == Kind::kRangeEnded)
            all.push_back({record.kind, sent.functions.at(record.function), text_of(sent, record.address),
                           text_of(sent, record.object), record.bytes});
    return all;
}

std::uint64_t bits(double value) {
    std::uint64_t all;
    std::memcpy(&all, &value, sizeof all);
    return all;
}

std::vector<Said> expected_of_nvtx() {
    const Kind mark = Kind::kMark, begun = Kind::kRangeBegun, ended = Kind::kRangeEnded;
    const std::string own = "my domain", early = "registered early";
    return {{mark, "nvtxMark", "", "ascii"},
            {mark, "nvtxMark", "", "wide \u00e4\u20ac\U0001f600"},
            {mark, "nvtxMark", "", "with payload", static_cast<std::uint64_t>(-5)},
            {begun, "nvtxRangePush", "", "pushed"},
            {begun, "nvtxRangePush", "", "pushed wide"},
            {begun, "nvtxRangePush", "", "pushed ex"},
            {ended, "nvtxRangePop", "", ""},
            {ended, "nvtxRangePop", "", ""},
            {ended, "nvtxRangePop", "", ""},
            {begun, "nvtxRangeStart", "", "started"},
            {begun, "nvtxRangeStart", "", "started wide"},
            {begun, "nvtxRangeStart", "", "pushed ex"},
            {ended, "nvtxRangeEnd", "", ""},
            {ended, "nvtxRangeEnd", "", ""},
            {ended, "nvtxRangeEnd", "", ""},
            {mark, "nvtxMark", own, early, bits(1.5)},
            {begun, "nvtxRangePush", own, early, bits(1.5)},
            {ended, "nvtxRangePop", own, ""},
            {begun, "nvtxRangeStart", own, early, bits(1.5)},
            {ended, "nvtxRangeEnd", own, ""},
            {mark, "nvtxMark", "wide domain", "registered wide", bits(1.5)},
            {mark, "nvtxMark", "", ""}};
}

// Started ranges are told apart by their ids, and end with them.
void check_range_ids(const Sent& sent) {
    std::vector<std::uint64_t> open;
    std::size_t started = 0;
    for (const wire::Record& record : sent.records) {
        if (record.extra == 0) continue;
        if (record.kind == Kind::kRangeBegun) {
            CHECK(std::find(open.begin(), open.end(), record.extra) == open.end());
            open.push_back(record.extra);
            ++started;
        }
        if (record.kind == Kind::kRangeEnded) {
            const auto place = std::find(open.begin(), open.end(), record.extra);
            REQUIRE(place != open.end());
            open.erase(place);
        }
    }
    CHECK(open.empty());
    CHECK(started == 4);
}

bool nvtx_headers() {
    const bool there =
        preload_test::run_plain({paths().marks, "nvtx"}).output.find("no headers") == std::string::npos;
    if (!there) MESSAGE("skipped: the build found no headers of NVTX");
    return there;
}

std::string by(const std::string& variable, const std::string& value) { return variable + "=" + value; }

}  // namespace

TEST_CASE("marks by the header arrive once the driver is in use, and go nowhere without the shim") {
    const Outcome plain = preload_test::run_plain({paths().marks, "header"});
    CHECK(plain.status == 0);
    CHECK(plain.output.empty());
    Session session;
    const Outcome outcome = session.run({paths().marks, "header"});
    CHECK(outcome.status == 0);
    CHECK(outcome.output.empty());
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    const std::vector<Said> expected = {{Kind::kMark, "fragscope_mark", "", "from C89"},
                                        {Kind::kRangeBegun, "fragscope_range_begin", "", "outer"},
                                        {Kind::kRangeBegun, "fragscope_range_begin", "", "inner"},
                                        {Kind::kRangeEnded, "fragscope_range_end", "", ""},
                                        {Kind::kRangeEnded, "fragscope_range_end", "", ""},
                                        {Kind::kMark, "fragscope_mark", "", "from C++98"},
                                        {Kind::kMark, "fragscope_mark", "", ""},
                                        {Kind::kMark, "fragscope_mark", "", "in a thread"}};
    CHECK(said(sent[0]) == expected);
    CHECK(sent[0].thread_names == std::vector<std::string>{"marks", "worker-7"});
}

TEST_CASE("without a session the shim takes nothing of NVTX, and the program sees no difference") {
    if (!nvtx_headers()) return;
    const std::vector<std::string> command = {paths().marks, "nvtx"};
    const Outcome plain = preload_test::run_plain(command);
    const Outcome outcome =
        preload_test::run_with_shim("", command, {by("NVTX_INJECTION64_PATH", paths().shim)});
    CHECK(outcome.status == 0);
    CHECK(outcome.output == plain.output);
}

TEST_CASE("all that NVTX is told is recorded") {
    if (!nvtx_headers()) return;
    Session session;
    const Outcome outcome = session.run({paths().marks, "nvtx"}, {by("NVTX_INJECTION64_PATH", paths().shim)});
    CHECK(outcome.status == 0);
    // As the header answers where nobody listens (NVTX_NO_PUSH_POP_TRACKING), but for the ids of ranges.
    CHECK(outcome.output ==
          "push -2\npush -2\npush -2\npop -2\npop -2\npop -2\nranges differ 1\npush -2\npop -2\n");
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(said(sent[0]) == expected_of_nvtx());
    check_range_ids(sent[0]);
    CHECK(sent[0].thread_names == std::vector<std::string>{"marks", "named by nvtx"});
}

TEST_CASE("another tool hears of NVTX what it hears without the shim, and so does the trace") {
    if (!nvtx_headers()) return;
    const std::vector<std::string> command = {paths().marks, "nvtx"};
    const Outcome alone = preload_test::run_plain(command, {by("NVTX_INJECTION64_PATH", paths().nvtx_tool)});
    REQUIRE(alone.output.find("tool: domain mark 1 1\n") != std::string::npos);
    REQUIRE(alone.output.find("tool: category 3 left to others\n") != std::string::npos);
    Session session;
    const Outcome outcome = session.run(
        command, {by("NVTX_INJECTION64_PATH", paths().shim), by("FRAGSCOPE_NVTX_CHAIN", paths().nvtx_tool)});
    CHECK(outcome.status == 0);
    CHECK(outcome.output == alone.output);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    // The tool takes nvtxRangeStartA, nvtxDomainRegisterStringA and nvtxDomainCreateA; by their sisters
    // nothing begins and nothing is registered.
    std::vector<Said> expected;
    for (Said each : expected_of_nvtx()) {
        if (each.function == "nvtxRangeStart" && each.text != "started") continue;
        if (each.domain == "wide domain") each.domain = each.text = "";
        expected.push_back(each);
    }
    CHECK(said(sent[0]) == expected);
}

TEST_CASE("another tool that cannot be had, that fails, or that is the shim itself leaves NVTX working") {
    if (!nvtx_headers()) return;
    for (const std::string& chain :
         {std::string("/no/such/tool.so"), paths().shim, paths().nvtx_tool, std::string()}) {
        CAPTURE(chain);
        Session session;
        const Outcome outcome = session.run({paths().marks, "nvtx"},
                                            {by("NVTX_INJECTION64_PATH", paths().shim),
                                             by("FRAGSCOPE_NVTX_CHAIN", chain), by("NVTX_TOOL_FAILS", "1")});
        CHECK(outcome.status == 0);
        CHECK(outcome.output.find("tool:") == std::string::npos);
        const auto sent = session.sent();
        REQUIRE(sent.size() == 1);
        CHECK(said(sent[0]) == expected_of_nvtx());
    }
}
