// Where a device's memory was: the sum that always adds up, and what its rest may be.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "analysis/explain.h"
#include "tests/unit/analysis/builder.h"
#include "tests/unit/analysis/scenario.h"
#include "tests/unit/analysis/sums.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

const report::Quantity& part(const report::Balance& b, const std::string& id) {
    for (const auto& one : b.parts()) {
        if (one.id() == id) return one.bytes();
    }
    FAIL("no part " << id);
    return b.taken();
}

bool has_part(const report::Balance& b, const std::string& id) {
    for (const auto& one : b.parts()) {
        if (one.id() == id) return true;
    }
    return false;
}

template <typename Strings>
bool any_contains(const Strings& texts, const std::string& part) {
    for (const std::string& text : texts) {
        if (text.find(part) != std::string::npos) return true;
    }
    return false;
}

report::Report reported(SessionBuilder& session) {
    report::Report out = make_report(session.trace());
    check_words(out);
    check_sums(out);
    return out;
}

constexpr std::uint64_t kTotal = 8 * kGiB;

}  // namespace

TEST_CASE("a sample: taken is the books, what pools and graphs reserve, and a rest") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 4 * kMiB).create(1, 2 * kMiB);
    p.pool_take(0x60000000, kMiB, 0xb00).call(Kind::kGraphAllocNode, 0x70000000, kMiB, 0x91, 0x92);
    p.sample(kTotal - 500 * kMiB, kTotal).sample_pool(0xb00, kMiB, 32 * kMiB).sample_graphs(0, 64 * kMiB);
    const auto report = (p.sample_end(), reported(session));
    REQUIRE(report.balances_size() == 1);
    const report::Balance& b = report.balances(0);
    CHECK(b.moments_size() == 3);  // the only one is the first, the fullest and the last
    CHECK(b.taken().low_bytes() == 500 * kMiB);
    CHECK(part(b, "linear").low_bytes() == 4 * kMiB);
    CHECK(part(b, "handles").low_bytes() == 2 * kMiB);
    CHECK(part(b, "pools").low_bytes() == 32 * kMiB);  // not its live MiB
    CHECK(part(b, "graphs").low_bytes() == 64 * kMiB);
    CHECK(b.unattributed().low_bytes() == (500 - 4 - 2 - 32 - 64) * kMiB);
    CHECK(b.unattributed().evidence() == report::Quantity::derived);
    REQUIRE(report.timelines_size() == 1);
    REQUIRE(report.timelines(0).unattributed_size() == 1);
    CHECK(report.timelines(0).unattributed(0).high_bytes() == 398 * kMiB);
    CHECK(report.balances_missing().empty());
}

TEST_CASE("parts without an upper end leave the rest's lower end at nothing, and say so") {
    SessionBuilder session;
    auto& p = session.process();
    p.call(Kind::kArrayCreated, kContext, 10 * kMiB, 0xa0, 0)
        .sample(kTotal - 100 * kMiB, kTotal)
        .sample_end();
    const auto report = reported(session);
    const report::Balance& b = report.balances(0);
    CHECK(part(b, "arrays").low_bytes() == 10 * kMiB);
    CHECK_FALSE(part(b, "arrays").has_high_bytes());
    CHECK(b.unattributed().low_bytes() == 0);
    CHECK(b.unattributed().high_bytes() == 90 * kMiB);
    CHECK_FALSE(b.has_rest_low_bytes());
}

TEST_CASE("books that claim more than the device has taken are a contradiction, not a zero") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 20 * kMiB).sample(kTotal - 12 * kMiB, kTotal).sample_end();
    const auto report = reported(session);
    const report::Balance& b = report.balances(0);
    CHECK(b.rest_high_bytes() == -8 * static_cast<std::int64_t>(kMiB));
    CHECK(b.contradiction().find("8 MiB more") != std::string::npos);
    CHECK(b.unattributed().evidence() == report::Quantity::unknown);
}

TEST_CASE("another thread's call that was under way may or may not count") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 4 * kMiB).thread(2).release(1).lasted(0, 50'000);  // numbered before its call
    p.thread(1).sample(kTotal - 100 * kMiB, kTotal).sample_end();
    p.thread(2)
        .create(2, 6 * kMiB)
        .lasted(5'000, 0);  // numbered after its call, which began before the question
    p.create(3, 8 * kMiB);  // began after it
    const auto report = reported(session);
    const report::Balance& b = report.balances(0);
    CHECK(part(b, "handles").high_bytes() == 0);
    CHECK(part(b, "under_way").low_bytes() == 0);
    CHECK(part(b, "under_way").high_bytes() == 10 * kMiB);
    CHECK(b.unattributed().low_bytes() == 90 * kMiB);
    CHECK(b.unattributed().high_bytes() == 100 * kMiB);
}

TEST_CASE("another process's call may or may not count at every sample that it is under way at") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    b.create(1, 30 * kMiB);
    b.create(2, 8 * kMiB).lasted(0, 20'000);
    for (int i = 0; i < 3; ++i) a.sample(kTotal - 100 * kMiB, kTotal).sample_end();
    b.create(3, 4 * kMiB).lasted(100, 100'000);  // began before the next samples, too
    a.sample(kTotal - 100 * kMiB, kTotal).sample_end();
    const std::uint64_t end = session.trace().events[1][1].start.value + 20'000;
    const auto report = reported(session);
    REQUIRE(report.balances_size() == 2);  // the first, which is as full as any, and the last
    for (const report::Balance& balance : report.balances()) {
        REQUIRE(session.trace().events[0].back().start.value < end);
        CHECK(part(balance, "process").low_bytes() == 30 * kMiB);
    }
    CHECK(part(report.balances(0), "process").high_bytes() == 38 * kMiB);
    CHECK(part(report.balances(1), "process").high_bytes() == 42 * kMiB);
}

TEST_CASE("another process's call after a sample does not count, whatever a longer sample saw of it") {
    SessionBuilder session;
    auto& longer = session.process();
    auto& shorter = session.process();
    auto& other = session.process();
    other.create(1, 30 * kMiB);
    longer.sample(kTotal - 100 * kMiB, kTotal).lasted(0, 100'000).sample_end();
    shorter.sample(kTotal - 100 * kMiB, kTotal).sample_end();
    other.create(2, 4 * kMiB);
    const std::vector<EventLog>& events = session.trace().events;
    const Event& asked = events[1].front();
    REQUIRE(asked.start.value + asked.duration_ns < events[2].back().start.value);
    const auto report = reported(session);
    REQUIRE(report.balances_size() == 2);
    for (const report::Balance& balance : report.balances()) {
        CHECK(part(balance, "process").low_bytes() == 30 * kMiB);
        CHECK(part(balance, "process").high_bytes() == (balance.process() == 0 ? 34 : 30) * kMiB);
    }
}

TEST_CASE("of another process's calls at the same time, each may or may not count") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    b.create(1, 30 * kMiB).create(2, 10 * kMiB);
    // Its second thread's call is over, its first one's is not.
    b.release(1).lasted(0, 1'000'000).thread(2).create(3, 4 * kMiB);
    a.sample(kTotal - 100 * kMiB, kTotal).sample_end();
    const auto report = reported(session);
    REQUIRE(report.balances_size() == 1);
    CHECK(part(report.balances(0), "process").low_bytes() == 14 * kMiB);
    CHECK(part(report.balances(0), "process").high_bytes() == 44 * kMiB);
}

TEST_CASE("another process's acquisition may count although calls after the sample were numbered before it") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    b.create(1, 30 * kMiB);
    const std::uint64_t before = session.trace().events[1].back().start.value;
    a.sample(kTotal - 100 * kMiB, kTotal).sample_end();
    b.thread(2).create(2, 4 * kMiB).thread(1).create(3, 8 * kMiB);
    const std::uint64_t now = session.trace().events[1].back().start.value;
    b.lasted(now - before - 1, 0);
    const auto report = reported(session);
    REQUIRE(report.balances_size() == 1);
    CHECK(part(report.balances(0), "process").low_bytes() == 30 * kMiB);
    CHECK(part(report.balances(0), "process").high_bytes() >= 38 * kMiB);
}

TEST_CASE("what other recorded processes hold is a part of its own; a checkpointed one holds nothing") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    b.create(1, 30 * kMiB);
    a.create(1, 2 * kMiB).sample(kTotal - 100 * kMiB, kTotal).sample_end();
    a.call(Kind::kCheckpoint, 2, 0, 101, 0).sample(kTotal - 70 * kMiB, kTotal).sample_end();
    const auto report = reported(session);
    REQUIRE(report.balances_size() == 2);
    CHECK(part(report.balances(0), "process").low_bytes() == 30 * kMiB);
    CHECK(report.balances(0).unattributed().low_bytes() == 68 * kMiB);
    CHECK_FALSE(has_part(report.balances(1), "process"));
    CHECK(report.balances(1).unattributed().low_bytes() == 68 * kMiB);
}

TEST_CASE("what came in between is listed, as no more than that") {
    SessionBuilder session;
    auto& p = session.process();
    p.sample(kTotal - 10 * kMiB, kTotal).sample_end();
    p.call(Kind::kContextCreated, 0, 0, 0xd0, 0).call(Kind::kModuleLoaded, 0, 3 * kMiB, 0x90, 0xd0);
    p.call(Kind::kModuleLoaded, 0, 0, 0x91, 0xd0).call(Kind::kLimitSet, 0, 64 * kKiB, 0xd0, 0);
    p.call(Kind::kModuleLoaded, 0, 0, 0x92, 0xd0).failed(1);
    p.sample(kTotal - 400 * kMiB, kTotal).sample_end();
    const auto report = reported(session);
    REQUIRE(report.balances_size() == 2);
    const auto& since = report.balances(1).since_before();
    CHECK(report.balances(0).since_before().empty());
    CHECK(any_contains(since, "1 context was created"));
    CHECK(any_contains(since, "2 modules or libraries were loaded (3 MiB of images)"));
    CHECK(any_contains(since, "limit was set 1 time"));
    CHECK(any_contains(report.balances(1).may_hold(), "1 context of this process"));
    CHECK(any_contains(report.balances(1).may_hold(), "2 modules and libraries"));
}

TEST_CASE("a failure has its balance, in the report and in its explanation") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 7 * kGiB).create(2, 2 * kGiB).failed().snapshot(512 * kMiB, kTotal).snapshot_end();
    const auto explanation = explained(session);
    REQUIRE(explanation.has_balance());
    CHECK(explanation.balance().moments(0) == "failure 1");
    CHECK(part(explanation.balance(), "handles").low_bytes() == 7 * kGiB);
    CHECK(explanation.balance().unattributed().low_bytes() == 512 * kMiB);
    const auto report = reported(session);
    REQUIRE(report.balances_size() == 1);
    CHECK(report.balances(0).unattributed().low_bytes() == 512 * kMiB);
    CHECK_FALSE(report.balances_missing().empty());  // nobody asked between calls
}

TEST_CASE("of several devices in a snapshot each is read at its own moment") {
    SessionBuilder session;
    auto& p = session.process();
    p.another_device(4 * kGiB, 'B');
    p.call(Kind::kHandleCreated, 0, 5 * kGiB, 9, wire::pack_location(1, 1, 0)).failed().on(1);
    p.snapshot(kTotal, kTotal, 0);
    p.thread(2).call(Kind::kHandleCreated, 0, kGiB, 8, wire::pack_location(1, 1, 0)).on(1);
    p.thread(1).snapshot(3 * kGiB, 4 * kGiB, 1).snapshot_end();
    const auto explanation = explained(session);
    REQUIRE(explanation.has_balance());
    CHECK(explanation.balance().taken().low_bytes() == kGiB);
    CHECK(part(explanation.balance(), "handles").low_bytes() == kGiB);
    CHECK(explanation.balance().unattributed().high_bytes() == 0);
}

TEST_CASE("a sample that lost its end is not used") {
    SessionBuilder session;
    auto& p = session.process();
    p.sample(kTotal - 10 * kMiB, kTotal).linear(0x10000000, kMiB).sample_end();
    CHECK(reported(session).balances_size() == 0);
}

TEST_CASE("random runs of two processes and two devices: every sum adds up, whatever the records say") {
    std::mt19937_64 random(17);
    for (int round = 0; round < 40; ++round) {
        SessionBuilder session;
        auto& a = session.process();
        auto& b = session.process(kTotal, round % 2 == 0 ? 'A' : 'B');
        a.another_device(kTotal, 'B');
        for (int step = 0; step < 150; ++step) {
            ProcessBuilder& p = random() % 2 == 0 ? a : b;
            p.thread(static_cast<std::int32_t>(1 + random() % 3));
            const std::uint64_t kind = 1 + random() % static_cast<std::uint64_t>(wire::kLastKind);
            const std::uint64_t place = (1 + random() % 8) << 28;
            const auto what = static_cast<Kind>(kind);
            if (random() % 8 == 0) {
                p.sample(random() % kTotal, kTotal).sample_pool(0xb00, 0, random() % kGiB);
                if (random() % 2 == 0) p.sample_graphs(0, random() % kGiB);
                p.sample_end(random() % 2);
            } else if (random() % 16 == 0) {
                p.linear(0, 16 * kGiB).failed().snapshot(random() % kTotal, kTotal).snapshot_end();
            } else {
                p.call(what, place, random() % (64 * kMiB), random() % 16, random() % 3);
                if (&p == &a && random() % 3 == 0) p.on(1);
                p.lasted(random() % 3000, random() % 3000);
            }
        }
        const auto report = reported(session);
        CHECK(report.balances_size() > 0);
    }
}

TEST_CASE(
    "a launch that the device has no memory for is a request for memory, of an amount that it does not say") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 8 * kGiB - 64 * kMiB).call(Kind::kCalled).failed().snapshot(0, kTotal).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == report::Verdict::capacity_exhaustion);
    CHECK(e.balance().unattributed().low_bytes() == 64 * kMiB);
    p.call(Kind::kCalled).failed(1);  // another error is no shortage
    CHECK(explain_failure(session.trace(), 2).verdict().cause() == report::Verdict::not_an_allocation);
}

TEST_CASE("graphs keep what nobody uses: a trim would have made room") {
    SessionBuilder session;
    auto& p = session.process();
    p.call(Kind::kGraphAllocNode, 0x70000000, 3 * kGiB, 0x91, 0x92).create(1, 4 * kGiB);
    p.create(2, 2 * kGiB).failed().snapshot(kGiB / 2, kTotal).snapshot_graphs(0, 3 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(row(e, "with_graph_memory_trimmed").outcome() == report::Counterfactual::fits);
    CHECK(e.verdict().cause() == report::Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "kept_by_graphs");
    CHECK(says(e, "cuDeviceGraphMemTrim"));
    CHECK(part(e.balance(), "graphs").low_bytes() == 3 * kGiB);
    CHECK(e.balance().unattributed().low_bytes() == kGiB / 2);
}
