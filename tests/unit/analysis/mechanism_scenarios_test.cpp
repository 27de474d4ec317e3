// Bounds and ways of backing for states written by hand: where physical runs and limits are stated, the ends
// are exact, and what no run of a program stands behind is not known.
#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/explain_scenario.h"
#include "analysis/mechanism_order.h"
#include "tests/unit/analysis/mechanism_rows.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using analysis::Interval;
using analysis::Scenario;
using analysis::ScenarioRequest;
using report::CostPart;
using report::Mechanism;
using report::Prerequisite;

namespace {

// 8 GiB of which 1026 MiB are held by nobody, in runs of 512, 511 and 3 MiB; a request of 1 GiB failed.
Scenario three_runs() {
    Scenario out;
    out.id = "runs";
    out.device.capacity = Interval::exactly(8 * kGiB);
    out.device.contiguity_required = true;
    out.allocations = {Interval::exactly(8 * kGiB - 1026 * kMiB)};
    out.free_runs = {Interval::exactly(512 * kMiB), Interval::exactly(511 * kMiB),
                     Interval::exactly(3 * kMiB)};
    out.request.kind = ScenarioRequest::Kind::kDriver;
    out.request.bytes = Interval::exactly(kGiB);
    return out;
}

}  // namespace

TEST_CASE(
    "aggregate bytes hide a small largest extent: direct is one run, stitching the runs in whole units") {
    const auto e = analysis::explain_scenario(three_runs());
    check_words(e);
    CHECK(bound(e, "direct").largest().low_bytes() == 512 * kMiB);
    CHECK(bound(e, "direct").largest().high_bytes() == 512 * kMiB);
    CHECK(bound(e, "direct").limited_by().find("largest run") != std::string::npos);
    CHECK(bound(e, "vmm").largest().high_bytes() == 512 * kMiB);
    // 511 MiB hold 255 units of 2 MiB and 3 MiB one: 512 + 510 + 2.
    CHECK(bound(e, "stitched").largest().low_bytes() == 1024 * kMiB);
    CHECK(bound(e, "stitched").largest().high_bytes() == 1024 * kMiB);
    CHECK(bound(e, "segmented").largest().low_bytes() == 1026 * kMiB);
    // Nothing says that any memory could be moved: no run becomes larger.
    CHECK(mechanism(e, "compaction").standing() == Mechanism::rejected);
}

TEST_CASE("the largest run rejects one piece; pieces stay a hypothesis while the consumers are not known") {
    const auto e = analysis::explain_scenario(three_runs());
    CHECK(mechanism(e, "direct").standing() == Mechanism::rejected);
    CHECK(need(mechanism(e, "direct"), "backing").state() == Prerequisite::fails);
    CHECK(mechanism(e, "stitched").standing() == Mechanism::hypothesis);
    CHECK(need(mechanism(e, "stitched"), "backing").state() == Prerequisite::holds);
    CHECK(need(mechanism(e, "stitched"), "contract").state() == Prerequisite::not_known);
    CHECK(mechanism(e, "stitched").does_not(0).find("make a physical extent larger") == 0);
}

TEST_CASE(
    "runs where the driver needs no single one: the largest is witnessed, and bounds nothing from above") {
    Scenario scenario = three_runs();
    scenario.device.contiguity_required = false;
    const auto e = analysis::explain_scenario(scenario);
    CHECK(bound(e, "direct").largest().low_bytes() == 512 * kMiB);
    CHECK(bound(e, "direct").largest().high_bytes() == 1026 * kMiB);
}

TEST_CASE("stitching meets a limit on the number of mappings, and lifts none") {
    Scenario scenario = three_runs();
    scenario.device.mapping_limit = 600;
    scenario.device.mappings = 599;
    auto e = analysis::explain_scenario(scenario);
    CHECK(need(mechanism(e, "stitched"), "mappings").state() == Prerequisite::fails);
    CHECK(mechanism(e, "stitched").standing() == Mechanism::rejected);
    // 1 GiB in pieces of 2 MiB are 512 mappings at most.
    scenario.device.mappings = 88;
    e = analysis::explain_scenario(scenario);
    CHECK(need(mechanism(e, "stitched"), "mappings").state() == Prerequisite::holds);
    scenario.device.mappings = 89;
    e = analysis::explain_scenario(scenario);
    CHECK(need(mechanism(e, "stitched"), "mappings").state() == Prerequisite::not_known);
}

TEST_CASE(
    "a limit on one allocation bounds one piece, and not pieces; one on what the host backs bounds all") {
    Scenario scenario = three_runs();
    scenario.device.contiguity_required = false;
    scenario.free_runs.reset();
    scenario.device.per_allocation_limit = Interval::exactly(256 * kMiB);
    auto e = analysis::explain_scenario(scenario);
    CHECK(bound(e, "direct").largest().high_bytes() == 256 * kMiB);
    CHECK(bound(e, "vmm").largest().high_bytes() == 256 * kMiB);
    CHECK(bound(e, "stitched").largest().high_bytes() == 1026 * kMiB);
    CHECK(bound(e, "segmented").largest().high_bytes() == 1026 * kMiB);
    scenario.device.per_allocation_limit.reset();
    // Room for 100 MiB more.
    scenario.device.commit_limit = Interval::exactly(8 * kGiB - 926 * kMiB);
    e = analysis::explain_scenario(scenario);
    for (const char* id : {"direct", "vmm", "stitched", "segmented"})
        CHECK(bound(e, id).largest().high_bytes() == 100 * kMiB);
}

TEST_CASE(
    "no run of a program stands behind a scenario: no durations, no reuse, no settings, nothing ranked") {
    auto e = analysis::explain_scenario(three_runs());
    for (const Mechanism& m : e.mechanisms().mechanisms()) {
        CHECK(m.settings().empty());
        CHECK_FALSE(m.has_amortisation());
        CHECK(m.standing() != Mechanism::feasible);
        for (const CostPart& part : m.costs()) {
            CAPTURE(m.id() + " " + part.part());
            if (part.part() != "setup" && part.part() != "steady_state" && part.part() != "tail") continue;
            CHECK(part.evidence() == CostPart::hypothesis);
            CHECK_FALSE(part.has_low_ns());
        }
    }
    analysis::rank(*e.mutable_mechanisms(), "setup");
    CHECK(e.mechanisms().ranking().ranked().empty());
}
