// The mistakes that a diagnosis of GPU memory invites, one case each: what the tool would have to say to make
// it, and that it does not. Where a mistake is about one function, that function's own tests go further.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/explain_scenario.h"
#include "analysis/mechanism_order.h"
#include "analysis/read/scenario_reader.h"
#include "tests/unit/analysis/mechanism_rows.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using report::Counterfactual;
using report::Mechanism;
using report::Verdict;
using wire::Kind;

namespace {

report::Explanation of(const std::string& line) {
    const analysis::ScenarioText read = analysis::read_scenario(line);
    REQUIRE_MESSAGE(read.scenario, read.problem);
    const report::Explanation out = analysis::explain_scenario(*read.scenario);
    check_words(out);
    return out;
}

bool is_fragmentation(Verdict::Cause cause) {
    return cause == Verdict::virtual_space_fragmentation || cause == Verdict::physical_external_fragmentation ||
           cause == Verdict::allocator_external_fragmentation || cause == Verdict::internal_fragmentation;
}

// 8 GiB, 4 of them held by nobody in eight runs of 512 MiB; the driver needs one run for a request of 1 GiB.
const std::string kRuns =
    R"({"id": "runs", "events": [{"op": "device", "capacity": 8589934592, "contiguity_required": true},)"
    R"( {"op": "driver_alloc", "id": "x", "bytes": 4294967296}, {"op": "physical_free_runs", "bytes":)"
    R"( [536870912, 536870912, 536870912, 536870912, 536870912, 536870912, 536870912, 536870912]}],)"
    R"( "request": {"kind": "driver", "bytes": 1073741824}})";

// 8 GiB, of which the framework's allocator has 7 in two segments: one full, one of 4 GiB without a block. 1 GiB
// is held by nobody; another library asks the driver for 2.
const std::string kCachedElsewhere =
    R"({"id": "cached", "events": [{"op": "device", "capacity": 8589934592},)"
    R"( {"op": "segment", "id": "full", "bytes": 3221225472},)"
    R"( {"op": "block", "id": "b", "segment": "full", "offset": 0, "bytes": 3221225472},)"
    R"( {"op": "segment", "id": "empty", "bytes": 4294967296}], "request": {"kind": "driver", "bytes": 2147483648}})";

}  // namespace

TEST_CASE("a sum of bytes does not hide that the largest piece is too small") {
    const auto e = of(kRuns);
    CHECK(e.verdict().cause() == Verdict::physical_external_fragmentation);
    CHECK(bound(e, "direct").largest().high_bytes() == 512 * kMiB);  // the largest run
    CHECK(row(e, "as_it_was").outcome() == Counterfactual::does_not_fit);
    // 4 GiB in all, and no piece over 512 MiB: 1 - 1/8.
    CHECK(domain(e, "physical").free_sum().low_bytes() == 4 * kGiB);
    CHECK(domain(e, "physical").external_ratio() == doctest::Approx(0.875));
}

TEST_CASE("a failure alone is not called fragmentation, however much the message suggests it") {
    // The driver refused 1 GiB though 7 were held by nobody, and though a framework keeps gaps.
    SessionBuilder session;
    session.process().linear(0, kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto refused = explained(session);
    CHECK_FALSE(is_fragmentation(refused.verdict().cause()));
    CHECK_FALSE(refused.verdict().deciding_measurement().empty());
    // Nobody was asked: no number, so no cause at all.
    SessionBuilder silent;
    silent.process().linear(0, kGiB).failed();
    const auto unknown = explained(silent);
    CHECK(unknown.verdict().cause() == Verdict::undetermined);
    CHECK_FALSE(unknown.verdict().deciding_measurement().empty());
    // All that is there would not do, in whatever pieces it lies.
    const auto full = of(
        R"({"id": "full", "events": [{"op": "device", "capacity": 4294967296}, {"op": "segment", "id": "s", "bytes":)"
        R"( 4294967296}, {"op": "block", "id": "a", "segment": "s", "offset": 0, "bytes": 2147483648},)"
        R"( {"op": "block", "id": "b", "segment": "s", "offset": 2684354560, "bytes": 1073741824}],)"
        R"( "request": {"kind": "allocator", "bytes": 2147483648, "segment_rounding": 2097152, "block_rounding": 512}})");
    CHECK(full.verdict().cause() == Verdict::capacity_exhaustion);
}

TEST_CASE("what an allocator keeps is not eligible for others until it is given back") {
    const auto e = of(kCachedElsewhere);
    // 1 GiB is eligible, not 1 + 4.
    CHECK(row(e, "as_it_was").available().high_bytes() == kGiB);
    CHECK(row(e, "as_it_was").outcome() == Counterfactual::does_not_fit);
    CHECK(row(e, "with_framework_segments_returned").available().low_bytes() == 5 * kGiB);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "cached_by_allocator");
    for (const report::Quantity& quantity : e.audit()) {
        if (quantity.definition() == report::Quantity::eligible_free && quantity.scope().domain() == "physical")
            CHECK(quantity.high_bytes() == kGiB);
        if (quantity.definition() == report::Quantity::cached && quantity.of() == "framework's allocator")
            CHECK(quantity.low_bytes() == 4 * kGiB);
    }
}

TEST_CASE("consecutive addresses are not taken for one physical piece") {
    SessionBuilder session;
    session.process().linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.request().contiguity() == report::Request::virtual_only);
    CHECK_FALSE(e.request().contiguity_reason().empty());
    // No run is known by a program: what is known is that none is larger than the sum.
    CHECK_FALSE(domain(e, "physical").free_largest().has_low_bytes());
    CHECK_FALSE(domain(e, "physical").has_external_ratio());
    // Virtual and physical are two domains, each with its own numbers.
    CHECK(domain(e, "virtual").free_sum().scope().domain() != domain(e, "physical").free_sum().scope().domain());
}

TEST_CASE("stitching makes no physical piece larger, and what needs one rejects it") {
    const auto e = of(kRuns);
    CHECK(bound(e, "stitched").largest().low_bytes() == 4 * kGiB);  // in pieces
    CHECK(bound(e, "vmm").largest().high_bytes() == 512 * kMiB);    // one handle
    CHECK(has(mechanism(e, "stitched").does_not(), "make a physical extent larger"));
    CHECK(mechanism(e, "stitched").standing() != Mechanism::feasible);
}

TEST_CASE("mapped memory removes neither internal waste nor a limit on mappings") {
    SessionBuilder session;
    session.process().linear(0, 3 * kMiB).failed().snapshot(kMiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(has(mechanism(e, "stitched").does_not(), "take internal waste away"));
    CHECK(has(mechanism(e, "stitched").does_not(), "lift a limit on the number of mappings"));
    const auto limited = of(
        R"({"id": "mappings", "events": [{"op": "device", "capacity": 8589934592, "mapping_limit": 65530,)"
        R"( "mappings": 65530}], "request": {"kind": "driver", "bytes": 4194304}})");
    CHECK(limited.verdict().constraint() == "mapping_count");
    CHECK(mechanism(limited, "stitched").standing() == Mechanism::rejected);
}

TEST_CASE("a table of segments changes the access contract, and no row hides it") {
    SessionBuilder session;
    session.process().linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    const Mechanism& segmented = mechanism(e, "segmented");
    CHECK(has(segmented.does_not(), "keep the access contract"));
    CHECK(segmented.standing() != Mechanism::feasible);
    const bool indirection =
        std::any_of(segmented.costs().begin(), segmented.costs().end(), [](const report::CostPart& part) {
            return part.part() == "indirection" && part.evidence() == report::CostPart::hypothesis &&
                   !part.falsified_by().empty();
        });
    CHECK(indirection);
}

TEST_CASE("compaction is rejected where nothing is known to be movable") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x1000000000, 6 * kGiB);
    p.linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    // The program has the pointer of its linear memory: moving it would break it.
    CHECK(mechanism(e, "compaction").standing() == Mechanism::rejected);
    CHECK_FALSE(mechanism(e, "compaction").reason().empty());
    CHECK(has(mechanism(e, "compaction").does_not(), "add any bytes"));
}

TEST_CASE("neither larger nor smaller pages are taken to be better") {
    SessionBuilder session;
    auto& p = session.process();
    p.process().mutable_devices(0)->set_recommended_granularity_bytes(32 * kMiB);
    p.linear(0, 3 * kMiB).failed().snapshot(kMiB, 8 * kGiB).snapshot_end();
    auto e = explained(session);
    // Larger pages round more, and that is said; that they would be faster is a hypothesis.
    CHECK(mechanism(e, "vmm_recommended").overhead(0).bytes().low_bytes() == 29 * kMiB);
    CHECK(has(mechanism(e, "vmm_recommended").does_not(), "faster"));
    // Smaller ones are not offered as if the driver gave them.
    CHECK(mechanism(e, "vmm_smaller").standing() == Mechanism::rejected);
    for (const char* id : {"vmm", "vmm_recommended"}) {
        for (const report::CostPart& part : mechanism(e, id).costs()) {
            if (part.part() != "translation") continue;
            CHECK(part.evidence() == report::CostPart::hypothesis);
            CHECK_FALSE(part.falsified_by().empty());
        }
    }
    // Without a measurement of it nothing is ranked by time.
    analysis::rank(*e.mutable_mechanisms(), "steady");
    CHECK(e.mechanisms().ranking().ranked().empty());
}

TEST_CASE("numbers of different pools are not combined into one ratio") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x1000000000, 64 * kMiB, 0xa).pool_take(0x2000000000, 32 * kMiB, 0xb);
    p.pool_take(0, 8 * kGiB, 0xa).failed().snapshot(kGiB, 8 * kGiB);
    p.snapshot_pool(0xa, 64 * kMiB, 96 * kMiB).snapshot_pool(0xb, 32 * kMiB, 320 * kMiB).snapshot_end();
    const auto e = explained(session);
    // Each pool has what it keeps for itself: 32 and 288 MiB; no domain has the sum of 320.
    CHECK(domain(e, "pool 0xa").free_sum().high_bytes() == 32 * kMiB);
    CHECK(domain(e, "pool 0xb").free_sum().high_bytes() == 288 * kMiB);
    for (const report::Domain& each : e.domains()) CHECK(each.free_sum().high_bytes() != 320 * kMiB);
    // And quantities of two scopes have no sum.
    analysis::Scope a, b;
    a.domain = "pool 0xa";
    b.domain = "pool 0xb";
    const auto one = analysis::Quantity::measured(report::Quantity::cached, 1, a, "");
    const auto other = analysis::Quantity::measured(report::Quantity::cached, 1, b, "");
    CHECK_FALSE(analysis::plus(one, other, report::Quantity::cached, ""));
}

TEST_CASE("a number of another moment is not used for a failure") {
    SessionBuilder session;
    auto& p = session.process();
    // Much was free before, by the driver's own word; at the failure it was not asked.
    p.sample(7 * kGiB, 8 * kGiB).sample_end();
    p.linear(0, 2 * kGiB).failed();
    const auto e = explained(session);
    CHECK_FALSE(audit(e, report::Quantity::device_free).has_low_bytes());
    CHECK_FALSE(audit(e, report::Quantity::device_free).reason().empty());
    CHECK(e.verdict().cause() == Verdict::undetermined);
}

TEST_CASE("what is set up once does not hide what every use costs") {
    SessionBuilder session;
    session.process().linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    for (const Mechanism& m : e.mechanisms().mechanisms()) {
        if (m.id() == "vmm_smaller") continue;
        CAPTURE(m.id());
        for (const char* part : {"setup", "steady_state", "tail", "translation", "indirection", "allocator",
                                 "synchronisation"}) {
            const bool there = std::any_of(m.costs().begin(), m.costs().end(),
                                           [&](const report::CostPart& cost) { return cost.part() == part; });
            CHECK_MESSAGE(there, part);
        }
        // Nothing was measured here, and no line has a number or is taken for none.
        for (const report::CostPart& cost : m.costs()) {
            if (cost.evidence() != report::CostPart::hypothesis) continue;
            CHECK_FALSE(cost.falsified_by().empty());
        }
    }
}

TEST_CASE("a way of backing that keeps memory longer says so") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x1000000000, 64 * kMiB, 0xa).pool_give(0x1000000000);
    p.linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(has(mechanism(e, "pool").changes(), "how long memory is held"));
}

TEST_CASE("no mechanism stands in for a measured comparison: what is not established is a hypothesis") {
    const auto scenario = of(kRuns);
    for (const Mechanism& m : scenario.mechanisms().mechanisms()) {
        CHECK(m.standing() != Mechanism::feasible);
        CHECK_FALSE(m.reason().empty());
    }
    CHECK_FALSE(scenario.mechanisms().has_ranking());
}

TEST_CASE("unknown is not zero") {
    const auto e = of(
        R"({"id": "unknown", "events": [{"op": "device", "capacity": 8589934592, "context_bytes": null},)"
        R"( {"op": "driver_alloc", "id": "x", "bytes": 4294967296}], "request": {"kind": "driver", "bytes": 3221225472}})");
    // Between nothing and 4 GiB are left, as nobody says what the context takes.
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(row(e, "as_it_was").outcome() == Counterfactual::cannot_tell);
    CHECK(audit(e, report::Quantity::device_free).low_bytes() == 0);
    CHECK(audit(e, report::Quantity::device_free).high_bytes() == 4 * kGiB);
}
