// Durations of calls by size, and how often a request's size recurs.
#include "analysis/sized_times.h"

#include <doctest/doctest.h>

#include "analysis/recurrence.h"
#include "analysis/run_watch.h"
#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

Recurrence recurrence_of(const Trace& trace, const RequestMade& request) {
    RunWatch watch(trace, {0}, 0, {request});
    watch.finish();
    return watch.facts(request).reuse;
}

}  // namespace

TEST_CASE("percentiles, not means: one call of a second among a hundred leaves the median where it was") {
    SizedTimes times;
    for (int i = 0; i < 99; ++i) times.add(TimedCall::kAllocate, kMiB, 1'000);
    times.add(TimedCall::kAllocate, kMiB, 1'000'000'000);
    const auto got = times.times(TimedCall::kAllocate, kMiB);
    REQUIRE(got);
    CHECK(got->count() == 100);
    CHECK(got->least_ns() == 1'000);
    // Exact to 1/32; the mean would be 10,000,990 ns.
    CHECK(got->median_ns() >= 1'000);
    CHECK(got->median_ns() <= 1'032);
    CHECK(got->p99_ns() <= 1'032);  // the 99th of 100
    CHECK(got->max_ns() == 1'000'000'000);
}

TEST_CASE("each size class stands for itself; of one that is missing the nearest speaks, and says so") {
    SizedTimes times;
    times.add(TimedCall::kMap, 2 * kMiB, 100);
    times.add(TimedCall::kMap, 8 * kMiB, 700);
    const auto same = times.times(TimedCall::kMap, 3 * kMiB);  // 2 MiB to less than 4 MiB
    REQUIRE(same);
    CHECK(same->max_ns() == 100);
    CHECK_FALSE(same->other_sizes());
    CHECK(same->sizes() == "2 MiB to less than 4 MiB");
    // Equally far from both: the larger one, never the cost of less work.
    const auto between = times.times(TimedCall::kMap, 4 * kMiB);
    REQUIRE(between);
    CHECK(between->max_ns() == 700);
    CHECK(between->other_sizes());
    CHECK_FALSE(times.times(TimedCall::kUnmap, 2 * kMiB));
    CHECK(times.all().size() == 2);
}

TEST_CASE("only successful calls of the program on this device count, with a duration that was taken") {
    SessionBuilder session;
    auto& p = session.process();
    p.another_device(8 * kGiB, 'B');
    p.linear(0x10000000, kMiB);                                                  // counts: 100 ns
    p.linear(0, kMiB).failed();                                                  // failed
    p.linear(0x20000000, kMiB).flagged(wire::kByShim);                           // not the program's
    p.linear(0x30000000, kMiB).on(1);                                            // elsewhere
    p.reserve(0x40000000, 2 * kMiB).on(kNoDevice);                               // of no device
    p.call(Kind::kAccessSet, 0x40000000, 2 * kMiB).flagged(wire::kContinued);    // the same call again
    p.call(Kind::kHandleCreated, 0, 2 * kMiB, 1, wire::pack_location(3, 0, 0));  // host memory
    const Trace trace = session.trace();
    SizedTimesWatch watch(trace, 0);
    trace.events[0].for_each(0, trace.events[0].size(), [&](std::size_t, const Event& e) { watch.add(e); });
    const SizedTimes& times = watch.times();
    const auto all = times.all();
    REQUIRE(all.size() == 2);
    CHECK(all[0].call() == "cuMemAlloc");
    CHECK(all[0].count() == 1);
    CHECK(all[0].max_ns() == 100);
    CHECK(all[1].call() == "cuMemAddressReserve");
}

TEST_CASE("recurrence: acquisitions of exactly the size, and how many lived at once") {
    SessionBuilder session;
    auto& p = session.process();
    // Ten of 4 MiB, never more than two at once; others do not count.
    for (std::uint64_t i = 0; i < 5; ++i) {
        p.linear(0x10000000, 4 * kMiB).stack(9).linear(0x20000000, 4 * kMiB).linear(0x30000000, 5 * kMiB);
        p.free(0x10000000).free(0x20000000).free(0x30000000);
    }
    const Recurrence seen = recurrence_of(session.trace(), {Kind::kLinearAcquired, 4 * kMiB, 9});
    CHECK(seen.acquisitions == 10);
    CHECK(seen.most_at_once == 2);
    CHECK(seen.at_this_site == 5);
    CHECK(seen.uses() == Interval::exactly(5));
    CHECK_FALSE(recurrence_of(session.trace(), {Kind::kLinearAcquired, 6 * kMiB, 0}).uses().known());
    // Three acquisitions for two backings: one or two uses each.
    p.linear(0x10000000, 7 * kMiB).free(0x10000000).linear(0x10000000, 7 * kMiB).linear(0x20000000, 7 * kMiB);
    CHECK(recurrence_of(session.trace(), {Kind::kLinearAcquired, 7 * kMiB, 0}).uses() ==
          Interval{1, 2});
}

TEST_CASE("recurrence: a handle is given back by its name") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 2 * kMiB).create(2, 2 * kMiB).release(1).create(3, 2 * kMiB).release(2).release(3);
    const Recurrence seen = recurrence_of(session.trace(), {Kind::kHandleCreated, 2 * kMiB, 0});
    CHECK(seen.acquisitions == 3);
    CHECK(seen.most_at_once == 2);
}
