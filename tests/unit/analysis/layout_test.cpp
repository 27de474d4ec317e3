// The free extents of an allocator whose segments are written down: sums, largest pieces and counts, by
// whoever may use them. Computed by hand; where a place or a size is not stated, the ends of what it can be.
#include "analysis/scenario_layout.h"
#include "tests/unit/analysis/by_hand.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using Q = report::Quantity;

namespace {

ScenarioSegment segment(const Interval& bytes, std::vector<ScenarioBlock> blocks = {}) {
    ScenarioSegment out;
    out.bytes = bytes;
    out.blocks = std::move(blocks);
    return out;
}
ScenarioBlock block(std::optional<std::uint64_t> offset, const Interval& bytes) {
    ScenarioBlock out;
    out.offset = offset;
    out.bytes = bytes;
    return out;
}

AllocatorView view_of(const ScenarioSegment& of) { return layout_of({of}, {}, 1).views[0]; }

Scenario scenario_of(std::vector<ScenarioSegment> segments) {
    Scenario out;
    out.segments = std::move(segments);
    out.request.kind = ScenarioRequest::Kind::kAllocator;
    out.request.bytes = exactly(1);
    return out;
}

}  // namespace

TEST_CASE("rounding up: whole units at both ends, and no further than 64 bits") {
    CHECK(rounded_up(exactly(5), 4) == exactly(8));
    CHECK(rounded_up(exactly(8), 4) == exactly(8));
    CHECK(rounded_up(exactly(5), 0) == exactly(5));
    CHECK(rounded_up(between(3, 9), 4) == between(4, 12));
    CHECK(rounded_up(at_most(9), 4) == at_most(12));
    CHECK(rounded_up(exactly(UINT64_MAX - 1), 4) == exactly(UINT64_MAX));
    CHECK(rounded_up(exactly(UINT64_MAX - 4), 4) == exactly(UINT64_MAX - 3));
}

TEST_CASE("a difference has the ends that both numbers leave, and none below zero") {
    CHECK(less(exactly(9), exactly(4)) == exactly(5));
    CHECK(less(exactly(4), exactly(9)) == exactly(0));
    CHECK(less(between(8, 10), between(1, 3)) == between(5, 9));
    CHECK(less(between(2, 10), between(1, 3)) == between(0, 9));
    CHECK(less(at_least(8), exactly(3)) == at_least(5));
    CHECK(less(exactly(8), at_least(3)) == between(0, 5));
    CHECK(less(exactly(8), at_most(3)) == at_least(5));
    CHECK(less(at_most(8), exactly(3)) == between(0, 5));
}

TEST_CASE("one segment: its pieces by where its blocks lie") {
    // 10 B with blocks at 2 to 4 and 7 to 8: pieces of 2, 3 and 2.
    const AllocatorView placed = view_of(segment(exactly(10), {block(7, exactly(1)), block(2, exactly(2))}));
    CHECK(placed.gap_sum == exactly(7));
    CHECK(placed.gap_largest == exactly(3));
    CHECK(placed.wholly_free == exactly(0));
    const AllocatorView empty = view_of(segment(exactly(10)));
    CHECK(empty.gap_sum == exactly(10));
    CHECK(empty.gap_largest == exactly(10));
    CHECK(empty.wholly_free == exactly(10));
    const AllocatorView full = view_of(segment(exactly(10), {block(std::nullopt, exactly(10))}));
    CHECK(full.gap_sum == exactly(0));
    CHECK(full.gap_largest == exactly(0));
    // Two blocks somewhere: 7 B in at most three pieces, the largest of 3 at least (7 / 3, upwards), 7 at
    // most.
    CHECK(
        view_of(segment(exactly(10), {block(std::nullopt, exactly(2)), block(7, exactly(1))})).gap_largest ==
        between(3, 7));
    // 6 B in three pieces: the largest has 2 at least.
    CHECK(
        view_of(segment(exactly(10), {block(std::nullopt, exactly(3)), block(7, exactly(1))})).gap_largest ==
        between(2, 6));
    // A block at a known place and of a size that is not known.
    CHECK(view_of(segment(exactly(10), {block(0, between(2, 4))})).gap_largest == between(3, 8));
    // The segment's end is not known: the last piece is 1 to 3.
    const AllocatorView open = view_of(segment(between(8, 10), {block(2, exactly(5))}));
    CHECK(open.gap_sum == between(3, 5));
    CHECK(open.gap_largest == between(2, 3));
    CHECK(view_of(segment(at_least(8), {block(2, exactly(5))})).gap_largest == at_least(2));
}

TEST_CASE("a sum of several segments: pieces of no known size, and some of them may be empty") {
    ScenarioSegment several = segment(exactly(10), {block(std::nullopt, exactly(4))});
    several.several = true;
    const AllocatorView view = view_of(several);
    CHECK(view.gap_sum == exactly(6));
    CHECK(view.gap_largest == between(0, 6));
    CHECK(view.wholly_free == between(0, 6));
    several.blocks.clear();
    CHECK(view_of(several).gap_largest == between(0, 10));
    CHECK(view_of(several).wholly_free == between(0, 10));
}

TEST_CASE("several segments: sums add, the largest is the largest of each") {
    const AllocatorView view = layout_of({segment(exactly(10), {block(0, exactly(6))}),
                                          segment(exactly(7), {block(0, exactly(5))}), segment(exactly(3))},
                                         {}, 1)
                                   .views[0];
    CHECK(view.gap_sum == exactly(9));
    CHECK(view.gap_largest == exactly(4));
    CHECK(view.wholly_free == exactly(3));
    // One of which nothing is known from above.
    CHECK(layout_of({segment(exactly(10)), segment(at_least(2))}, {}, 1).views[0].gap_largest ==
          at_least(10));
}

TEST_CASE("who may use what: by owner, by stream, with the waits over, with nothing wasted") {
    ScenarioBlock waits = block(0, exactly(3));
    waits.pending = true;
    ScenarioBlock rounded = block(4, exactly(4));
    rounded.requested = exactly(2);
    ScenarioSegment mine = segment(exactly(10), {waits, rounded});
    mine.stream = "s1";
    ScenarioSegment theirs = segment(exactly(20));
    theirs.owner = "graph";
    ScenarioSegment other = segment(exactly(40));
    other.stream = "s2";
    ScenarioRequest request;
    request.bytes = exactly(5);
    request.block_rounding = 4;
    request.segment_rounding = 10;
    request.stream = "s1";
    const AllocatorLayout layout = layout_of({mine, theirs, other}, request, 16);
    CHECK(layout.requested == exactly(5));
    CHECK(layout.block == exactly(8));
    CHECK(layout.segment == exactly(16));  // 8 up to 10, up to a page of 16
    const auto view = [&](bool waits_over, bool any_owner, bool any_stream, bool no_waste) {
        return layout.views[AllocatorLayout::index(waits_over, any_owner, any_stream, no_waste)];
    };
    // Its own segment: 3 to 4 and 8 to 10.
    CHECK(view(false, false, false, false).gap_sum == exactly(3));
    CHECK(view(false, false, false, false).gap_largest == exactly(2));
    CHECK(view(false, false, false, false).wholly_free == exactly(0));
    // 0 to 4, 8 to 10.
    CHECK(view(true, false, false, false).gap_sum == exactly(6));
    CHECK(view(true, false, false, false).gap_largest == exactly(4));
    // 3 to 4, 6 to 10.
    CHECK(view(false, false, false, true).gap_sum == exactly(5));
    CHECK(view(false, false, false, true).gap_largest == exactly(4));
    CHECK(view(false, true, false, false).gap_sum == exactly(23));
    CHECK(view(false, true, false, false).wholly_free == exactly(20));
    CHECK(view(false, false, true, false).gap_sum == exactly(43));
    CHECK(view(false, false, true, false).gap_largest == exactly(40));
    CHECK(view(true, true, true, true).gap_sum == exactly(68));
    CHECK(view(true, true, true, true).wholly_free == exactly(60));
    CHECK(layout.owners);
    CHECK(layout.streams);
    CHECK(layout.waits);
    CHECK(layout.waiting == exactly(3));
    CHECK(layout.of_other_owners == exactly(20));
    CHECK(layout.of_other_streams == exactly(40));
    CHECK(layout.waste == exactly(2));
    // Nothing of the kind where all is the request's own.
    const AllocatorLayout own = layout_of({segment(exactly(10), {block(0, exactly(3))})}, {}, 1);
    CHECK_FALSE(own.owners);
    CHECK_FALSE(own.streams);
    CHECK_FALSE(own.waits);
    CHECK(own.waste == exactly(0));
    CHECK(own.of_other_owners == exactly(0));
    CHECK(own.of_other_streams == exactly(0));
    // A segment that names no stream serves every one, and a request that names none may use any.
    request.stream.clear();
    CHECK_FALSE(layout_of({mine, other}, request, 1).streams);
    request.stream = "s3";
    CHECK_FALSE(layout_of({segment(exactly(10))}, request, 1).streams);
    CHECK(layout_of({mine}, request, 1).streams);
}

TEST_CASE("the books of an allocator whose segments are written down") {
    ScenarioBlock waits = block(0, exactly(2));
    waits.pending = true;
    ScenarioBlock also_waits = block(0, exactly(3));
    also_waits.pending = true;
    ScenarioSegment graph = segment(exactly(8), {also_waits, block(3, exactly(1))});
    graph.owner = "graph";
    graph.stream = "s1";
    Scope physical;
    physical.domain = "physical";
    const Scenario scenario = scenario_of({segment(exactly(10), {block(0, exactly(6))}), segment(exactly(4)),
                                           segment(exactly(5), {waits}), graph});
    const FrameworkAtFailure own = framework_of(scenario, physical);
    CHECK(own.reserved.interval() == exactly(27));
    CHECK(own.reserved.evidence() == Q::derived);
    CHECK(own.live.interval() == exactly(7));
    CHECK(own.waiting.interval() == exactly(5));
    CHECK(own.cached.interval() == exactly(15));      // 4 + 4 + 3 + 4
    CHECK(own.reclaimable.interval() == exactly(4));  // a block that waits is a block
    CHECK(own.in_gaps.interval() == exactly(11));
    CHECK(own.waiting_alone == 2);
    CHECK(own.gaps == 3);  // those that the request's own pool has
    CHECK(own.extents_known);
    REQUIRE(own.domains.size() == 2);
    CHECK(own.domains[0].name == "default pool");
    CHECK(own.domains[0].segments == 3);
    CHECK(own.domains[0].reserved == 19);
    CHECK(own.domains[0].live == 6);
    CHECK(own.domains[0].gaps.sum() == 11);
    CHECK(own.domains[0].gaps.largest() == 4);
    CHECK(own.domains[0].gaps.count() == 3);
    CHECK(own.domains[1].name == "pool graph, stream s1");
    CHECK(own.domains[1].live == 1);
    CHECK(own.domains[1].gaps.sum() == 4);
    REQUIRE(own.layout);
    CHECK(own.gave_up);
    CHECK(own.largest_eligible == 4);

    // Of a full one there is no piece; what a sum of several has of them is open.
    ScenarioSegment several = segment(between(10, 12), {block(std::nullopt, exactly(4))});
    several.several = true;
    several.blocks[0].pending = true;
    Scenario open = scenario_of({several, segment(exactly(3), {block(0, exactly(3))})});
    const FrameworkAtFailure sums = framework_of(open, physical);
    CHECK(sums.reserved.interval() == between(13, 15));
    CHECK(sums.reserved.evidence() == Q::bounded);
    CHECK(sums.reclaimable.interval() == between(0, 8));
    CHECK(sums.waiting_alone == 0);  // beside live blocks, for all that is known
    CHECK(sums.gaps == 0);  // how many pieces a sum has is not known, so none is counted
    CHECK_FALSE(sums.extents_known);
    // Of another request than the allocator's own no layout is needed.
    open.request.kind = ScenarioRequest::Kind::kDriver;
    CHECK_FALSE(framework_of(open, physical).layout);
    CHECK_FALSE(framework_of(open, physical).gave_up);
}
