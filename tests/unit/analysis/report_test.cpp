// What the report counts over the whole run.
#include "analysis/report.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/costs.h"
#include "analysis/session.h"
#include "analysis/timeline.h"
#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using Q = report::Quantity;

namespace {

const report::Quantity* peak(const report::Report& r, Q::Definition definition) {
    for (const auto& p : r.peaks()) {
        if (p.quantity().definition() == definition) return &p.quantity();
    }
    return nullptr;
}

const report::Leak* leak(const report::Report& r, const std::string& what) {
    for (const auto& l : r.left_at_end()) {
        if (l.what() == what) return &l;
    }
    return nullptr;
}

}  // namespace

TEST_CASE("peaks say how much and when; what was never released is listed") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kGiB).linear(0x80000000, kGiB);
    const std::uint64_t at_peak = p.last_sequence();
    p.free(0x10000000).create(1, 2 * kMiB).reserve(0x4000000000, 4 * kMiB);
    const auto report = make_report(session.trace());
    REQUIRE(peak(report, Q::requested) != nullptr);
    CHECK(peak(report, Q::requested)->low_bytes() == 2 * kGiB);
    CHECK(peak(report, Q::requested)->scope().snapshot() == at_peak);
    CHECK(peak(report, Q::charged)->low_bytes() == 2 * kMiB);
    REQUIRE(leak(report, "linear") != nullptr);
    CHECK(leak(report, "linear")->count() == 1);
    CHECK(leak(report, "linear")->bytes().low_bytes() == kGiB);
    CHECK(leak(report, "physical allocation")->count() == 1);
    CHECK(leak(report, "physical allocation without a mapping")->count() == 1);
    CHECK(leak(report, "address reservation")->bytes().low_bytes() == 4 * kMiB);
    CHECK(report.health().complete());
    REQUIRE(report.devices_size() == 1);
    CHECK(report.devices(0).uuid() == "GPU-41414141-4141-4141-4141-414141414141");
}

TEST_CASE("a long run is thinned to a readable number of points, and its peak is among them") {
    SessionBuilder session;
    auto& p = session.process();
    for (std::uint64_t i = 0; i < 5000; ++i) {
        const std::uint64_t bytes = i == 2345 ? 3 * kGiB : kMiB + i;
        p.linear(0x10000000, bytes).free(0x10000000);
    }
    const auto report = make_report(session.trace());
    REQUIRE(report.timelines_size() == 1);
    const auto& points = report.timelines(0).points();
    CHECK(points.size() <= 200);
    CHECK(points.size() >= 50);
    CHECK(std::any_of(points.begin(), points.end(),
                      [](const auto& x) { return x.linear_requested_bytes() == 3 * kGiB; }));
    CHECK(std::is_sorted(points.begin(), points.end(),
                         [](const auto& a, const auto& b) { return a.sequence() < b.sequence(); }));
}

TEST_CASE("a session of two processes: failures are numbered by time") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    a.linear(0, 9 * kGiB).failed();
    b.linear(0, 9 * kGiB).failed();
    a.linear(0, 9 * kGiB).failed(201);
    const auto failures = list_failures(session.trace());
    REQUIRE(failures.size() == 3);
    CHECK(failures[0].process.value == 0);
    CHECK(failures[1].process.value == 1);
    CHECK(failures[2].process.value == 0);
    CHECK(default_failure(failures) == 2u);
}

TEST_CASE("a neighbour's call that was under way counts as maybe") {
    SessionBuilder session;
    auto& holder = session.process();
    auto& worker = session.process();
    holder.linear(0x10000000, 2 * kGiB).linear(0x90000000, 3 * kGiB);
    // The second call of the holder began before the worker's failure and ended after it.
    session.trace().events[0].back().duration_ns = 1'000'000;
    worker.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explain_failure(session.trace());
    for (const auto& q : e.audit()) {
        if (q.definition() != Q::other_processes) continue;
        CHECK(q.evidence() == Q::bounded);
        CHECK(q.low_bytes() == 2 * kGiB);
        CHECK(q.high_bytes() == 5 * kGiB);
    }
    CHECK(e.verdict().cause() == report::Verdict::capacity_exhaustion);
}

TEST_CASE("a process that ended before holds nothing") {
    SessionBuilder session;
    auto& gone = session.process();
    auto& worker = session.process();
    gone.linear(0x10000000, 6 * kGiB);
    gone.process().set_ended_ns(session.tick());
    worker.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explain_failure(session.trace());
    for (const auto& q : e.audit()) {
        if (q.definition() == Q::other_processes) CHECK(q.high_bytes() == 0);
    }
}

TEST_CASE("health: each thing that is missing has its sentence") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kGiB);
    CHECK(make_report(session.trace()).health().complete());
    p.loss().set_acquisitions(2);
    p.loss().set_acquired_bytes(5 * kMiB);
    p.loss().set_rings_damaged(1);
    p.process().set_environment_complete(false);
    session.trace().file.cut_off = true;
    session.trace().end.set_processes_refused(1);
    const auto health = make_report(session.trace()).health();
    CHECK_FALSE(health.complete());
    CHECK(health.warnings_size() == 5);
    CHECK(health.records_lost() == 2);
    CHECK(health.file_cut_off());
    session.trace().losses[0].Clear();
    CHECK_FALSE(make_report(session.trace()).health().complete());  // not counted is not "none"
}

TEST_CASE("costs: calls, failures and percentiles by function; the shim's own calls do not count") {
    SessionBuilder session;
    auto& p = session.process();
    for (std::uint64_t i = 1; i <= 100; ++i) {
        p.linear(0x10000000 + i * kMiB, kKiB);
        session.trace().events[0].back().duration_ns = i * 1000;
    }
    p.linear(0, 9 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto report = make_report(session.trace());
    const auto& cost = report.costs(0);
    CHECK(cost.function() == "cuMemAlloc_v2");
    CHECK(cost.calls() == 101);
    CHECK(cost.failed() == 1);
    CHECK(cost.max_ns() == 100'000);
    CHECK(cost.median_ns() >= 50'000);
    CHECK(cost.median_ns() <= 50'000 * 33 / 32 + 1);
    CHECK(report.costs_size() == 1);
}

TEST_CASE("costs: a duration that was not taken is no duration of zero") {
    SessionBuilder session;
    auto& p = session.process();
    p.synchronize(7).synchronize(7).linear(0x10000000, kMiB).linear(0x20000000, kMiB).touch(0x10000000, kKiB);
    auto& events = session.trace().events[0];
    session.trace().functions.push_back("cuMemcpyHtoD_v2");
    for (Event& event : events) {
        if (event.kind != wire::Kind::kLinearAcquired) event.duration_ns = 0;
        if (event.kind == wire::Kind::kTouched) event.function = {5};
    }
    events[2].duration_ns = 0;  // one of the two allocations, too
    events[3].duration_ns = 5000;
    const auto report = make_report(session.trace());
    REQUIRE(report.costs_size() ==
            2);  // what was written is recorded once a growth: that is no count of calls
    CHECK(report.costs(0).function() == "cuMemAlloc_v2");
    CHECK(report.costs(0).calls() == 2);
    CHECK(report.costs(0).max_ns() == 5000);
    CHECK(report.costs(0).median_ns() == 5000);
    CHECK(report.costs(1).function() == "other");
    CHECK(report.costs(1).calls() == 2);
    CHECK_FALSE(report.costs(1).has_median_ns());
    CHECK_FALSE(report.costs(1).has_p99_ns());
    CHECK_FALSE(report.costs(1).has_max_ns());
}

TEST_CASE("blind spots: an unknown device counts where memory was taken, not where it was given back") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kMiB).free(0x10000000).flagged(wire::kUnknownDevice);
    p.create(1, 2 * kMiB)
        .map(0x20000000, 2 * kMiB, 1)
        .flagged(wire::kUnknownDevice)
        .unmap(0x20000000, 2 * kMiB);
    p.flagged(wire::kUnknownDevice).release(1).flagged(wire::kUnknownDevice);
    p.linear(0, kMiB).flagged(wire::kUnknownDevice).failed(201);
    CHECK(make_report(session.trace()).processes(0).blind_spots().empty());
    p.linear(0x30000000, kMiB).flagged(wire::kUnknownDevice).on(kNoDevice);
    const auto report = make_report(session.trace());
    REQUIRE(report.processes(0).blind_spots_size() == 1);
    CHECK(report.processes(0).blind_spots(0).find("For 1 allocation") == 0);
}

TEST_CASE("a duration histogram is never off by more than a thirty-second") {
    for (std::uint64_t ns = 1; ns < (std::uint64_t{1} << 40); ns = ns * 5 / 3 + 1) {
        DurationHistogram one;
        one.add(ns);
        one.add(UINT64_MAX);
        CHECK(one.quantile(0.5) >= ns);
        CHECK(one.quantile(0.5) <= ns + ns / 32);
    }
    CHECK(DurationHistogram{}.quantile(0.5) == 0);
}
