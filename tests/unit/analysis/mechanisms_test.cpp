// The comparison of ways of backing a request: what each needs, takes and costs, and that it claims nothing
// that the evidence does not hold.
#include "analysis/mechanisms.h"

#include <doctest/doctest.h>

#include "tests/unit/analysis/mechanism_rows.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using report::CostPart;
using report::Mechanism;
using report::Prerequisite;
using wire::Kind;

namespace {

const CostPart& cost(const Mechanism& m, const std::string& part) {
    for (const auto& c : m.costs()) {
        if (c.part() == part) return c;
    }
    FAIL("no cost " << part);
    return m.costs(0);
}

const report::Quantity& overhead(const Mechanism& m, const std::string& part) {
    for (const auto& o : m.overhead()) {
        if (o.part() == part) return o.bytes();
    }
    FAIL("no overhead " << part);
    return m.overhead(0).bytes();
}

// One whole life of `bytes` behind a mapping, in pieces of `piece`; each call takes 100 ns.
void mapped_once(ProcessBuilder& p, std::uint64_t bytes, std::uint64_t piece) {
    constexpr std::uint64_t kBase = 0x7000000000;
    p.reserve(kBase, bytes);
    for (std::uint64_t at = 0; at < bytes; at += piece)
        p.create(1000 + at / piece, piece).map(kBase + at, piece, 1000 + at / piece);
    p.call(Kind::kAccessSet, kBase, bytes);
    for (std::uint64_t at = 0; at < bytes; at += piece) p.unmap(kBase + at, piece).release(1000 + at / piece);
    p.unreserve(kBase, bytes);
}

}  // namespace

TEST_CASE("rounding: whole units of each granularity, exact for handles, at most a page for cuMemAlloc") {
    SessionBuilder session;
    auto& p = session.process();
    p.process().mutable_devices(0)->set_recommended_granularity_bytes(32 * kMiB);
    p.linear(0, 3 * kMiB + 1).failed().snapshot(0, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    // 3 MiB + 1 byte in whole 2 MiB: 4 MiB; in whole 32 MiB: 32 MiB.
    CHECK(overhead(mechanism(e, "vmm"), "rounding_slack").low_bytes() == kMiB - 1);
    CHECK(overhead(mechanism(e, "vmm"), "rounding_slack").evidence() == report::Quantity::derived);
    CHECK(overhead(mechanism(e, "vmm_recommended"), "rounding_slack").high_bytes() == 29 * kMiB - 1);
    CHECK(overhead(mechanism(e, "direct"), "rounding_slack").low_bytes() == 0);
    CHECK(overhead(mechanism(e, "direct"), "rounding_slack").high_bytes() == kMiB - 1);
    CHECK(overhead(mechanism(e, "direct"), "rounding_slack").evidence() == report::Quantity::assumed);
    CHECK(mechanism(e, "direct").present());
    CHECK(mechanism(e, "stitched").pieces_high() == 2);
    // How many segments there would be nobody said: neither rounding nor table has an upper end.
    CHECK_FALSE(overhead(mechanism(e, "segmented"), "rounding_slack").has_high_bytes());
    CHECK_FALSE(overhead(mechanism(e, "segmented"), "tables").has_high_bytes());
    // Page tables are in no call: unknown, which is not zero.
    CHECK(overhead(mechanism(e, "vmm"), "tables").evidence() == report::Quantity::unknown);
    CHECK_FALSE(overhead(mechanism(e, "vmm"), "tables").has_low_bytes());
}

TEST_CASE("no mechanism takes internal waste away: a small object costs a whole page by any handle") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 40 * kKiB).failed().snapshot(0, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    for (const char* id : {"vmm", "stitched"}) {
        CHECK(overhead(mechanism(e, id), "rounding_slack").low_bytes() == kPage - 40 * kKiB);
        CHECK(has(mechanism(e, id).does_not(), "take internal waste away"));
    }
    // One unit: nothing to put side by side.
    CHECK(mechanism(e, "stitched").standing() == Mechanism::rejected);
    CHECK(need(mechanism(e, "stitched"), "pieces").state() == Prerequisite::fails);
    // And the driver gives no smaller units.
    CHECK(mechanism(e, "vmm_smaller").standing() == Mechanism::rejected);
}

TEST_CASE("stitching makes no physical extent larger and lifts no limit on mappings") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    const Mechanism& m = mechanism(e, "stitched");
    CHECK(has(m.does_not(), "make a physical extent larger"));
    CHECK(has(m.does_not(), "lift a limit on the number of mappings"));
    CHECK(m.pieces_high() == 1024);
    CHECK(need(m, "mappings").state() == Prerequisite::not_known);
    // 1 GiB was there in all: no way of joining pieces makes 2 GiB of it.
    CHECK(need(m, "backing").state() == Prerequisite::fails);
    CHECK(m.standing() == Mechanism::rejected);
}

TEST_CASE("a contract of one physical extent rejects stitching and segments") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 64 * kMiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    analysis::SessionWalk walk(session.trace());
    analysis::Situation s =
        analysis::situation_at(session.trace(), analysis::list_failures(session.trace())[0], walk);
    s.request.contiguity = report::Request::physical;
    s.request.contiguity_reason = "a device without address translation reads it.";
    report::Explanation e;
    *e.mutable_mechanisms() = analysis::mechanisms_of(s, {});
    CHECK(mechanism(e, "stitched").standing() == Mechanism::rejected);
    CHECK(need(mechanism(e, "stitched"), "contract").state() == Prerequisite::fails);
    CHECK(mechanism(e, "segmented").standing() == Mechanism::rejected);
    // And no other way is taken to promise it.
    CHECK(need(mechanism(e, "direct"), "contract").state() == Prerequisite::not_known);
    CHECK(mechanism(e, "direct").standing() == Mechanism::hypothesis);
    // A person who declares one range of addresses rules segments out; a guess from the call alone does not.
    s.request.contiguity = report::Request::virtual_only;
    *e.mutable_mechanisms() = analysis::mechanisms_of(s, {});
    CHECK(need(mechanism(e, "segmented"), "contract").state() == Prerequisite::not_known);
    s.contract.declared = true;
    *e.mutable_mechanisms() = analysis::mechanisms_of(s, {});
    CHECK(need(mechanism(e, "segmented"), "contract").state() == Prerequisite::fails);
    CHECK(mechanism(e, "segmented").standing() == Mechanism::rejected);
    s.request.contiguity = report::Request::segmented;
    *e.mutable_mechanisms() = analysis::mechanisms_of(s, {});
    CHECK(need(mechanism(e, "segmented"), "contract").state() == Prerequisite::holds);
}

TEST_CASE("feasible only where every prerequisite is established; else a hypothesis that says what is open") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 64 * kMiB).failed().snapshot(128 * kMiB, 8 * kGiB).snapshot_end();
    auto e = explained(session);
    CHECK(mechanism(e, "vmm").standing() == Mechanism::hypothesis);
    CHECK(need(mechanism(e, "vmm"), "capability").state() == Prerequisite::not_known);
    CHECK(mechanism(e, "vmm").reason().find("Not established: ") == 0);
    CHECK(mechanism(e, "direct").standing() == Mechanism::rejected);  // the failure itself bounds it
    p.reserve(0x5000000000, 64 * kMiB).create(1, 64 * kMiB);
    e = explained(session);
    CHECK(need(mechanism(e, "vmm"), "capability").state() == Prerequisite::holds);
    CHECK(need(mechanism(e, "vmm"), "addresses").state() == Prerequisite::holds);
    CHECK(need(mechanism(e, "vmm"), "backing").state() == Prerequisite::holds);
    CHECK(mechanism(e, "vmm").standing() == Mechanism::feasible);
    // What the device says of itself counts more than what calls did.
    (*p.process().mutable_devices(0)->mutable_attributes())[102] = 0;
    e = explained(session);
    CHECK(mechanism(e, "vmm").standing() == Mechanism::rejected);
    CHECK(mechanism(e, "stitched").standing() == Mechanism::rejected);
}

TEST_CASE("costs: what was measured once is measured, sums are called sums, all else is a hypothesis") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 4 * kMiB).free(0x10000000);
    mapped_once(p, 4 * kMiB, 4 * kMiB);
    mapped_once(p, 4 * kMiB, 2 * kMiB);
    p.linear(0, 4 * kMiB).failed().snapshot(0, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    // Each call of the builder takes 100 ns.
    CHECK(cost(mechanism(e, "direct"), "setup").evidence() == CostPart::measured);
    CHECK(cost(mechanism(e, "direct"), "setup").low_ns() == 100);
    CHECK(cost(mechanism(e, "direct"), "steady_state").evidence() == CostPart::added);
    CHECK(cost(mechanism(e, "direct"), "steady_state").high_ns() == 200);
    // Reserve, create, map, set access; then unmap, release, create, map, set access: the range stays
    // reserved.
    CHECK(cost(mechanism(e, "vmm"), "setup").low_ns() == 400);
    CHECK(cost(mechanism(e, "vmm"), "setup").evidence() == CostPart::added);
    CHECK(cost(mechanism(e, "vmm"), "steady_state").low_ns() == 500);
    // Two pieces: 1 reserve, 2 create, 2 map, 1 access; then 2 unmap, 2 release, 2 create, 2 map, 1 access.
    CHECK(cost(mechanism(e, "stitched"), "setup").low_ns() == 600);
    CHECK(cost(mechanism(e, "stitched"), "steady_state").high_ns() == 900);
    CHECK(cost(mechanism(e, "stitched"), "setup").evidence() == CostPart::added);
    // A tail of two calls is no 99th percentile.
    CHECK(cost(mechanism(e, "direct"), "tail").evidence() == CostPart::hypothesis);
    // No counter was read: neither size of pages is called faster.
    CHECK(cost(mechanism(e, "vmm"), "translation").evidence() == CostPart::hypothesis);
    CHECK_FALSE(cost(mechanism(e, "vmm"), "translation").has_low_ns());
    CHECK_FALSE(cost(mechanism(e, "vmm"), "translation").falsified_by().empty());
    CHECK(cost(mechanism(e, "segmented"), "indirection").evidence() == CostPart::hypothesis);
    for (const Mechanism& m : e.mechanisms().mechanisms()) {
        for (const CostPart& part : m.costs()) {
            CAPTURE(m.id() + " " + part.part());
            CHECK(part.evidence() != CostPart::evidence_unspecified);
            CHECK(part.falsified_by().empty() == (part.evidence() != CostPart::hypothesis));
        }
    }
}

TEST_CASE("more calls than were ever seen, or of other sizes, are no measurement") {
    SessionBuilder session;
    auto& p = session.process();
    mapped_once(p, 4 * kMiB, 2 * kMiB);
    p.linear(0, 64 * kMiB).failed().snapshot(0, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    // 32 pieces of 2 MiB, of which two were ever made.
    const CostPart& setup = cost(mechanism(e, "stitched"), "setup");
    CHECK(setup.evidence() == CostPart::hypothesis);
    CHECK(setup.how().find("more often than they were seen") != std::string::npos);
    CHECK(setup.low_ns() == 100 + 32 * 100 + 32 * 100 + 100);
    CHECK(cost(mechanism(e, "vmm"), "setup").how().find("at other sizes only") != std::string::npos);
    CHECK(cost(mechanism(e, "direct"), "setup").how().find("not measured here: cuMemAlloc") == 0);
    CHECK_FALSE(cost(mechanism(e, "direct"), "setup").has_low_ns());
    CHECK(cost(mechanism(e, "direct"), "setup").falsified_by().find("cuMemAlloc") != std::string::npos);
}

TEST_CASE("break-even: setup over what the present way pays each time, against the uses that were seen") {
    for (const std::uint64_t uses : {10U, 4U}) {
        SessionBuilder session;
        auto& p = session.process();
        // cuMemAlloc 1000 ns, cuMemFree 500 ns; behind a mapping 4 calls of 2000 ns.
        for (std::uint64_t i = 0; i < uses; ++i)
            p.linear(0x10000000, 4 * kMiB).lasted(0, 900).free(0x10000000).lasted(0, 400);
        p.reserve(0x7000000000, 4 * kMiB).lasted(0, 1900).create(1, 4 * kMiB).lasted(0, 1900);
        p.map(0x7000000000, 4 * kMiB, 1).lasted(0, 1900);
        p.call(Kind::kAccessSet, 0x7000000000, 4 * kMiB).lasted(0, 1900);
        p.linear(0, 4 * kMiB).failed().snapshot(0, 8 * kGiB).snapshot_end();
        const auto e = explained(session);
        REQUIRE(e.mechanisms().reuse().acquisitions() == uses);
        CHECK(e.mechanisms().reuse().most_at_once() == 1);
        CHECK(e.mechanisms().reuse().uses_low() == uses);
        const Mechanism& m = mechanism(e, "vmm");
        REQUIRE(m.has_amortisation());
        // 8000 ns once against 1000 + (N - 1) * 1500: N - 1 >= 7000 / 1500, so N = 6.
        CHECK(m.amortisation().break_even_low() == 6);
        CHECK(m.amortisation().break_even_high() == 6);
        CHECK(m.amortisation().per_use_low_ns() == 8000 / uses);
        CHECK(m.amortisation().paid() == (uses == 10 ? report::Amortisation::yes : report::Amortisation::no));
        // Kept in the present way, the first repetition is saved already.
        CHECK(mechanism(e, "direct").amortisation().break_even_low() == 2);
        // To keep it changes how long the memory is held, and that is said.
        CHECK(has(m.changes(), "how long memory is held"));
        CHECK(has(m.changes(), "4 MiB"));
    }
}

TEST_CASE("no amortisation without observed reuse, and none for what was not measured") {
    SessionBuilder session;
    auto& p = session.process();
    mapped_once(p, 4 * kMiB, 4 * kMiB);
    p.linear(0, 4 * kMiB).failed().snapshot(0, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.mechanisms().reuse().acquisitions() == 0);
    CHECK_FALSE(e.mechanisms().reuse().has_uses_low());
    for (const Mechanism& m : e.mechanisms().mechanisms()) CHECK_FALSE(m.has_amortisation());
}

TEST_CASE("compaction: rejected without anything that may be moved, and without room for the copy") {
    SessionBuilder fixed;
    auto& p = fixed.process();
    p.linear(0x10000000, 6 * kGiB).linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    auto e = explained(fixed);
    CHECK(mechanism(e, "compaction").standing() == Mechanism::rejected);
    CHECK(need(mechanism(e, "compaction"), "relocation").state() == Prerequisite::fails);

    SessionBuilder no_room;
    auto& q = no_room.process();
    q.create(1, 512 * kMiB).reserve(0x5000000000, 512 * kMiB).map(0x5000000000, 512 * kMiB, 1);
    q.linear(0, 32 * kMiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    e = explained(no_room);
    CHECK(need(mechanism(e, "compaction"), "relocation").state() == Prerequisite::not_known);
    CHECK(need(mechanism(e, "compaction"), "headroom").state() == Prerequisite::fails);
    CHECK(mechanism(e, "compaction").standing() == Mechanism::rejected);

    SessionBuilder room;
    auto& r = room.process();
    r.create(1, 512 * kMiB).reserve(0x5000000000, 512 * kMiB).map(0x5000000000, 512 * kMiB, 1);
    r.create(2, 2 * kMiB).reserve(0x6000000000, 2 * kMiB).map(0x6000000000, 2 * kMiB, 2);
    r.linear(0, 32 * kMiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    e = explained(room);
    const Mechanism& m = mechanism(e, "compaction");
    CHECK(need(m, "headroom").state() == Prerequisite::holds);
    CHECK(m.standing() == Mechanism::hypothesis);  // never more: when it is safe no record says
    CHECK(overhead(m, "temporary").low_bytes() == 2 * kMiB);
    CHECK(overhead(m, "temporary").high_bytes() == 512 * kMiB);
    CHECK(need(m, "relocation").evidence().find("514 MiB in 2 mapped physical allocations") == 0);
    CHECK(has(m.changes(), "overwritten"));
    // Shared with another process: not ours to move.
    r.call(Kind::kHandleExported, 0, 0, 1, 1).call(Kind::kHandleExported, 0, 0, 2, 1);
    r.linear(0, 32 * kMiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    e = explained(room);
    CHECK(mechanism(e, "compaction").standing() == Mechanism::rejected);
}

TEST_CASE("another kind of memory than cuMemAlloc cannot be shared through cuIpcGetMemHandle") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kMiB).call(Kind::kIpcExported, 0x10000000, 0, 0, 77);
    p.linear(0, 64 * kMiB).failed().snapshot(128 * kMiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(need(mechanism(e, "stitched"), "sharing").state() == Prerequisite::not_known);
    CHECK(need(mechanism(e, "vmm"), "sharing").state() == Prerequisite::not_known);
}

TEST_CASE("a pool keeps memory after it was given back: that is a change of retention, and is said") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x2000000000, kMiB, 0xb00).pool_give(0x2000000000).synchronize(7);
    p.linear(0, 64 * kMiB).failed().snapshot(0, 8 * kGiB).snapshot_pool(0xb00, 0, 32 * kMiB).snapshot_end();
    const auto e = explained(session);
    CHECK(has(mechanism(e, "pool").changes(), "release threshold"));
    CHECK(mechanism(e, "pool").settings(0).name() == "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD");
}

TEST_CASE("settings are named for software that the trace shows, and for no other") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 20 * kMiB);
    p.linear(0, 64 * kMiB).failed().snapshot(0, 8 * kGiB).snapshot_end();
    const auto unknown = explained(session);
    for (const Mechanism& m : unknown.mechanisms().mechanisms()) CHECK(m.settings().empty());
    session.trace().functions[4] = "c10::reportMemoryUsageToProfiler";
    p.call(Kind::kBlockAcquired, 0x10000000, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    p.linear(0, 64 * kMiB).failed().snapshot(0, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    REQUIRE(mechanism(e, "stitched").settings_size() == 1);
    const report::Setting& setting = mechanism(e, "stitched").settings(0);
    CHECK(setting.client() == "PyTorch");
    CHECK(setting.name().find("expandable_segments:True") != std::string::npos);
    CHECK_FALSE(setting.cost().empty());
    CHECK(mechanism(e, "segmented").settings().empty());  // a tensor is one pointer
    for (const Mechanism& m : e.mechanisms().mechanisms()) {
        for (const auto& each : m.settings()) CHECK(each.client() == "PyTorch");
    }
}

TEST_CASE("a request for addresses, or of no known size, has no backing to choose") {
    SessionBuilder session;
    auto& p = session.process();
    p.reserve(0, kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.mechanisms().mechanisms().empty());
    CHECK(e.mechanisms().pareto_note().find("addresses only") != std::string::npos);
}

TEST_CASE("what was not measured excludes nothing from the Pareto set; what is rejected is not in it") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 64 * kMiB).failed().snapshot(128 * kMiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(std::count(e.mechanisms().pareto().begin(), e.mechanisms().pareto().end(), "direct") == 0);
    CHECK(std::count(e.mechanisms().pareto().begin(), e.mechanisms().pareto().end(), "vmm") == 1);
    CHECK(std::count(e.mechanisms().pareto().begin(), e.mechanisms().pareto().end(), "stitched") == 1);
    CHECK(e.mechanisms().dominated().empty());
    CHECK(e.mechanisms().pareto_note().find("was not measured") != std::string::npos);
    CHECK_FALSE(e.mechanisms().has_ranking());  // no priority was declared
}
