// Failures of which the allocator itself tells more than its numbers do: that it found no gap, that a limit was
// the reason; and a framework's snapshot, whose extents are known and may say that it need not have given up.
#include "analysis/removal.h"
#include "analysis/scenario_layout.h"
#include "tests/unit/analysis/by_hand.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using report::Verdict;

namespace {

// PyTorch holds 6 GiB of 8, 4 of them live; its largest gap is of 1 GiB. It gave up a block of 2 GiB.
Situation of_snapshot() {
    Situation s = failed_call(8 * kGiB, kGiB, 2 * kGiB);
    s.attributed = bytes_of(s, 6 * kGiB);
    FrameworkAtFailure own = framework_of(s, 6 * kGiB, 4 * kGiB);
    own.in_gaps = bytes_inside(s, 2 * kGiB);
    own.gave_up = true;
    own.tried = 2 * kGiB;
    AllocatorLayout& layout = own.layout.emplace();
    layout.requested = layout.block = layout.segment = exactly(2 * kGiB);
    for (AllocatorView& view : layout.views) {
        view.gap_largest = exactly(kGiB);
        view.gap_sum = exactly(2 * kGiB);
    }
    s.framework = own;
    return s;
}

Scenario stated_allocator() {
    Scenario out;
    out.device.capacity = exactly(8 * kGiB);
    ScenarioSegment segments;
    segments.bytes = exactly(6 * kGiB);
    segments.several = true;
    ScenarioBlock live;
    live.bytes = exactly(3 * kGiB);
    segments.blocks.push_back(live);
    out.segments.push_back(segments);
    out.request.kind = ScenarioRequest::Kind::kAllocator;
    out.request.bytes = exactly(5 * kGiB / 2);
    return out;
}

Verdict verdict_of(const Scenario& scenario) { return test::verdict_of(situation_of(scenario)); }

}  // namespace

TEST_CASE("a snapshot whose extents are known: a gap that was large enough is no cause, and neither is memory left") {
    Situation s = of_snapshot();
    CHECK(test::verdict_of(s).cause() == Verdict::allocator_external_fragmentation);
    // Exactly as large as the block.
    for (AllocatorView& view : s.framework->layout->views) view.gap_largest = exactly(2 * kGiB);
    Verdict verdict = test::verdict_of(s);
    CHECK(verdict.cause() == Verdict::undetermined);
    CHECK(has_part(verdict.summary(), "is large enough for the block of 2 GiB that it gave up"));
    CHECK_FALSE(has_part(verdict.summary(), "private pool, which is not told"));
    s.framework->pool_assumed = true;
    CHECK(has_part(test::verdict_of(s).summary(), "private pool, which is not told"));
    // What it gave up is not known: no gap is known to be large enough for it.
    s.framework->tried = 0;
    CHECK_FALSE(has_part(test::verdict_of(s).summary(), "is large enough for the block"));
    s.framework->tried = 2 * kGiB;
    // Where records are missing the gap may be none.
    s.books.releases = s.losses.releases = true;
    CHECK_FALSE(has_part(test::verdict_of(s).summary(), "is large enough for the block"));

    s = of_snapshot();
    s.device_free = s.free_then = bytes_of(s, 2 * kGiB);
    CHECK(test::verdict_of(s).cause() == Verdict::undetermined);
    CHECK(has_part(test::verdict_of(s).summary(), "which is enough for the segment of 2 GiB that it needed"));
    s.device_free = s.free_then = bytes_of(s, 2 * kGiB - kPageBytes);
    CHECK_FALSE(has_part(test::verdict_of(s).summary(), "which is enough for the segment"));
    s.device_free = s.free_then = Quantity::unknown(report::Quantity::device_free, s.physical, "");
    CHECK_FALSE(has_part(test::verdict_of(s).summary(), "which is enough for the segment"));
}

TEST_CASE("an allocator that says it found no gap: its own gaps are too small, whatever their size") {
    // 2 GiB are held by nobody, 3 GiB lie unused in pieces of no known size; 2.5 GiB are needed.
    Scenario scenario = stated_allocator();
    CHECK(verdict_of(scenario).cause() == Verdict::undetermined);
    scenario.request.gaps_refused = true;
    const Verdict verdict = verdict_of(scenario);
    CHECK(verdict.cause() == Verdict::allocator_external_fragmentation);
    REQUIRE(verdict.removed_size() == 1);
    CHECK(verdict.removed(0) == "with_framework_gaps_merged");
    const auto rows = counterfactuals_of(situation_of(scenario));
    CHECK(row(rows, "as_it_was").fit == Fit::kDoesNotFit);
    // A gap had, by what it says, less than is needed.
    CHECK(row(rows, "as_it_was").available.high() == 5 * kGiB / 2 - 1);

    const AllocatorLayout layout = layout_of(scenario.segments, scenario.request, kPageBytes);
    CHECK(layout.gaps_refused);
    CHECK(layout.asked_known);
    // In another pool, or for another stream, it did not look: what a gap there has is open.
    ScenarioSegment graph;
    graph.bytes = exactly(3 * kGiB);
    graph.owner = "graph";
    scenario.device.capacity = exactly(11 * kGiB);
    scenario.segments.push_back(graph);
    CHECK(row(counterfactuals_of(situation_of(scenario)), "as_it_was").fit == Fit::kDoesNotFit);
    CHECK(row(counterfactuals_of(situation_of(scenario)), "with_private_pools_shared").fit == Fit::kCannotTell);
    scenario.segments[1].owner.clear();
    scenario.segments[1].stream = "s1";
    scenario.request.stream = "s2";
    CHECK(row(counterfactuals_of(situation_of(scenario)), "as_it_was").fit == Fit::kDoesNotFit);
    CHECK(row(counterfactuals_of(situation_of(scenario)), "with_streams_shared").fit == Fit::kCannotTell);
}

TEST_CASE("what lies unused, stated for itself, is nearer than the difference of two amounts; only as it was") {
    Scenario scenario = stated_allocator();
    scenario.segments[0].bytes = between(5 * kGiB, 7 * kGiB);
    scenario.segments[0].blocks[0].requested = exactly(2 * kGiB);
    ScenarioBlock waits;
    waits.bytes = exactly(kGiB);
    waits.pending = true;
    scenario.segments[0].blocks.push_back(waits);
    scenario.segments[0].unused = between(2 * kGiB, 2 * kGiB + kMiB);
    const AllocatorLayout layout = layout_of(scenario.segments, scenario.request, 1);
    const auto sum = [&](bool waits_over, bool no_waste) {
        return layout.views.at(AllocatorLayout::index(waits_over, false, false, no_waste)).gap_sum;
    };
    CHECK(sum(false, false) == between(2 * kGiB, 2 * kGiB + kMiB));
    CHECK(sum(true, false) == between(2 * kGiB, 4 * kGiB));       // 5 to 7 less 3
    CHECK(sum(false, true) == between(2 * kGiB, 4 * kGiB));       // less 2 and 1
    CHECK(sum(true, true) == between(3 * kGiB, 5 * kGiB));        // less 2
}

TEST_CASE("who refused says that a limit was the reason: that decides what the amounts leave open") {
    Scenario scenario = stated_allocator();
    scenario.refused_by = LimitKind::kAllocatorLimit;
    Verdict verdict = verdict_of(scenario);
    CHECK(verdict.cause() == Verdict::commitment_limit);
    CHECK(has_part(verdict.summary(), "says itself that it was because of"));
    CHECK(verdict.removed_size() == 0);  // how large the limit is, is not stated
    // Where it is, the limit is told, and its row is what would have to go.
    scenario.device.allocator_limit = between(7 * kGiB, 10 * kGiB);
    verdict = verdict_of(scenario);
    CHECK(verdict.cause() == Verdict::commitment_limit);
    REQUIRE(verdict.removed_size() == 1);
    CHECK(verdict.removed(0) == "with_allocator_limit_lifted");
    CHECK(has_part(verdict.summary(), "It stands at"));
    // It does not overrule what the amounts decide.
    scenario.device.allocator_limit.reset();
    scenario.request.bytes = exactly(9 * kGiB);
    CHECK(verdict_of(scenario).cause() == Verdict::capacity_exhaustion);
}
