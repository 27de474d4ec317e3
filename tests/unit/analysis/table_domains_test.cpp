// The table of counterfactuals of requests that draw on something else than the device's memory alone: a
// pool, addresses, a gap in an allocator's segments, what no books are kept of.
#include "tests/unit/analysis/by_hand.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using Q = report::Quantity;

TEST_CASE("a pool: what it may reach is new memory or what it has unused, and both where pieces will do") {
    Situation s = of_pools();
    auto rows = counterfactuals_of(s);
    // 1 GiB left, 512 MiB unused in it: in one piece between 1 GiB and both.
    CHECK(row(rows, "as_it_was").available.interval() == between(kGiB, 1536 * kMiB));
    CHECK(row(rows, "as_it_was").fit == Fit::kDoesNotFit);
    CHECK(row(rows, "with_pool_gaps_merged").available.interval() == exactly(1536 * kMiB));
    CHECK(row(rows, "with_pool_gaps_merged").removed == "gaps inside pool A");
    CHECK_FALSE(row(rows, "with_limit_lifted").applicable);
    s.contract.shape = report::Contract::segmented;
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == exactly(1536 * kMiB));
    // What it has unused is not known.
    s = of_pools();
    s.pools[0].cached = Quantity::unknown(Q::cached, s.physical, "");
    rows = counterfactuals_of(s);
    CHECK_FALSE(row(rows, "with_pool_gaps_merged").applicable);
    CHECK(row(rows, "as_it_was").available.low() == kGiB);
    // Nor which pool it is: at most what any may have.
    s.request.pool = ObjectId{0};
    rows = counterfactuals_of(s);
    CHECK_FALSE(row(rows, "with_pool_gaps_merged").applicable);
    CHECK(row(rows, "with_pool_gaps_merged").removed == "gaps inside the pool");
    CHECK(row(rows, "with_cached_returned").freed.interval() == exactly(3584 * kMiB));
}

TEST_CASE("a pool that its request failed in: less than the request was in one piece") {
    // 1 GiB left and 1.5 unused in the pool: 2 GiB were in both, but not in one piece, or the call had not
    // failed.
    Situation s = of_pools();
    s.pools[0] = pool_of(s, 0xa, "pool A", 2 * kGiB, 512 * kMiB);
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == between(kGiB, 2 * kGiB - 1));
    CHECK(row(rows, "as_it_was").fit == Fit::kDoesNotFit);
    CHECK(row(rows, "as_it_was").by_bytes.interval() == between(kGiB, 2560 * kMiB));
    // In pieces the failure says nothing of the sum, nor does a request that nobody made.
    s.contract.shape = report::Contract::segmented;
    CHECK(row(counterfactuals_of(s), "as_it_was").available.interval() == exactly(2560 * kMiB));
    s.contract.shape = report::Contract::virtual_only;
    s.hypothetical = true;
    CHECK(row(counterfactuals_of(s), "as_it_was").available.interval() == between(kGiB, 2560 * kMiB));
    // Of a request of no known size no bound follows.
    s.hypothetical = false;
    s.request.needed = at_most(2 * kGiB);
    CHECK(row(counterfactuals_of(s), "as_it_was").available.interval() == between(kGiB, 2560 * kMiB));
    // Nothing unused in it: then the new memory alone is in question, and what there is of that was said.
    s = of_pools();
    s.pools[0] = pool_of(s, 0xa, "pool A", 2 * kGiB, 2 * kGiB);
    s.free_then = bytes_of(s, between(kGiB, 3 * kGiB));
    CHECK(row(counterfactuals_of(s), "as_it_was").available.interval() == between(kGiB, 3 * kGiB));
}

TEST_CASE("a pool's maximum bounds what it may grow by") {
    // 1 GiB is left on the device; of at most 2.25 GiB the pool holds 2: 256 MiB, and 512 MiB are unused in
    // it.
    Situation s = of_pools();
    s.pools[0].said.maximum = 2304 * kMiB;
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == between(256 * kMiB, 768 * kMiB));
    CHECK(has_part(row(rows, "as_it_was").reason, "its maximum leaves 256 MiB"));
    CHECK(row(rows, "with_pool_gaps_merged").available.interval() == exactly(768 * kMiB));
    CHECK(row(rows, "with_pool_maximum_lifted").removed == "the maximum size of pool A");
    CHECK(row(rows, "with_pool_maximum_lifted").available.interval() == exactly(kGiB));
    // More memory on the device is of no use to it.
    CHECK_FALSE(row(rows, "with_cached_returned").applicable);
    CHECK(has_part(row(rows, "with_cached_returned").reason, "at its maximum"));
    CHECK(row(rows, "with_pending_frees_done").applicable);
    // A maximum that is farther than the device's end is in nobody's way.
    s.pools[0].said.maximum = 4 * kGiB;
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == between(kGiB, 1536 * kMiB));
    CHECK(row(rows, "with_cached_returned").applicable);
    // It is lower than what the pool holds: nothing may be added.
    s.pools[0].said.maximum = kGiB;
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == between(0, 512 * kMiB));
    // How much is left is not known: the maximum bounds it still.
    s.pools[0].said.maximum = 2304 * kMiB;
    s.free_then = Quantity::unknown(Q::device_free, s.physical, "not asked");
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == at_most(768 * kMiB));
    CHECK_FALSE(row(rows, "with_cached_returned").applicable);
    s.pools[0].said.maximum.reset();
    rows = counterfactuals_of(s);
    CHECK_FALSE(row(rows, "as_it_was").by_bytes.known());
    CHECK(row(rows, "with_cached_returned").applicable);
}

TEST_CASE(
    "addresses: the failure bounds the largest gap; pieces, if nobody made the request, are their sum") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 64 * kGiB);
    s.request.draws = Draws::kAddressSpace;
    s.request.domain = "virtual";
    s.space.seen = true;
    s.space.reserved = 32 * kGiB;
    s.space.unbacked = 8 * kGiB;
    s.space.witnessed = FreeExtents(kPageBytes, kPageBytes);
    s.space.witnessed.add({0, 40 * kGiB});
    s.space.witnessed.add({50 * kGiB, 70 * kGiB});
    s.space.small_sum = 70 * kGiB;
    s.space.small_witnessed_sum = 60 * kGiB;
    s.space.small_witnessed_largest = 40 * kGiB;
    auto rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == between(40 * kGiB, 64 * kGiB - 1));
    CHECK(row(rows, "as_it_was").fit == Fit::kDoesNotFit);
    CHECK(row(rows, "with_virtual_gaps_merged").available.interval() == between(60 * kGiB, 70 * kGiB));
    CHECK(row(rows, "with_virtual_gaps_merged").fit == Fit::kCannotTell);
    CHECK(row(rows, "without_unbacked_reservations").available.interval() == at_least(68 * kGiB));
    CHECK(row(rows, "without_unbacked_reservations").fit == Fit::kFits);
    CHECK(row(rows, "with_only_live_payload").available.interval() == at_least(92 * kGiB));
    // Its size is not known: neither is what it shows of the gaps.
    s.request.needed = at_most(64 * kGiB);
    CHECK(row(counterfactuals_of(s), "as_it_was").available.interval() == at_least(40 * kGiB));
    s.request.needed = exactly(64 * kGiB);
    s.hypothetical = true;
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == at_least(40 * kGiB));
    CHECK(has_part(row(rows, "as_it_was").reason, "the largest gap"));
    CHECK(row(rows, "with_virtual_gaps_merged").available.interval() == at_least(60 * kGiB));
    s.contract.shape = report::Contract::segmented;
    rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").available.interval() == at_least(60 * kGiB));
    CHECK(has_part(row(rows, "as_it_was").reason, "together"));
    const Situation written =
        stated(R"({"op": "device", "capacity": "8 GiB", "address_space_bytes": "64 GiB"})",
               R"({"kind": "address_space", "bytes": "65 GiB"})");
    CHECK_FALSE(row(counterfactuals_of(written), "without_unbacked_reservations").applicable);
}

TEST_CASE("a block that somebody asks about could be cut out of a gap as well") {
    // 1 GiB left, a gap of 3 GiB in its allocator's segments; 2 GiB of gaps of the other class.
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    FrameworkAtFailure own;
    own.scope = s.physical;
    own.reclaimable = own.waiting = own.in_gaps = bytes_of(s, 0);
    own.tried = 2 * kGiB;
    own.largest_eligible = 3 * kGiB;
    own.domains.resize(2);
    own.domains[0].large = true;
    own.domains[0].gaps.add({0, 3 * kGiB});
    own.domains[0].gaps.add({4 * kGiB, 5 * kGiB});
    own.domains[1].gaps.add({10 * kGiB, 12 * kGiB});
    s.framework = own;
    CHECK(row(counterfactuals_of(s), "as_it_was").available.interval() == exactly(kGiB));
    s.hypothetical = true;
    auto rows = counterfactuals_of(s);
    CHECK(rows.front().available.interval() == between(kGiB, 3 * kGiB));
    CHECK(rows.front().fit == Fit::kCannotTell);
    CHECK(has_part(rows.front().reason, "or a gap of 3 GiB"));
    // In pieces all gaps of its class count: 3 + 1 GiB.
    s.contract.shape = report::Contract::segmented;
    rows = counterfactuals_of(s);
    CHECK(rows.front().available.interval() == between(kGiB, 4 * kGiB));
    CHECK(has_part(rows.front().reason, "or gaps of 4 GiB"));
    s.framework->tried = kSmallBlock;
    CHECK(counterfactuals_of(s).front().available.interval() == between(kGiB, 2 * kGiB));
    // Nothing is known of the device from above: nor with the gap.
    s.free_then = bytes_of(s, at_least(kGiB));
    CHECK(counterfactuals_of(s).front().available.interval() == at_least(kGiB));
    s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    s.hypothetical = true;
    CHECK(counterfactuals_of(s).front().available.interval() == exactly(kGiB));
    own.largest_eligible = 0;
    s.framework = own;
    CHECK_FALSE(has_part(counterfactuals_of(s).front().reason, "gap"));
}

TEST_CASE("what this trace keeps no books of has a row and no number") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    for (const Draws draws : {Draws::kUnaccounted, Draws::kHost}) {
        s.request.draws = draws;
        const auto rows = counterfactuals_of(s);
        CHECK(rows.size() == 1);
        CHECK_FALSE(rows.front().available.known());
        CHECK(rows.front().fit == Fit::kCannotTell);
    }
    s.request.draws = Draws::kAperture;
    const auto rows = counterfactuals_of(s);
    CHECK(row(rows, "as_it_was").fit == Fit::kFits);
    CHECK(find(rows, "without_request_rounding") == nullptr);
}
