// The table of counterfactuals, row by row, of situations made by hand: what is available with one thing
// gone, what is needed then, how that is known, and what the row says of it. Numbers are small and computed
// in the comments; 2 MiB is a page.
#include "tests/unit/analysis/by_hand.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using Q = report::Quantity;
using Outcome = report::Counterfactual;

namespace {

constexpr char kAllocator8[] =
    R"({"op": "device", "capacity": "8 GiB"}, {"op": "segment", "id": "s", "bytes": "8 GiB"},
    {"op": "block", "id": "b", "segment": "s", "bytes": )";

}  // namespace

TEST_CASE("what is needed is known as well as its rounding is") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    CHECK(row(counterfactuals_of(s), "as_it_was").needed.evidence() == Q::measured);
    s.request.needed = between(2 * kGiB, 2 * kGiB + kPageBytes);
    CHECK(row(counterfactuals_of(s), "as_it_was").needed.evidence() == Q::bounded);
    CHECK(row(counterfactuals_of(s), "as_it_was").needed.interval() == s.request.needed);
    s.request.rounding_assumed = true;
    CHECK(row(counterfactuals_of(s), "as_it_was").needed.evidence() == Q::assumed);
    CHECK(row(counterfactuals_of(s), "as_it_was").needed.interval() == s.request.needed);
}

TEST_CASE("a request to a pool: what the others keep is named, and only what keeps something") {
    Situation s = of_pools();
    const auto rows = counterfactuals_of(s);
    const Counterfactual& cached = row(rows, "with_cached_returned");
    CHECK(cached.removed == "memory that stream-ordered pools keep (pool B, pool D)");
    // 2 + 1 GiB of the others, on top of 1 GiB to 1 GiB and 512 MiB that A can reach already.
    CHECK(cached.freed.interval() == exactly(3 * kGiB));
    CHECK(cached.available.interval() == between(4 * kGiB, 4608 * kMiB));
    CHECK(cached.fit == Fit::kFits);
    CHECK(cached.call == "cuMemPoolTrimTo / cudaMemPoolTrimTo(pool, 0)");
    // Some pools were not asked: more than those may keep something.
    s.reclaimable = bytes_of(s, at_least(3584 * kMiB));
    const auto open = counterfactuals_of(s);
    CHECK(row(open, "with_cached_returned").freed.interval() == at_least(3 * kGiB));
    // Of all pools where the request is of none.
    s = of_pools();
    s.request.draws = Draws::kPhysical;
    const auto all = counterfactuals_of(s);
    CHECK(row(all, "with_cached_returned").freed.interval() == exactly(3584 * kMiB));
    CHECK(row(all, "with_cached_returned").removed ==
          "memory that stream-ordered pools keep (pool A, pool B, pool D)");
}

TEST_CASE("pools play a part where one is seen, used or answered for, and nowhere else") {
    const auto applies = [](const Situation& s) {
        const auto rows = counterfactuals_of(s);
        CHECK(row(rows, "with_cached_returned").applicable ==
              row(rows, "with_pending_frees_done").applicable);
        return row(rows, "with_cached_returned").applicable;
    };
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    CHECK_FALSE(applies(s));
    s.used_pools = true;
    CHECK(applies(s));
    CHECK(row(counterfactuals_of(s), "with_cached_returned").removed ==
          "memory that stream-ordered pools keep");
    s.used_pools = false;
    s.snapshot.pools[ObjectId{0xb}] = PoolWord{};
    CHECK(applies(s));
    s.snapshot.pools.clear();
    s.pools = {pool_of(s, 0xb, "pool B", kGiB, 0)};
    CHECK(applies(s));
}

TEST_CASE("memory that graphs keep unused: a row of its own where there may be some") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    CHECK_FALSE(row(counterfactuals_of(s), "with_graph_memory_trimmed").applicable);
    s.graphs_unused = Quantity::unknown(Q::reclaimable, s.physical, "not asked");
    CHECK_FALSE(row(counterfactuals_of(s), "with_graph_memory_trimmed").applicable);
    s.graphs_unused = bytes_of(s, 1 * kGiB);
    const auto rows = counterfactuals_of(s);
    CHECK(row(rows, "with_graph_memory_trimmed").fit == Fit::kFits);
    CHECK(row(rows, "with_graph_memory_trimmed").available.interval() == exactly(2 * kGiB));
}

TEST_CASE("internal waste: of handles' pages and of other allocations' last pages together") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    s.linear_waste = bytes_of(s, 256 * kMiB, "of linear memory");
    // Known to be nothing in handles: the reason is the other's.
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "without_internal_waste").freed.interval() == exactly(256 * kMiB));
    CHECK(row(rows, "without_internal_waste").reason == "of linear memory");
    s.partly_waste = bytes_of(s, 512 * kMiB, "of handles");
    rows = counterfactuals_of(s);
    CHECK(row(rows, "without_internal_waste").freed.interval() == exactly(768 * kMiB));
    CHECK(row(rows, "without_internal_waste").available.interval() == exactly(1792 * kMiB));
    CHECK(row(rows, "without_internal_waste").reason == "of handles");
    // Not known of handles, and some of the rest: at least that.
    s.partly_waste = Quantity::unknown(Q::internal_waste, s.physical, "kernels ran");
    rows = counterfactuals_of(s);
    CHECK(row(rows, "without_internal_waste").applicable);
    CHECK(row(rows, "without_internal_waste").freed.interval() == exactly(256 * kMiB));
    s.linear_waste = bytes_of(s, 0);
    rows = counterfactuals_of(s);
    CHECK_FALSE(row(rows, "without_internal_waste").applicable);
    CHECK(row(rows, "without_internal_waste").reason == "kernels ran");
}

TEST_CASE("pages never written count where it is known what was written") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    s.never_written = bytes_of(s, 1 * kGiB);
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "without_never_written_pages").fit == Fit::kFits);
    s.never_written = Quantity::unknown(Q::internal_waste, s.physical, "kernels ran");
    rows = counterfactuals_of(s);
    CHECK_FALSE(row(rows, "without_never_written_pages").applicable);
    CHECK(row(rows, "without_never_written_pages").reason == "kernels ran");
}

TEST_CASE("importers and leaked handles have rows where there are any") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    auto rows = counterfactuals_of(s);
    CHECK(find(rows, "with_importers_closed") == nullptr);
    CHECK(find(rows, "with_leaked_handles_released") == nullptr);
    s.importers_hold = 1;
    s.held_by_importers = bytes_of(s, 1 * kGiB);
    s.leaks = 2;
    s.leaked = bytes_of(s, 512 * kMiB);
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_importers_closed").fit == Fit::kFits);
    CHECK(row(rows, "with_leaked_handles_released").available.interval() == exactly(1536 * kMiB));
    CHECK(row(rows, "with_leaked_handles_released").fit == Fit::kDoesNotFit);
}

TEST_CASE(
    "everything that could go, gone: what importers of a trace hold is in what no record explains already") {
    // 1 GiB left; 2 GiB unexplained, of which 1 GiB is an importer's; 1 GiB in another process, 512 MiB
    // cached.
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 6 * kGiB);
    s.importers_hold = 1;
    s.held_by_importers = bytes_of(s, 1 * kGiB);
    s.unattributed = bytes_of(s, 2 * kGiB);
    s.others = bytes_of(s, 1 * kGiB);
    s.other_processes = {{ProcessIndex{1}, "process 2", exactly(kGiB)}};
    s.used_pools = true;
    s.reclaimable = bytes_of(s, 512 * kMiB);
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "with_only_live_payload").available.interval() == exactly(4608 * kMiB));
    // A limit and the request's own rounding are no memory: they stay.
    Limit limit;
    limit.kind = LimitKind::kProcessFraction;
    limit.headroom = bytes_of(s, 256 * kMiB);
    limit.limit = Quantity::unknown(Q::capacity, s.physical, "");
    limit.used = limit.limit;
    limit.needed = bytes_of(s, 6 * kGiB);
    s.limits = {limit};
    s.request.unrounded = exactly(kGiB);
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_only_live_payload").available.interval() == exactly(256 * kMiB));
    CHECK(row(rows, "with_only_live_payload").needed.interval() == exactly(6 * kGiB));
    CHECK(row(rows, "with_process_fraction_lifted").available.interval() == exactly(kGiB));

    // As a scenario states it, what importers hold is stated besides the rest: 1 GiB is left of 8, 1 GiB the
    // context has, 2 GiB an importer: 4 GiB.
    const Situation written = stated(R"({"op": "device", "capacity": "8 GiB", "context_bytes": "1 GiB"},
        {"op": "driver_alloc", "id": "a", "bytes": "2 GiB"}, {"op": "driver_alloc", "id": "b", "bytes": "4 GiB"},
        {"op": "driver_free", "id": "a", "held_by_importer": true})",
                                     R"({"kind": "driver", "bytes": "5 GiB"})");
    CHECK(row(counterfactuals_of(written), "with_only_live_payload").available.interval() ==
          exactly(4 * kGiB));
}

TEST_CASE("everything that could go, gone: stacks stay what they need, and roundings are made") {
    // 4 GiB are left of 24: without the stack the request would need nothing; but it is the request.
    const Situation stack = stated(
        R"({"op": "device", "capacity": "24 GiB"}, {"op": "driver_alloc", "id": "a", "bytes": "20 GiB"})",
        R"({"kind": "launch_stack", "bytes": "6 GiB"})");
    const auto rows = counterfactuals_of(stack);
    CHECK(row(rows, "with_smaller_stack").needed.interval() == exactly(0));
    CHECK(row(rows, "with_smaller_stack").needed.evidence() == Q::derived);
    CHECK(row(rows, "with_smaller_stack").fit == Fit::kFits);
    CHECK(row(rows, "with_only_live_payload").needed.interval() == exactly(6 * kGiB));
    CHECK(row(rows, "with_only_live_payload").fit == Fit::kDoesNotFit);
    CHECK(row(rows, "with_physical_merged").fit == Fit::kCannotTell);

    // 1 GiB more and a limit of 1 GiB on one allocation; 600 MiB rounded to 1 GiB blocks and 2 GiB segments.
    const Situation rounded =
        stated(R"({"op": "device", "capacity": "4 GiB", "per_allocation_limit": "1 GiB"},
        {"op": "driver_alloc", "id": "a", "bytes": "3 GiB"})",
               R"({"kind": "allocator", "bytes": "600 MiB", "block_rounding": 1073741824,
        "segment_rounding": 2147483648})");
    const auto table = counterfactuals_of(rounded);
    CHECK(row(table, "as_it_was").needed.interval() == exactly(2 * kGiB));
    CHECK(row(table, "without_request_rounding").needed.interval() == exactly(600 * kMiB));
    CHECK(row(table, "without_request_rounding").fit == Fit::kFits);
    CHECK(row(table, "with_only_live_payload").needed.interval() == exactly(2 * kGiB));
    CHECK(row(table, "with_only_live_payload").fit == Fit::kDoesNotFit);
}

TEST_CASE("everything that could go, gone: an allocator's gaps are merged in it, and its frees are over") {
    // 2 GiB of blocks in a segment of 4, 1 GiB of them waits: merged and waited for, 3 GiB.
    const Situation s =
        stated(R"({"op": "device", "capacity": "4 GiB"}, {"op": "segment", "id": "s", "bytes": "4 GiB"},
        {"op": "block", "id": "a", "segment": "s", "offset": 1073741824, "bytes": "1 GiB"},
        {"op": "block", "id": "w", "segment": "s", "offset": 3221225472, "bytes": "1 GiB"},
        {"op": "block_free", "id": "w", "pending_on_stream": "s1"})",
               R"({"kind": "allocator", "bytes": "3 GiB"})");
    const auto rows = counterfactuals_of(s);
    CHECK(row(rows, "with_only_live_payload").available.interval() == exactly(3 * kGiB));
    CHECK(row(rows, "with_only_live_payload").fit == Fit::kFits);
    CHECK(row(rows, "with_framework_gaps_merged").available.interval() == exactly(2 * kGiB));
    CHECK(row(rows, "with_framework_waits_over").available.interval() == exactly(2 * kGiB));
}

TEST_CASE("rows of an allocator's layout say how many bytes they are about, and how that is known") {
    const Situation exact =
        stated(R"({"op": "device", "capacity": "8 GiB"}, {"op": "segment", "id": "s", "bytes": "4 GiB"},
        {"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "3 GiB"}, {"op": "segment", "id": "e", "bytes": "4 GiB"})",
               R"({"kind": "allocator", "bytes": "6 GiB"})");
    auto rows = counterfactuals_of(exact);
    CHECK(row(rows, "with_framework_gaps_merged").freed.interval() == exactly(5 * kGiB));
    CHECK(row(rows, "with_framework_gaps_merged").freed.evidence() == Q::derived);
    REQUIRE(row(rows, "with_framework_segments_returned").applicable);
    CHECK(row(rows, "with_framework_segments_returned").freed.interval() == exactly(4 * kGiB));
    CHECK(row(rows, "with_framework_segments_returned").available.interval() == exactly(4 * kGiB));
    CHECK(find(rows, "without_request_rounding") == nullptr);
    CHECK(find(rows, "without_internal_waste") == nullptr);
    CHECK(find(rows, "with_private_pools_shared") == nullptr);
    CHECK(find(rows, "with_streams_shared") == nullptr);
    CHECK(find(rows, "with_framework_waits_over") == nullptr);
    CHECK(find(rows, "without_never_written_pages") == nullptr);

    const Situation open =
        stated(std::string(kAllocator8) + R"({"low": 1073741824, "high": 2147483648}})",
               R"({"kind": "allocator", "bytes": "6 GiB", "may_release_cached_segments": true})");
    rows = counterfactuals_of(open);
    CHECK(row(rows, "with_framework_gaps_merged").freed.interval() == between(6 * kGiB, 7 * kGiB));
    CHECK(row(rows, "with_framework_gaps_merged").freed.evidence() == Q::bounded);
    CHECK_FALSE(row(rows, "with_framework_segments_returned").applicable);
}

TEST_CASE("the allocator of another request: rows of memory beside those of its segments") {
    const Situation s =
        stated(R"({"op": "device", "capacity": "8 GiB"}, {"op": "segment", "id": "s", "bytes": "4 GiB"},
        {"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "3 GiB"}, {"op": "segment", "id": "e", "bytes": "2 GiB"})",
               R"({"kind": "driver", "bytes": "6 GiB"})");
    const auto rows = counterfactuals_of(s);
    CHECK(find(rows, "without_never_written_pages") != nullptr);
    CHECK(row(rows, "with_framework_segments_returned").available.interval() == exactly(4 * kGiB));
    CHECK(row(rows, "with_framework_segments_returned").call == "torch.cuda.empty_cache()");
    CHECK(find(rows, "with_framework_waits_over") == nullptr);
}

TEST_CASE(
    "gaps of a framework's allocator of a trace: less a page for each kind of segment; waits in shared "
    "segments stay") {
    Situation s = failed_call(8 * kGiB, 0, 4 * kMiB);
    FrameworkAtFailure own;
    own.scope = s.physical.in_domain("framework's allocator");
    const auto inside = [&](const Interval& bytes) {
        return Quantity::bounded(Q::cached, bytes, own.scope, "told");
    };
    own.reclaimable = inside(exactly(0));
    own.waiting = inside(exactly(6 * kMiB));
    own.waiting_alone = 4 * kMiB;
    own.in_gaps = inside(exactly(10 * kMiB));
    own.domains.resize(2);
    own.gave_up = true;
    own.driver_asked = true;
    s.framework = own;
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "with_framework_gaps_merged").freed.interval() == between(6 * kMiB, 10 * kMiB));
    CHECK(row(rows, "with_framework_gaps_merged").available.evidence() == Q::assumed);
    CHECK(row(rows, "with_framework_gaps_merged").fit == Fit::kFits);
    CHECK(row(rows, "with_framework_waits_over").freed.interval() == between(4 * kMiB, 6 * kMiB));
    CHECK(row(rows, "with_framework_waits_over").fit == Fit::kFits);
    CHECK(row(rows, "with_framework_segments_returned").call ==
          "torch.cuda.empty_cache() returns those that are in no private pool");
    s.framework->gave_up = false;
    s.framework->waiting = inside(exactly(0));
    s.framework->waiting_alone = 0;
    s.framework->in_gaps = inside(at_most(10 * kMiB));
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_framework_segments_returned").call == "torch.cuda.empty_cache()");
    CHECK(find(rows, "with_framework_waits_over") == nullptr);
    CHECK(row(rows, "with_framework_gaps_merged").freed.interval() == at_most(10 * kMiB));
    CHECK(row(rows, "with_framework_gaps_merged").fit == Fit::kCannotTell);
}

TEST_CASE("a trace and a statement name others, the rest and limits in their own words") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    auto rows = counterfactuals_of(s);
    CHECK_FALSE(row(rows, "without_other_processes").applicable);
    CHECK(row(rows, "without_other_processes").removed == "other processes of this trace");
    CHECK(row(rows, "without_unattributed").removed == "memory that no record explains");
    CHECK_FALSE(row(rows, "without_unattributed").call.empty());
    CHECK_FALSE(row(rows, "with_limit_lifted").applicable);
    CHECK(row(rows, "with_limit_lifted").reason == "no limit on this request is recorded");
    const Situation written =
        stated(R"({"op": "device", "capacity": "8 GiB", "other_processes_bytes": "1 GiB"})",
               R"({"kind": "driver", "bytes": "9 GiB"})");
    rows = counterfactuals_of(written);
    CHECK(row(rows, "without_other_processes").applicable);
    CHECK(row(rows, "without_other_processes").removed == "other processes");
    CHECK(row(rows, "without_unattributed").removed == "contexts, and memory that the numbers do not name");
    CHECK(row(rows, "without_unattributed").call.empty());
    CHECK(row(rows, "with_limit_lifted").reason == "no limit on this request is stated");
    const Situation limited =
        stated(R"({"op": "device", "capacity": "8 GiB", "per_allocation_limit": "1 GiB"})",
               R"({"kind": "driver", "bytes": "2 GiB"})");
    CHECK(find(counterfactuals_of(limited), "with_limit_lifted") == nullptr);
}

TEST_CASE("merged physical runs: as many as are stated, and of a trace only what was seen in pieces") {
    const std::string device = R"({"op": "device", "capacity": "8 GiB", "contiguity_required": true},
        {"op": "driver_alloc", "id": "a", "bytes": "6 GiB"})";
    const Situation runs =
        stated(device + R"(, {"op": "physical_free_runs", "bytes": [1073741824, 1073741824]})",
               R"({"kind": "driver", "bytes": "2 GiB"})");
    auto rows = counterfactuals_of(runs);
    CHECK(row(rows, "as_it_was").available.interval() == exactly(kGiB));
    CHECK(row(rows, "as_it_was").fit == Fit::kDoesNotFit);
    CHECK(row(rows, "with_physical_merged").reason == "2 runs that nobody holds, as one");
    CHECK(row(rows, "with_physical_merged").available.interval() == exactly(2 * kGiB));
    const Situation not_stated = stated(device, R"({"kind": "driver", "bytes": "2 GiB"})");
    rows = counterfactuals_of(not_stated);
    CHECK(row(rows, "as_it_was").available.interval() == between(0, 2 * kGiB));
    CHECK(row(rows, "as_it_was").fit == Fit::kCannotTell);
    CHECK(row(rows, "with_physical_merged").reason == "all that nobody holds, as one run");
    CHECK(row(rows, "with_physical_merged").fit == Fit::kFits);

    Situation s = failed_call(8 * kGiB, 4 * kGiB, 2 * kGiB);
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_physical_merged").fit == Fit::kCannotTell);
    s.came_in_pieces = true;
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_physical_merged").fit == Fit::kFits);
    CHECK(has_part(row(rows, "with_physical_merged").reason, "came in smaller pieces"));
    s.came_in_pieces = false;
    s.tried_in_pieces = true;
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_physical_merged").fit == Fit::kFits);
    CHECK(
        has_part(row(rows, "with_physical_merged").reason, "granted in smaller pieces when they were tried"));
    // Where the sum does not suffice, no shape of it does.
    Situation full = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    rows = counterfactuals_of(full);
    CHECK(row(rows, "with_physical_merged").fit == Fit::kDoesNotFit);
}

TEST_CASE("a request that was refused although it fits: the row says by what") {
    Situation s = failed_call(8 * kGiB, 4 * kGiB, 2 * kGiB);
    CHECK(has_part(row(counterfactuals_of(s), "as_it_was").reason,
                   "by bytes only, as the call failed all the same"));
    // Nobody made it: nothing failed.
    s.hypothetical = true;
    CHECK_FALSE(has_part(row(counterfactuals_of(s), "as_it_was").reason, "failed"));
    Situation full = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    CHECK_FALSE(has_part(row(counterfactuals_of(full), "as_it_was").reason, "failed all the same"));
}

TEST_CASE("available memory is known no better than what it is the sum of") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    s.used_pools = true;
    s.reclaimable = Quantity::assumed(Q::reclaimable, exactly(8 * kGiB), s.physical, "by a public rule");
    // 9 GiB cannot be: the sum shows that one of the numbers is wrong, and nothing is known from below.
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "with_cached_returned").available.interval() == at_most(8 * kGiB));
    CHECK(row(rows, "with_cached_returned").available.evidence() == Q::assumed);
    CHECK(has_part(row(rows, "with_cached_returned").reason, "contradict each other"));
    CHECK(row(rows, "with_cached_returned").fit == Fit::kCannotTell);
    // 1 GiB and 1 GiB by that rule.
    s.reclaimable = Quantity::assumed(Q::reclaimable, exactly(kGiB), s.physical, "by a public rule");
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_only_live_payload").available.interval() == exactly(2 * kGiB));
    CHECK(row(rows, "with_only_live_payload").available.evidence() == Q::assumed);
    s.reclaimable = bytes_of(s, between(kGiB, 8 * kGiB));
    rows = counterfactuals_of(s);
    CHECK(row(rows, "with_cached_returned").available.interval() == between(2 * kGiB, 8 * kGiB));
    CHECK(row(rows, "with_cached_returned").available.evidence() == Q::bounded);
    CHECK(has_part(row(rows, "with_cached_returned").reason, "no more than the device has"));
    CHECK(row(rows, "with_cached_returned").fit == Fit::kFits);
}

TEST_CASE("a limit that leaves less than the memory: the row says so, and how it is known") {
    Situation s = failed_call(8 * kGiB, 4 * kGiB, 2 * kGiB);
    Limit limit;
    limit.kind = LimitKind::kHostCommit;
    limit.limit = bytes_of(s, 5 * kGiB);
    limit.used = bytes_of(s, 4 * kGiB);
    limit.headroom = bytes_of(s, kGiB, "1 GiB may still be committed");
    limit.needed = bytes_of(s, 2 * kGiB);
    s.limits = {limit};
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == exactly(kGiB));
    CHECK(row(rows, "as_it_was").available.evidence() == Q::derived);
    CHECK(row(rows, "as_it_was").available.reason() == "1 GiB may still be committed");
    CHECK(row(rows, "with_commit_limit_lifted").available.interval() == exactly(4 * kGiB));
    CHECK(row(rows, "with_commit_limit_lifted").fit == Fit::kFits);
    // 6 GiB would be left: it bounds nothing.
    s.limits[0].limit = bytes_of(s, 10 * kGiB);
    s.limits[0].headroom = bytes_of(s, 6 * kGiB, "6 GiB may still be committed");
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == exactly(4 * kGiB));
    CHECK_FALSE(has_part(row(rows, "as_it_was").reason, "committed"));
    // A limit on a number of things: 5 of 5.
    s.limits[0].counts = true;
    s.limits[0].limit = bytes_of(s, 5);
    s.limits[0].used = bytes_of(s, 5);
    s.limits[0].headroom = bytes_of(s, 0, "of 5 mappings there are 5");
    s.limits[0].needed = bytes_of(s, 1);
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").fit == Fit::kDoesNotFit);
    CHECK(row(rows, "as_it_was").available.interval() == exactly(4 * kGiB));
    CHECK(has_part(row(rows, "as_it_was").reason, "of 5 mappings there are 5"));
    CHECK(message_of(row(rows, "as_it_was")).outcome() == Outcome::does_not_fit);
    CHECK_FALSE(message_of(row(rows, "as_it_was")).has_margin_low());
    CHECK_FALSE(message_of(row(rows, "as_it_was")).has_margin_high());
    // 4 of 5: it does not decide, and is not the reason.
    s.limits[0].used = bytes_of(s, 4);
    s.limits[0].headroom = bytes_of(s, 1, "of 5 mappings there are 4");
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").fit == Fit::kFits);
    CHECK_FALSE(has_part(row(rows, "as_it_was").reason, "mappings"));
}

TEST_CASE("a row in a message: its outcome, and margins in bytes where ends are known") {
    Counterfactual row;
    const Scope scope;
    const auto sent = [&](const Interval& available, const Interval& needed) {
        row.available = Quantity::bounded(Q::eligible_free, available, scope, "");
        row.needed = Quantity::bounded(Q::needed, needed, scope, "");
        row.fit = fit_of(available, needed);
        return message_of(row);
    };
    report::Counterfactual out = sent(between(5, 9), between(2, 4));
    CHECK(out.outcome() == Outcome::fits);
    CHECK(out.margin_low() == 1);
    CHECK(out.margin_high() == 7);
    out = sent(between(1, 2), between(3, 5));
    CHECK(out.outcome() == Outcome::does_not_fit);
    CHECK(out.margin_low() == -4);
    CHECK(out.margin_high() == -1);
    out = sent(at_least(1), exactly(3));
    CHECK(out.outcome() == Outcome::cannot_tell);
    CHECK(out.margin_low() == -2);
    CHECK_FALSE(out.has_margin_high());
    out = sent(at_most(9), exactly(3));
    CHECK_FALSE(out.has_margin_low());
    CHECK(out.margin_high() == 6);
    // A margin below what 64 bits hold is none.
    out = sent(exactly(0), exactly(UINT64_MAX));
    CHECK_FALSE(out.has_margin_low());
    CHECK_FALSE(out.has_margin_high());
    row.applicable = false;
    CHECK(message_of(row).outcome() == Outcome::not_applicable);
    CHECK_FALSE(message_of(row).has_available());
}
