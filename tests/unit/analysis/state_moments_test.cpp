// Moments that a person names, and what `state` answers there. Expectations are counted by hand: the
// builder's calls begin one microsecond apart over all processes and last 100 ns.
#include <doctest/doctest.h>

#include "analysis/moment.h"
#include "analysis/state_shown.h"
#include "tests/unit/analysis/builder.h"
#include "tests/unit/analysis/texts.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

std::vector<report::State> states(SessionBuilder& session, const std::string& at,
                                  std::string* why_not = nullptr,
                                  std::optional<std::uint32_t> process = std::nullopt) {
    REQUIRE_MESSAGE(where_of(at), at);
    const StateQuestion question{at, *where_of(at), process};
    std::vector<report::State> out;
    const std::string why = answer_states(session.trace(), question, [&](const report::State& state) {
        check_words(state);
        out.push_back(state);
        return true;
    });
    CHECK(why.empty() == !out.empty());
    if (why_not != nullptr) *why_not = why;
    return out;
}

std::string refusal(SessionBuilder& session, const std::string& at,
                    std::optional<std::uint32_t> process = std::nullopt) {
    std::string why;
    CHECK(states(session, at, &why, process).empty());
    return why;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::optional<std::uint64_t> time_of(const std::string& asked) {
    const auto where = where_of(asked);
    if (!where || !std::holds_alternative<AtTime>(*where)) return std::nullopt;
    return std::get<AtTime>(*where).ns;
}

}  // namespace

TEST_CASE("a time has a unit, and a number without one is a sequence number") {
    CHECK(time_of("1.5s") == 1'500'000'000);
    CHECK(time_of("200ms") == 200'000'000);
    CHECK(time_of("time:3us") == 3'000);
    CHECK(time_of("7ns") == 7);
    CHECK(time_of("0.5min") == 30'000'000'000);
    CHECK(time_of("0s") == 0);
    CHECK(time_of("1.0000000019s") == 1'000'000'001);  // less than a nanosecond is cut off
    CHECK_FALSE(time_of("15"));
    REQUIRE(where_of("15"));
    CHECK(std::get<AtSequence>(*where_of("15")).sequence == 15);
    for (const char* none :
         {"", "s", "1.s", ".5s", "-1s", "1,5s", "1.5", "1e3s", "time:15", "time:", "1.5h",
          "99999999999999999999s", "18446744074s", "peak:", "failure:", "failure:x", "mark", "END"})
        CHECK_MESSAGE(!where_of(none), none);
}

TEST_CASE("at a time every process stands after the calls that counted by then") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    a.linear(0x10000000, kMiB);           // from 1 us after the start, ends at 1.1 us
    b.linear(0x10000000, 2 * kMiB);       // 2 us
    a.linear(0x20000000, 4 * kMiB);       // 3 us
    b.linear(0x20000000, 8 * kMiB);       // 4 us
    a.free(0x10000000).lasted(0, 5'000);  // 5 us; a release counts from its beginning
    const auto at = [&](const std::string& when) {
        const auto both = states(session, when);
        REQUIRE(both.size() == 2);
        CHECK(both[0].process() == 0);
        CHECK(both[1].process() == 1);
        return std::pair(both[0].devices(0).linear_bytes(), both[1].devices(0).linear_bytes());
    };
    CHECK(at("0ns") == std::pair<std::uint64_t, std::uint64_t>(0, 0));
    CHECK(at("1050ns") == std::pair<std::uint64_t, std::uint64_t>(0, 0));  // under way
    CHECK(at("1100ns") == std::pair<std::uint64_t, std::uint64_t>(kMiB, 0));
    CHECK(at("2.5us") == std::pair<std::uint64_t, std::uint64_t>(kMiB, 2 * kMiB));
    CHECK(at("4.1us") == std::pair<std::uint64_t, std::uint64_t>(5 * kMiB, 10 * kMiB));
    CHECK(at("5us") == std::pair<std::uint64_t, std::uint64_t>(4 * kMiB, 10 * kMiB));
    const auto under_way = states(session, "1050ns");
    CHECK(under_way[0].calls_under_way() == 1);
    CHECK(under_way[0].sequence() == 0);
    CHECK(under_way[0].asked_ns() == 1050);
    CHECK(under_way[1].calls_under_way() == 0);
    CHECK(has(refusal(session, "1s"), "no moment lies 1 s after its start"));
    CHECK(states(session, "4us", nullptr, 1).size() == 1);
}

TEST_CASE("the peak of a device is where its processes together held most, by the clock") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    a.linear(0x10000000, 6 * kMiB);  // together 6
    b.linear(0x10000000, 4 * kMiB);  // 10: the peak
    a.free(0x10000000);              // 4
    b.linear(0x20000000, 5 * kMiB);  // 9
    for (const char* name : {"peak:0", "peak:GPU-4141", "peak:gpu-41", "peak:4141"}) {
        const auto both = states(session, name);
        REQUIRE(both.size() == 2);
        CHECK(both[0].devices(0).linear_bytes() == 6 * kMiB);
        CHECK(both[1].devices(0).linear_bytes() == 4 * kMiB);
        CHECK(both[0].asked_ns() == 2'100);
    }
    // Of one process alone it is another moment.
    const auto alone = states(session, "peak:0", nullptr, 1);
    REQUIRE(alone.size() == 1);
    CHECK(alone[0].devices(0).linear_bytes() == 9 * kMiB);
    CHECK(has(refusal(session, "peak:1"), "no process of this trace has a device 1"));
    CHECK(has(refusal(session, "peak:GPU-77"), "GPU-41414141-4141-4141-4141-414141414141"));
}

TEST_CASE("an ended process holds nothing: the driver took it back") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    a.linear(0x10000000, 6 * kMiB);  // 1 us
    b.linear(0x10000000, kMiB);      // 2 us
    a.process().set_ended_ns(session.trace().session.start_ns() + 2'500);
    b.linear(0x20000000, 4 * kMiB);  // 3 us: 5 in all, where 7 were before
    const auto peak = states(session, "peak:0");
    CHECK(peak[1].devices(0).linear_bytes() == kMiB);
    CHECK_FALSE(peak[0].ended());
    const auto later = states(session, "3.1us");
    CHECK(later[0].ended());
    CHECK_FALSE(later[1].ended());
}

TEST_CASE("one ordinal that means two devices is asked back, and so is an ambiguous UUID") {
    SessionBuilder session;
    session.process(kGiB, 'A').linear(0x10000000, kMiB);
    session.process(kGiB, 'B').linear(0x10000000, kMiB);
    CHECK(has(refusal(session, "peak:0"), "not the same one in every process"));
    CHECK(states(session, "peak:0", nullptr, 1).size() == 1);
    CHECK(has(refusal(session, "peak:GPU-4"), "begins more than one UUID"));
    const auto of_b = states(session, "peak:GPU-42");
    REQUIRE(of_b.size() == 2);
    CHECK(of_b[0].devices(0).linear_bytes() == kMiB);  // as it was at that time
    CHECK(of_b[0].asked_ns() == of_b[1].asked_ns());
}

TEST_CASE("moments that do not exist are refused in words") {
    SessionBuilder session;
    session.process().call(wire::Kind::kMark);
    session.process();
    CHECK(has(refusal(session, "17"), "say which one with --process"));
    CHECK(has(refusal(session, "failure:1"), "this trace holds 0"));
    CHECK(has(refusal(session, "mark:nowhere"), "no mark is 'nowhere'"));
    CHECK(has(refusal(session, "end", 7), "there is no process 7"));
    CHECK(has(refusal(session, "peak:0"), "no process held anything on device 0"));
}

TEST_CASE("every layer of one address: reservation, mapping, access by location, handle and its names") {
    SessionBuilder session;
    auto& p = session.process();
    p.another_device(kGiB, 'B');
    p.reserve(0x40000000, 8 * kMiB).create(5, 4 * kMiB).map(0x40200000, 4 * kMiB, 5).retain(6, 0x40200000);
    p.call(wire::Kind::kAccessSet, 0x40200000, 4 * kMiB, wire::pack_location(1, 0, 0), 3);
    p.call(wire::Kind::kAccessSet, 0x40400000, 2 * kMiB, wire::pack_location(1, 1, 0), 1).on(1);
    p.call(wire::Kind::kHandleExported, 0, 0, 5, 1).touch(0x40200000, 100);
    const auto state = states(session, "end").at(0);
    REQUIRE(state.reservations_size() == 1);
    CHECK(state.reservations(0).mapped_bytes() == 4 * kMiB);
    REQUIRE(state.mappings_size() == 1);
    REQUIRE(state.mappings(0).access_size() == 2);
    CHECK(state.mappings(0).access(0).location() == "device 0");
    CHECK(state.mappings(0).access(0).rights() == "read and write");
    CHECK(state.mappings(0).access(0).bytes() == 4 * kMiB);
    CHECK(state.mappings(0).access(1).ordinal() == 1);
    CHECK(state.mappings(0).access(1).rights() == "read");
    CHECK(state.mappings(0).access(1).bytes() == 2 * kMiB);
    REQUIRE(state.physical_size() == 1);
    const report::PhysicalAllocation& physical = state.physical(0);
    CHECK(physical.references() == 2);
    REQUIRE(physical.handles_size() == 2);
    CHECK(physical.handles(0).handle() == 5);
    CHECK(physical.handles(1).handle() == 6);
    CHECK(physical.exports() == 1);
    CHECK(physical.written_bytes() == 100);
    p.unmap(0x40200000, 4 * kMiB);  // takes the grants with it
    p.map(0x40200000, 4 * kMiB, 5);
    CHECK(states(session, "end").at(0).mappings(0).access_size() == 0);
}

TEST_CASE("a pool shows what is live, what is pending, and what the driver said last") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x10000000, 3 * kMiB, 0xb00).pool_take(0x20000000, kMiB, 0xb00);
    p.sample_pool(0xb00, 4 * kMiB, 32 * kMiB).sample_end();
    p.pool_give(0x20000000);
    const auto state = states(session, "end").at(0);
    REQUIRE(state.pools_size() == 1);
    const report::PoolBooks& pool = state.pools(0);
    CHECK(pool.live_bytes() == 3 * kMiB);
    CHECK(pool.pending_bytes() == kMiB);
    REQUIRE(pool.pending_size() == 1);
    CHECK(pool.pending(0).address() == 0x20000000);
    CHECK(pool.said_sequence() == 3);
    CHECK(pool.said_cached_bytes() == 28 * kMiB);
}
