// Moments that a person names: what is understood, and which state each stands for.
#include "analysis/moment.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::test;
using namespace fragscope::analysis;

namespace {

std::size_t index_of(const analysis::Trace& trace, const std::string& where) {
    const auto asked = where_of(where);
    REQUIRE_MESSAGE(asked.has_value(), where);
    const Moments moments = moments_of(trace, *asked, std::nullopt);
    REQUIRE_MESSAGE(moments.found.size() == 1, where << ": " << moments.why_none);
    return moments.found[0].index;
}

std::string why_none(const analysis::Trace& trace, const std::string& where,
                     std::optional<std::uint32_t> process = std::nullopt) {
    return moments_of(trace, where_of(where).value(), process).why_none;
}

}  // namespace

TEST_CASE("what is a moment, and what is none") {
    CHECK(std::get<AtSequence>(*where_of("17")).sequence == 17);
    CHECK(std::get<AtTime>(*where_of("1.5s")).ns == 1'500'000'000);
    CHECK(std::get<AtTime>(*where_of("20ms")).ns == 20'000'000);
    CHECK(std::get<AtTime>(*where_of("0.5us")).ns == 500);
    CHECK(std::get<AtTime>(*where_of("7ns")).ns == 7);
    CHECK(std::get<AtFailure>(*where_of("failure:2")).number == 2);
    CHECK(std::get<AtMarks>(*where_of("mark:epoch 3")).text == "epoch 3");
    CHECK(std::get<AtMarks>(*where_of("mark:epoch*")).prefix);
    CHECK(std::holds_alternative<AtEnd>(*where_of("end")));
    // 1e30 s is more than 64 bits of nanoseconds hold.
    for (const char* none : {"", "-1", "1.5", "s", "-2s", "1e30s", "nans", "1 s", "failure:", "failure:x",
                             "failure:-1", "peak", "18446744073709551616"}) {
        INFO(none);
        CHECK_FALSE(where_of(none).has_value());
    }
}

TEST_CASE("each stands for the state before one event") {
    SessionBuilder session;
    auto& p = session.process();
    // Records 1 to 4; the failure's own questions follow the third, and the last call comes behind them.
    p.linear(0x1000, kMiB).linear(0x2000000, kMiB).linear(0x3000000, 64 * kGiB).failed();
    p.snapshot(kGiB, 8 * kGiB).snapshot_end().linear(0x4000000, kMiB);
    const auto& events = session.trace().events[0];
    REQUIRE(events.size() == 6);
    CHECK(index_of(session.trace(), fmt::format("{}", events[1].sequence.value)) == 2);
    CHECK(index_of(session.trace(), "0") == 0);
    CHECK(index_of(session.trace(), "end") == 6);
    // What the driver said right after the failed call belongs to its moment: the books are read up to there.
    CHECK(index_of(session.trace(), "failure:1") == 3);
    // The first call that had not ended by then is not in the state.
    session.trace().session.set_start_ns(events[0].start.value);
    const std::uint64_t ended = events[1].start.value + events[1].duration_ns - events[0].start.value;
    CHECK(index_of(session.trace(), fmt::format("{}ns", ended)) == 2);
    CHECK(index_of(session.trace(), fmt::format("{}ns", ended - 1)) == 1);
    CHECK(why_none(session.trace(), "9000000000s").find("no moment lies 9000000000 s") != std::string::npos);
}

TEST_CASE("why there is no such moment") {
    SessionBuilder session;
    session.process().linear(0x1000, 64 * kGiB).failed();
    CHECK(why_none(session.trace(), "failure:2").find("no failed call 2") != std::string::npos);
    CHECK(why_none(session.trace(), "failure:0").find("numbered from 1") != std::string::npos);
    CHECK(why_none(session.trace(), "mark:x").find("no mark is 'x'") != std::string::npos);
    CHECK(why_none(session.trace(), "end", 3).find("no process 3") != std::string::npos);
    session.process().linear(0x1000, kMiB);
    CHECK(why_none(session.trace(), "1").find("--process") != std::string::npos);
    CHECK(why_none(session.trace(), "failure:1", 1).find("of process 0") != std::string::npos);
    // A time is the same for all of them.
    CHECK(moments_of(session.trace(), *where_of("1us"), std::nullopt).found.size() == 2);
}
