// What the report counts over the whole run.
#include "analysis/explain.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/costs.h"
#include "analysis/quantity.h"
#include "analysis/session.h"
#include "analysis/timeline.h"
#include "tests/unit/analysis/builder.h"
#include "tests/unit/analysis/scenario.h"

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

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
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
    REQUIRE(report.leaks_size() != 0);
    CHECK(report.leaks(0).kind() == report::LeakClass::handle_without_mapping);
    CHECK(report.leaks(0).count() == 1);
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
    session.trace().events[0].edit_last().duration_ns = 1'000'000;
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
        session.trace().events[0].edit_last().duration_ns = i * 1000;
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
    for (std::size_t i = 0; i < events.size(); ++i) {
        Event& event = events.edit(i);
        if (event.kind != wire::Kind::kLinearAcquired) event.duration_ns = 0;
        if (event.kind == wire::Kind::kTouched) event.function = {5};
    }
    events.edit(2).duration_ns = 0;  // one of the two allocations, too
    events.edit(3).duration_ns = 5000;
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

// ------------------------------------------------------------------------- what the trace cannot know, in
// words

TEST_CASE("no failure is claimed only of a trace that is whole") {
    SessionBuilder session;
    session.process().linear(0x10000000, kGiB);
    CHECK(explained(session).verdict().cause() == report::Verdict::no_failure);
    session.trace().file.cut_off = true;
    const auto cut = explained(session);
    CHECK(cut.verdict().cause() == report::Verdict::undetermined);
    CHECK(contains(cut.verdict().summary(), "Whether a request for memory failed is not known"));
    CHECK_FALSE(cut.verdict().deciding_measurement().empty());
    CHECK_FALSE(cut.health().complete());
    session.trace().file.cut_off = false;
    session.trace().end.set_events_not_written(4711);
    CHECK(contains(explained(session).verdict().summary(), "4711 recorded events are missing"));
}

TEST_CASE("why something could not be recorded weakens the trace and stands at its top") {
    SessionBuilder session;
    session.process().linear(0x10000000, kGiB);
    session.trace().end.add_warnings("The program is linked statically, so nothing of it was recorded.");
    const auto e = explained(session);
    CHECK_FALSE(e.health().complete());
    REQUIRE(e.health().warnings_size() == 1);
    CHECK(e.health().warnings(0) == "The program is linked statically, so nothing of it was recorded.");
    CHECK(e.verdict().cause() == report::Verdict::undetermined);
}

TEST_CASE("a trace of no process knows of no call, and does not say that none failed") {
    SessionBuilder session;
    const auto e = explained(session);
    CHECK(e.verdict().cause() == report::Verdict::undetermined);
    CHECK_FALSE(e.health().complete());
}

TEST_CASE("calls that failed for another reason than memory are named and counted") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, kGiB).failed(201);
    const auto one = explained(session);
    CHECK(one.verdict().cause() == report::Verdict::no_failure);
    CHECK(one.verdict().summary() ==
          "No request failed for want of memory. 1 call failed otherwise: cuMemAlloc_v2, "
          "CUDA_ERROR_INVALID_CONTEXT.");
    p.linear(0, kGiB).failed(201);
    CHECK(contains(explained(session).verdict().summary(),
                   "2 calls failed otherwise: cuMemAlloc_v2, CUDA_ERROR_INVALID_CONTEXT (2 times)."));
}

TEST_CASE("a size that is no multiple of the granularity is the named reason of an invalid value") {
    SessionBuilder session;
    auto& p = session.process();
    p.process().mutable_devices(0)->set_minimum_granularity_bytes(2 * kMiB);
    p.create(1, 3 * kMiB).failed(1).create(2, 4 * kMiB).failed(1);
    const auto wrong = explain_failure(session.trace(), 1);
    CHECK(wrong.verdict().cause() == report::Verdict::not_an_allocation);
    CHECK(wrong.verdict().constraint() == "size_not_multiple_of_granularity");
    CHECK(contains(wrong.verdict().summary(),
                   "3 MiB (3145728 B), is not a multiple of the device's granularity"));
    CHECK(
        says(wrong, "Round the size up to whole multiples of 2 MiB (cuMemGetAllocationGranularity): 4 MiB"));
    const auto other = explain_failure(session.trace(), 2);
    CHECK(other.verdict().constraint().empty());
}

TEST_CASE("a process that a signal ended may have had a call under way") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kGiB);
    p.process().set_ended_how("signal 9");
    const auto quiet = explained(session);
    CHECK(
        contains(quiet.verdict().summary(), "was ended by signal 9: a call that was under way then has no"));
    p.linear(0, 9 * kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    REQUIRE(e.not_known_size() != 0);
    CHECK(contains(e.not_known(e.not_known_size() - 1), "ended by signal 9"));
}

TEST_CASE(
    "bounds: a success of another mechanism is a witness for that mechanism, and its upper end may fit") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, kGiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    p.create(1, 32 * kMiB).create(2, 32 * kMiB);
    const auto e = explained(session);
    CHECK(bound(e, "direct").largest().low_bytes() == 0);
    CHECK(bound(e, "direct").largest().high_bytes() == 64 * kMiB);
    CHECK(bound(e, "vmm").largest().low_bytes() == 32 * kMiB);
    CHECK(bound(e, "vmm").largest().high_bytes() == 64 * kMiB);
    CHECK(bound(e, "stitched").largest().low_bytes() == 64 * kMiB);
    CHECK(bound(e, "segmented").largest().low_bytes() == 64 * kMiB);
}

TEST_CASE("bounds: after a release, or with more than there was, a success is no witness") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kGiB).linear(0, kGiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    p.create(1, 128 * kMiB);
    CHECK(bound(explained(session), "vmm").largest().low_bytes() == 0);
    SessionBuilder released;
    auto& q = released.process();
    q.linear(0x10000000, kGiB).linear(0, kGiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    q.free(0x10000000).create(1, 32 * kMiB);
    CHECK(bound(explained(released), "vmm").largest().low_bytes() == 0);
}

TEST_CASE("internal waste is what is charged and holds no payload: pages that nothing wrote to are in it") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 7 * kGiB).reserve(0x4000000000, 7 * kGiB).map(0x4000000000, 7 * kGiB, 1);
    p.touch(0x4000000000, 64 * kMiB);
    p.loss().set_kernel_launches(0);
    p.loss().set_opaque_writes(0);
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    const auto& physical = domain(e, "physical");
    CHECK(physical.charged().low_bytes() == 7 * kGiB);
    CHECK(physical.requested().definition() == Q::payload_written);
    CHECK(physical.requested().low_bytes() == 64 * kMiB);
    CHECK(physical.internal_waste().low_bytes() == 7 * kGiB - 64 * kMiB);
    CHECK(physical.internal_waste().high_bytes() == 7 * kGiB - 64 * kMiB);
    CHECK(physical.internal_ratio() == doctest::Approx(1.0 - 64.0 / 7168));
    p.loss().set_kernel_launches(1);  // it may have written anywhere
    const auto open = explained(session);
    CHECK(domain(open, "physical").internal_waste().low_bytes() == 0);
    CHECK(domain(open, "physical").internal_waste().high_bytes() == 7 * kGiB - 64 * kMiB);
}

TEST_CASE("what pools held is among the peaks, as the least that it was") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x2000000000, kGiB, 0xb00).linear(0, 8 * kGiB).failed().snapshot(kGiB, 8 * kGiB);
    p.snapshot_pool(0xb00, kGiB, 3 * kGiB).snapshot_end();
    const auto report = make_report(session.trace());
    bool found = false;
    for (const auto& each : report.peaks()) {
        if (each.quantity().scope().domain() != "pools") continue;
        found = true;
        CHECK(each.quantity().definition() == Q::charged);
        CHECK(each.quantity().low_bytes() == 3 * kGiB);
        CHECK_FALSE(each.quantity().has_high_bytes());
    }
    CHECK(found);
}

TEST_CASE("how long before another failure was is told in a unit that shows it") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 9 * kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    p.linear(0, 9 * kGiB).failed();
    const auto e = explained(session);
    CHECK(says(e, "us before"));
    CHECK_FALSE(says(e, "0.0 ms"));
}

TEST_CASE("the ends of an interval that read alike are told apart by their bytes") {
    CHECK(in_words(Interval{kGiB, kGiB + 4095}) == "between 1 GiB and 1.00 GiB");
    CHECK(in_words(Interval{kGiB + 1, kGiB + 4095}) == "between 1073741825 B and 1073745919 B");
    // A request of which not even the bytes say anything: no address space is that large.
    CHECK(in_words(Interval{UINT64_MAX - 4095, UINT64_MAX}) ==
          "more than any address space (128 PiB or more)");
    CHECK(in_words(Interval{kGiB, 2 * kGiB}) == "between 1 GiB and 2 GiB");
}
