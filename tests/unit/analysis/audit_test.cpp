// The audit table: nothing missing, nothing assumed of the order of its numbers, and costs from this very
// trace. That every audit of every scenario is whole and in order is checked in audits.h, where all of them
// come by.
#include "analysis/audit.h"

#include <doctest/doctest.h>

#include "analysis/domains.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using Q = report::Quantity;
using wire::Kind;

namespace {

const report::Quantity& row_of(const report::Explanation& e, Q::Definition definition,
                               const std::string& of) {
    for (const report::Quantity& row : e.audit()) {
        if (row.definition() == definition && row.of() == of) return row;
    }
    FAIL("not in the audit: " << Q::Definition_Name(definition) << " of " << of);
    return e.audit(0);
}

const report::Quantity& row_of(const std::vector<report::Quantity>& rows, Q::Definition definition) {
    for (const report::Quantity& row : rows) {
        if (row.definition() == definition) return row;
    }
    FAIL("not in the audit: " << Q::Definition_Name(definition));
    return rows.front();
}

// A situation that no trace stands behind: only what is said here is known.
Situation by_hand() {
    Situation s;
    s.physical.process = 0;
    s.physical.device = "GPU-a";
    s.physical.domain = "physical";
    s.physical.snapshot = 7;
    s.address = s.physical.in_domain("virtual");
    s.losses.counted = true;
    for (Quantity* each :
         {&s.capacity, &s.device_free, &s.free_then, &s.handles, &s.linear, &s.linear_requested, &s.arrays,
          &s.pools_reserved, &s.graphs, &s.attributed, &s.others, &s.unattributed, &s.pending, &s.cached,
          &s.reclaimable, &s.linear_waste, &s.handle_waste})
        *each = Quantity::unknown(Q::charged, s.physical, "not said");
    return s;
}

}  // namespace

TEST_CASE("much is reserved and little committed: a sparse reservation") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    p.reserve(0x1000000000, 64 * kGiB).create(1, kPage).map(0x1000000000, kPage, 1);
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(audit(e, Q::address_reserved).low_bytes() == 64 * kGiB);
    CHECK(audit(e, Q::mapped).low_bytes() == kPage);
    CHECK(audit(e, Q::committed).low_bytes() == kPage);
}

TEST_CASE("much is committed and nothing reserved: linear memory") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    p.linear(0x10000000, 256 * kMiB);
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(audit(e, Q::address_reserved).high_bytes() == 0);
    CHECK(audit(e, Q::address_reserved).evidence() == Q::derived);
    CHECK(audit(e, Q::committed).low_bytes() == 256 * kMiB);
}

TEST_CASE("more is mapped than committed: one handle behind two addresses") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    p.reserve(0x1000000000, 2 * kPage).create(1, kPage);
    p.map(0x1000000000, kPage, 1).map(0x1000000000 + kPage, kPage, 1);
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(audit(e, Q::mapped).low_bytes() == 2 * kPage);
    CHECK(audit(e, Q::committed).low_bytes() == kPage);
}

TEST_CASE("more is resident than committed: managed memory that moved to the device") {
    Situation s = by_hand();
    s.attributed = Quantity::derived(Q::attributed, 2 * kMiB, s.physical, "");
    s.resident = 5 * kMiB;
    s.managed = 8 * kMiB;
    s.books.counted = true;
    const auto rows = audit_of(s, {}, {});
    CHECK(row_of(rows, Q::resident).of() == "managed");
    CHECK(row_of(rows, Q::resident).low_bytes() == 5 * kMiB);
    CHECK(row_of(rows, Q::resident).high_bytes() == 8 * kMiB);
    // Records of managed memory may be among those that are missing: then nothing bounds it from above.
    s.books.counted = false;
    const auto missing = audit_of(s, {}, {});
    CHECK(row_of(missing, Q::resident).low_bytes() == 5 * kMiB);
    CHECK_FALSE(row_of(missing, Q::resident).has_high_bytes());
    CHECK(row_of(rows, Q::committed).high_bytes() == 2 * kMiB);
    CHECK(row_of(rows, Q::address_reserved).high_bytes() == 0);
}

TEST_CASE("what is not known is unknown with a reason, and never zero") {
    Situation s = by_hand();
    s.space.seen = false;
    report::Explanation e;
    for (const auto& row : audit_of(s, {}, {})) *e.add_audit() = row;
    check_audit(e);
    for (const Q::Definition definition :
         {Q::capacity, Q::device_free, Q::taken, Q::resident, Q::requested, Q::payload_written, Q::charged,
          Q::attributed, Q::unattributed, Q::live, Q::cached, Q::reclaimable, Q::eligible_free,
          Q::commitment_headroom, Q::largest_allocatable}) {
        CAPTURE(Q::Definition_Name(definition));
        for (const report::Quantity& row : e.audit()) {
            if (row.definition() != definition) continue;
            CHECK(row.evidence() == Q::unknown);
            CHECK_FALSE(row.has_low_bytes());
            CHECK_FALSE(row.has_high_bytes());
        }
    }
}

TEST_CASE("numbers of two moments are not subtracted: the row says why it is not known") {
    Situation s = by_hand();
    Scope earlier = s.physical;
    earlier.snapshot = 3;
    s.capacity = Quantity::measured(Q::capacity, 8 * kGiB, s.physical, "");
    s.device_free = Quantity::measured(Q::device_free, 2 * kGiB, earlier, "");
    const auto rows = audit_of(s, {}, {});
    CHECK_FALSE(row_of(rows, Q::taken).has_low_bytes());
    CHECK(row_of(rows, Q::taken).reason().find("different places or moments") != std::string::npos);
}

TEST_CASE("reclaimable: by which call, and what that call cost in this trace") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    p.pool_take(0x30000000, kMiB, 0x99).pool_give(0x30000000).synchronize(7);
    // Each call lasts 100 ns of itself; one of the eleven much longer.
    for (int i = 0; i < 11; ++i)
        p.call(Kind::kPoolTrimmed, 0, 64 * kMiB, 0x99).lasted(0, i == 7 ? 50'000 : 0);
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, kGiB).snapshot_pool(0x99, 0, 64 * kMiB).snapshot_end();
    const auto e = explained(session);
    const auto& row = row_of(e, Q::reclaimable, "pool 0x99");
    CHECK(row.low_bytes() == 64 * kMiB);
    CHECK(row.by() == "cuMemPoolTrimTo(pool, 0)");
    CHECK(row.cost().calls() == 11);
    // Steps of the histogram are 1/32 of their value: 100 is in one that ends at 101.
    CHECK(row.cost().median_ns() == doctest::Approx(100).epsilon(1.0 / 32));
    CHECK(row.cost().p90_ns() == doctest::Approx(100).epsilon(1.0 / 32));
    CHECK(row.cost().p99_ns() == doctest::Approx(50'100).epsilon(1.0 / 32));
    CHECK(row.cost().max_ns() == 50'100);
    CHECK(row.cost().hypothesis().empty());
}

TEST_CASE("reclaimable by a call that this trace does not have: a hypothesis, and what would show it wrong") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    p.pool_take(0x30000000, kMiB, 0x99).pool_give(0x30000000).synchronize(7);
    p.call(Kind::kPoolTrimmed, 0, 0, 0x99).failed();  // a call that failed says nothing of what it costs
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, kGiB).snapshot_pool(0x99, 0, 64 * kMiB).snapshot_end();
    const auto e = explained(session);
    const auto& row = row_of(e, Q::reclaimable, "pool 0x99");
    CHECK(row.cost().calls() == 0);
    CHECK_FALSE(row.cost().has_median_ns());
    CHECK(row.cost().hypothesis().starts_with("hypothesis: "));
    CHECK_FALSE(row.cost().falsified_by().empty());
}

TEST_CASE("commitment headroom is known where a limit is: the pool's maximum less what it has reserved") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    p.pool_take(0x30000000, kMiB, 0x99);
    p.pool_take(0, kGiB, 0x99)
        .failed()
        .snapshot(512 * kMiB, kGiB)
        .snapshot_pool(0x99, kMiB, 32 * kMiB, 96 * kMiB);
    p.snapshot_end();
    const auto e = explained(session);
    CHECK(row_of(e, Q::commitment_headroom, "pool 0x99").low_bytes() == 64 * kMiB);
    CHECK(row_of(e, Q::commitment_headroom, "").evidence() == Q::unknown);
}

TEST_CASE("physical runs are measured where somebody states them, and their ratio where it is exact") {
    Situation s = by_hand();
    s.request.device = 0;
    s.runs = PhysicalRuns{};
    s.runs->count = 3;
    s.runs->sum = Interval::exactly(12 * kMiB);
    s.runs->largest = Interval::exactly(8 * kMiB);
    const report::Domain exact = domains_of(s)[0];
    CHECK(exact.name() == "physical");
    CHECK(exact.free_extents() == 3);
    CHECK(exact.external_ratio() == doctest::Approx(1.0 / 3));
    s.runs->largest = {6 * kMiB, 8 * kMiB};
    const report::Domain rounded = domains_of(s)[0];
    CHECK_FALSE(rounded.has_external_ratio());
    CHECK_FALSE(rounded.external_ratio_reason().empty());
    s.runs.reset();
    const report::Domain unknown = domains_of(s)[0];
    CHECK_FALSE(unknown.has_free_extents());
    CHECK(unknown.external_ratio_reason().find("not visible") != std::string::npos);
}
