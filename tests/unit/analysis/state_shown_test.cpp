// Answers to "what did it hold then": which processes are asked, and that what is not known is absent.
#include "analysis/state_shown.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/unit/analysis/builder.h"
#include "tools/words_state.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

struct Answers {
    std::vector<report::State> states;
    std::string why_not;
};

Answers asked(const Trace& trace, const std::string& where,
              const std::optional<std::uint32_t>& process = std::nullopt) {
    StateQuestion question{where, *where_of(where), {}};
    question.process = process;
    Answers out;
    out.why_not = answer_states(trace, question, [&](const report::State& state) {
        out.states.push_back(state);
        return true;
    });
    return out;
}

std::string page_of(const report::State& state) { return tools::render_state(state, {}, ""); }

}  // namespace

TEST_CASE("a failure of another process than the one that was asked about is said to be of another") {
    SessionBuilder session;
    auto& first = session.process();
    auto& second = session.process();
    second.linear(0, 99 * kGiB).failed();
    first.linear(0x10000000, kGiB).linear(0, 99 * kGiB).failed();
    const Answers other = asked(session.trace(), "failure:2", 1);
    CHECK(other.states.empty());
    CHECK(other.why_not == "failed call 2 is of process 0, not of process 1");
    const Answers own = asked(session.trace(), "failure:2", 0);
    CHECK(own.why_not.empty());
    REQUIRE(own.states.size() == 1);
    CHECK(own.states[0].devices(0).linear_bytes() == kGiB);
    CHECK(asked(session.trace(), "failure:2").states.size() == 1);
    CHECK(asked(session.trace(), "failure:3", 0).why_not.find("there is no failed call 3") !=
          std::string::npos);
}

TEST_CASE("a state's time is the one of its last event, since the session began") {
    SessionBuilder session;
    session.process().linear(0x10000000, kGiB).linear(0x90000000, kGiB);
    const Answers answers = asked(session.trace(), "end");
    REQUIRE(answers.states.size() == 1);
    CHECK(answers.states[0].time_ns() ==
          session.trace().events[0][1].start.value - session.trace().session.start_ns());
}

TEST_CASE("of a log without a process's number and without devices neither is made up") {
    SessionBuilder session;
    auto& p = session.process();
    p.process().clear_pid();
    p.process().clear_devices();
    p.call(Kind::kBlockAcquired, 0x7000, 4096, wire::kTotalNotTold, wire::kTotalNotTold).on(kNoDevice);
    p.linear(0x10000000, kGiB).on(kNoDevice);
    const Answers answers = asked(session.trace(), "end");
    REQUIRE(answers.states.size() == 1);
    const report::State& state = answers.states[0];
    CHECK(!state.has_pid());
    REQUIRE(state.devices_size() == 1);
    CHECK(!state.devices(0).has_ordinal());
    REQUIRE(state.linear_size() == 1);
    CHECK(!state.linear(0).has_ordinal());
    REQUIRE(state.framework_size() == 1);
    CHECK(!state.framework(0).has_ordinal());
    // In what its block lies no record says: what it holds of the driver is not known, and not nothing.
    CHECK(state.framework(0).totals().live_bytes() == 4096);
    CHECK(!state.framework(0).totals().has_reserved_bytes());
    CHECK(!state.framework(0).totals().has_cached_bytes());
    for (const report::FrameworkStatistics& statistics : state.framework(0).statistics()) {
        CHECK(statistics.has_allocated_bytes());
        CHECK(!statistics.has_reserved_bytes());
        CHECK(!statistics.has_segment());
    }
    const std::string page = page_of(state);
    CHECK(page.find("(pid not known, ") != std::string::npos);
    CHECK(page.find("on a device that is not known") != std::string::npos);
    CHECK(page.find("-1") == std::string::npos);
    const std::size_t taken = page.find("in segments taken from the driver");
    REQUIRE(taken != std::string::npos);
    CHECK(page.substr(taken, page.find('\n', taken) - taken).find("not known") != std::string::npos);
    // Where they are known they are there, also the first device's number, 0.
    SessionBuilder told;
    told.process().linear(0x10000000, kGiB);
    told.trace().processes[0].set_pid(77);
    const report::State known = asked(told.trace(), "end").states.at(0);
    CHECK(known.pid() == 77);
    CHECK(known.devices(0).has_ordinal());
    CHECK(known.linear(0).has_ordinal());
    CHECK(page_of(known).find("(pid 77, ") != std::string::npos);
}
