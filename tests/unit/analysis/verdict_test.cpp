// Every cause, and every case in which a careless reader would name the wrong one.
#include <doctest/doctest.h>

#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using report::Verdict;

namespace {

const bool kAsksAgain = ask_again = true;

// Books, others and what no record explains make up what the device says is taken.
void check_books_close(const report::Explanation& e) {
    const auto& capacity = audit(e, report::Quantity::capacity);
    const auto& free = audit(e, report::Quantity::device_free);
    const auto& attributed = audit(e, report::Quantity::attributed);
    const auto& others = audit(e, report::Quantity::other_processes);
    const auto& rest = audit(e, report::Quantity::unattributed);
    const std::uint64_t taken = capacity.low_bytes() - free.low_bytes();
    REQUIRE(rest.has_low_bytes());
    CHECK(attributed.low_bytes() + others.low_bytes() + rest.low_bytes() <= taken);
    if (attributed.has_high_bytes() && others.has_high_bytes()) {
        REQUIRE(rest.has_high_bytes());
        CHECK(attributed.high_bytes() + others.high_bytes() + rest.high_bytes() >= taken);
    }
}

}  // namespace

TEST_CASE("pages with little payload in each: internal fragmentation") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    small_objects(p, 500, 40 * kKiB).create(9999, kPage).failed().snapshot(0, 1 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::internal_fragmentation);
    CHECK(audit(e, report::Quantity::payload_written).low_bytes() == 500 * 40 * kKiB);
    CHECK(audit(e, report::Quantity::internal_waste).low_bytes() == 500 * (kPage - 40 * kKiB));
    CHECK(audit(e, report::Quantity::internal_waste).evidence() == report::Quantity::derived);
    CHECK(row(e, "as_it_was").outcome() == report::Counterfactual::does_not_fit);
    CHECK(row(e, "without_internal_waste").outcome() == report::Counterfactual::fits);
    CHECK(row(e, "without_internal_waste").margin_low() ==
          static_cast<std::int64_t>(500 * (kPage - 40 * kKiB) - kPage));
    CHECK(e.verdict().removed(0) == "without_internal_waste");
    CHECK(domain(e, "physical").internal_ratio() == doctest::Approx(1.0 - 40.0 / 2048.0));
    CHECK_FALSE(domain(e, "physical").has_external_ratio());
    CHECK(says(e, "does not help"));  // remapping removes no internal waste
    check_books_close(e);
}

TEST_CASE("the same pages, but kernels ran: what they hold cannot be known") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    small_objects(p, 500, 40 * kKiB).create(9999, kPage).failed().snapshot(0, 1 * kGiB).snapshot_end();
    p.loss().set_kernel_launches(1);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(e.verdict().deciding_measurement().find("payload") != std::string::npos);
    CHECK(audit(e, report::Quantity::internal_waste).low_bytes() == 0);
    CHECK(audit(e, report::Quantity::internal_waste).high_bytes() == 500 * (kPage - 40 * kKiB));
    CHECK_FALSE(domain(e, "physical").has_internal_ratio());
}

TEST_CASE("no write was recorded: full pages and empty pages look alike, and waste is unknown, not zero") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    small_objects(p, 500, 0).create(9999, kPage).failed().snapshot(0, 1 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(audit(e, report::Quantity::internal_waste).evidence() == report::Quantity::unknown);
    CHECK_FALSE(audit(e, report::Quantity::internal_waste).has_low_bytes());
    CHECK(row(e, "without_internal_waste").outcome() == report::Counterfactual::not_applicable);
}

TEST_CASE("full pages: capacity, not fragmentation") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    small_objects(p, 500, kPage).create(9999, kPage).failed().snapshot(0, 1 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(audit(e, report::Quantity::internal_waste).low_bytes() == 0);
    CHECK(audit(e, report::Quantity::internal_waste).high_bytes() == 0);
}

TEST_CASE("a pool keeps what was freed: named, with the call and the bytes, and not taken as eligible") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 6; ++i) p.pool_take(0x2000000000 + i * kGiB, kGiB, 0xb00);
    for (std::uint64_t i = 0; i < 6; ++i) p.pool_give(0x2000000000 + i * kGiB);
    p.synchronize(7);
    p.linear(0, 4 * kGiB)
        .failed()
        .snapshot(1 * kGiB, 8 * kGiB)
        .snapshot_pool(0xb00, 0, 6 * kGiB)
        .snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "cached_by_pool");
    CHECK(e.verdict().summary().find("cudaMemPoolTrimTo") != std::string::npos);
    CHECK(e.verdict().summary().find("6 GiB") != std::string::npos);
    CHECK(row(e, "with_cached_returned").outcome() == report::Counterfactual::fits);
    CHECK(audit(e, report::Quantity::cached).low_bytes() == 6 * kGiB);
    CHECK(audit(e, report::Quantity::reclaimable).low_bytes() == 6 * kGiB);
    CHECK(audit(e, report::Quantity::eligible_free).high_bytes() == 1 * kGiB);
    CHECK(says(e, "cudaMemPoolTrimTo"));
    check_books_close(e);
}

TEST_CASE("a pool keeps memory, but even all of it would not have been enough: capacity") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, kGiB, 0xb00)
        .pool_give(0x2000000000)
        .synchronize(7)
        .linear(0x3000000000, 6 * kGiB);
    p.linear(0, 4 * kGiB).failed().snapshot(1 * kGiB, 8 * kGiB).snapshot_pool(0xb00, 0, kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(row(e, "with_cached_returned").outcome() == report::Counterfactual::does_not_fit);
}

TEST_CASE(
    "the pool was not asked right after the failure: undetermined, although it surely keeps something") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, 6 * kGiB, 0xb00).pool_give(0x2000000000).synchronize(7);
    p.linear(0, 4 * kGiB).failed().snapshot(1 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(e.verdict().deciding_measurement().find("pools' reserved and used") != std::string::npos);
    CHECK(audit(e, report::Quantity::cached).evidence() == report::Quantity::unknown);
}

TEST_CASE("another process of the trace holds the device: capacity, with its share") {
    SessionBuilder session;
    auto& holder = session.process(8 * kGiB);
    auto& worker = session.process(8 * kGiB);
    holder.linear(0x1000000000, 6 * kGiB);
    worker.linear(0, 4 * kGiB).failed().snapshot(2 * kGiB - 256 * kMiB, 8 * kGiB).snapshot_end();
    holder.free(0x1000000000);  // later: not at the failure
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(e.verdict().summary().find("other processes of this trace") != std::string::npos);
    CHECK(e.verdict().summary().find("6 GiB") != std::string::npos);
    CHECK(e.verdict().contributing(0).find("process 0 (pid 100, program)") != std::string::npos);
    CHECK(audit(e, report::Quantity::other_processes).low_bytes() == 6 * kGiB);
    CHECK(audit(e, report::Quantity::unattributed).high_bytes() == 256 * kMiB);
    CHECK(row(e, "without_other_processes").outcome() == report::Counterfactual::fits);
    check_books_close(e);
}

TEST_CASE("a process on another device takes nothing from this one") {
    SessionBuilder session;
    auto& other = session.process(8 * kGiB, 'B');
    auto& worker = session.process(8 * kGiB, 'A');
    other.linear(0x1000000000, 6 * kGiB);
    worker.linear(0, 4 * kGiB).failed().snapshot(1 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(audit(e, report::Quantity::other_processes).high_bytes() == 0);
    CHECK(row(e, "without_other_processes").outcome() == report::Counterfactual::not_applicable);
}

TEST_CASE("the device is held by nobody whom this trace knows: capacity, and no name is invented") {
    SessionBuilder session;
    session.process(8 * kGiB).linear(0, 4 * kGiB).failed().snapshot(1 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(e.verdict().summary().find("7 GiB are held by no record of any recorded process") != std::string::npos);
    CHECK(e.verdict().summary().find("not known") != std::string::npos);
    CHECK(e.verdict().removed(0) == "without_unattributed");
}

TEST_CASE("a leak to the end: capacity") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 60; ++i) p.linear(0x1000000000 + i * 128 * kMiB, 128 * kMiB);
    p.linear(0, 128 * kMiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    for (const auto& r : e.counterfactuals()) {
        if (r.id() != "without_unattributed" && r.id().rfind("with_", 0) != 0) {
            CHECK(r.outcome() != report::Counterfactual::fits);
        }
    }
    CHECK(bound(e, "direct").largest().high_bytes() == 64 * kMiB);
    check_books_close(e);
}

TEST_CASE("a request larger than the device needs no snapshot") {
    SessionBuilder session;
    session.process(8 * kGiB).linear(0, 9 * kGiB).failed();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(e.verdict().summary().find("larger than the device") != std::string::npos);
}

TEST_CASE("a failure alone is not fragmentation: without a snapshot it is undetermined") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, kGiB);
    // A number of an earlier moment is there, and must not be used.
    analysis::Event earlier;
    earlier.kind = wire::Kind::kDeviceMemory;
    earlier.address = {100 * kMiB};
    earlier.bytes = {8 * kGiB};
    p.event(earlier);
    p.linear(0, 4 * kGiB).failed();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(e.verdict().deciding_measurement().find("cuMemGetInfo right after the failure") == 0);
    CHECK(audit(e, report::Quantity::device_free).evidence() == report::Quantity::unknown);
    CHECK_FALSE(audit(e, report::Quantity::device_free).has_low_bytes());
}

TEST_CASE("a snapshot without its end, or of another failure, is not used") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0, 4 * kGiB).failed().snapshot(1 * kGiB, 8 * kGiB);
    p.linear(0x1000000000, kMiB);
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
}

TEST_CASE("refused with far more free than needed: the driver's refusal, never fragmentation") {
    SessionBuilder session;
    session.process(32 * kGiB).linear(0, 960 * kMiB).failed().snapshot(15 * kGiB, 32 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "driver_refused");
    CHECK(row(e, "with_physical_merged").outcome() == report::Counterfactual::cannot_tell);
}

TEST_CASE("refused with a little more free than needed: undetermined, never fragmentation") {
    SessionBuilder session;
    session.process(16 * kGiB)
        .linear(0, 8129 * kMiB)
        .failed()
        .snapshot(8200 * kMiB, 16 * kGiB)
        .snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK_FALSE(e.verdict().deciding_measurement().empty());
}

TEST_CASE("free bytes between what was asked for and what rounding may take: undetermined") {
    SessionBuilder session;
    session.process(8 * kGiB)
        .linear(0, 3 * kMiB)
        .failed()
        .snapshot(3 * kMiB + 512 * kKiB, 8 * kGiB)
        .snapshot_end();
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
}

TEST_CASE("reservations without backing use up the address space") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 60; ++i) p.reserve(0x1000000000 + i * kGiB, kGiB);
    p.unreserve(0x1000000000 + 7 * kGiB, kGiB).reserve(0x1000000000 + 7 * kGiB, 512 * kMiB);
    p.reserve(0, kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "address_space");
    CHECK(row(e, "with_virtual_gaps_merged").outcome() == report::Counterfactual::does_not_fit);
    CHECK(row(e, "with_cached_returned").outcome() == report::Counterfactual::not_applicable);
    CHECK(e.request().contiguity() == report::Request::virtual_only);
}

TEST_CASE("gaps that sum to more than the request, none large enough: virtual-space fragmentation") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 16; ++i) p.reserve(0x1000000000 + i * kGiB, kGiB);
    for (std::uint64_t i = 1; i < 16; i += 2) p.unreserve(0x1000000000 + i * kGiB, kGiB);
    p.reserve(0, 2 * kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::virtual_space_fragmentation);
    const auto& d = domain(e, "virtual");
    CHECK(d.free_sum().low_bytes() == 8 * kGiB);
    CHECK(d.free_largest().low_bytes() == 1 * kGiB);
    CHECK(d.external_ratio() == doctest::Approx(1.0 - 1.0 / 8.0));
    CHECK(row(e, "with_virtual_gaps_merged").outcome() == report::Counterfactual::fits);
    CHECK(row(e, "with_physical_merged").outcome() == report::Counterfactual::not_applicable);
}

TEST_CASE("gaps are not counted where records are missing") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 16; ++i) p.reserve(0x1000000000 + i * kGiB, kGiB);
    for (std::uint64_t i = 1; i < 16; i += 2) p.unreserve(0x1000000000 + i * kGiB, kGiB);
    p.reserve(0, 2 * kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    p.loss().set_acquisitions(1);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(domain(e, "virtual").free_sum().evidence() == report::Quantity::unknown);
}

TEST_CASE("gaps that nobody ever held may be the driver's own: undetermined") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 16; i += 2) p.reserve(0x1000000000 + i * kGiB, kGiB);
    p.reserve(0, 2 * kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
}

TEST_CASE(
    "memory is free and an address reservation failed just before: address space, not the driver's whim") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.reserve(0x1000000000, 60 * kGiB).reserve(0, kGiB).failed();
    p.linear(0, kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "address_space");
}

TEST_CASE("a pool at its maximum size with nothing free in it") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, 64 * kMiB, 0xb00).pool_take(0, 32 * kMiB, 0xb00).failed();
    p.snapshot(7 * kGiB, 8 * kGiB).snapshot_pool(0xb00, 64 * kMiB, 64 * kMiB, 64 * kMiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "pool_maximum");
    CHECK(row(e, "with_pool_maximum_lifted").outcome() == report::Counterfactual::fits);
}

TEST_CASE("a pool at its maximum size with enough free in it, in pieces") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 8; ++i) p.pool_take(0x2000000000 + i * 8 * kMiB, 8 * kMiB, 0xb00);
    for (std::uint64_t i = 0; i < 8; i += 2) p.pool_give(0x2000000000 + i * 8 * kMiB);
    p.synchronize(7).pool_take(0, 16 * kMiB, 0xb00).failed();
    p.snapshot(7 * kGiB, 8 * kGiB).snapshot_pool(0xb00, 32 * kMiB, 64 * kMiB, 64 * kMiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::allocator_external_fragmentation);
    CHECK(row(e, "with_pool_gaps_merged").outcome() == report::Counterfactual::fits);
}

TEST_CASE("the same, but the frees may still wait for their stream: undetermined") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 8; ++i) p.pool_take(0x2000000000 + i * 8 * kMiB, 8 * kMiB, 0xb00);
    for (std::uint64_t i = 0; i < 8; i += 2) p.pool_give(0x2000000000 + i * 8 * kMiB);
    p.pool_take(0, 16 * kMiB, 0xb00).failed();
    p.snapshot(7 * kGiB, 8 * kGiB).snapshot_pool(0xb00, 32 * kMiB, 64 * kMiB, 64 * kMiB).snapshot_end();
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
}

TEST_CASE("page-locked host memory: no limit of the host is in the trace") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    analysis::Event pinned;
    pinned.kind = wire::Kind::kHostAcquired;
    pinned.bytes = {256 * kMiB};
    p.event(pinned).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(e.verdict().deciding_measurement().find("ulimit -l") != std::string::npos);
}

TEST_CASE("two removals together: both are named, neither alone") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    small_objects(p, 1024, 40 * kKiB);  // 2 GiB charged, 1.96 of it waste
    p.pool_take(0x2000000000, 3 * kGiB, 0xb00)
        .pool_give(0x2000000000)
        .synchronize(7)
        .linear(0x4000000000, 2 * kGiB);
    p.linear(0, 5 * kGiB)
        .failed()
        .snapshot(512 * kMiB, 8 * kGiB)
        .snapshot_pool(0xb00, 0, 3 * kGiB)
        .snapshot_end();
    const auto e = explained(session);
    CHECK(row(e, "with_cached_returned").outcome() == report::Counterfactual::does_not_fit);
    CHECK(row(e, "without_internal_waste").outcome() == report::Counterfactual::does_not_fit);
    REQUIRE(e.verdict().removed_size() == 2);
    CHECK(e.verdict().removed(0) == "with_cached_returned");
    CHECK(e.verdict().removed(1) == "without_internal_waste");
    CHECK(e.verdict().constraint() == "cached_by_pool");  // the larger share
}

TEST_CASE("losses weaken the conclusion") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    small_objects(p, 500, 40 * kKiB).create(9999, kPage).failed().snapshot(0, 1 * kGiB).snapshot_end();
    p.loss().set_releases(3);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK_FALSE(e.health().complete());
    CHECK(audit(e, report::Quantity::attributed).low_bytes() == 0);
}

TEST_CASE("what other threads did before the driver answered widens what was free") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, 7 * kGiB).linear(0, 2 * kGiB).failed();
    p.thread(2).free(0x1000000000).thread(1);
    p.snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    // The snapshot says 7 GiB free, which would make this a refusal of the driver; it was not so at the call.
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(audit(e, report::Quantity::eligible_free).low_bytes() == 0);
}

TEST_CASE("no failure: no cause is invented") {
    SessionBuilder session;
    session.process().linear(0x1000000000, kGiB).free(0x1000000000);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::no_failure);
    CHECK(e.counterfactuals_size() == 0);
    CHECK(analysis::make_report(session.trace()).failures_size() == 0);
}

TEST_CASE("a failed call that is not about memory") {
    SessionBuilder session;
    session.process().linear(0x1000000000, kGiB).linear(0, kGiB).failed(201);
    const auto report = analysis::make_report(session.trace());
    REQUIRE(report.failures_size() == 1);
    CHECK(report.failures(0).verdict().cause() == Verdict::not_an_allocation);
    CHECK(report.failures(0).result_name() == "CUDA_ERROR_INVALID_CONTEXT");
    CHECK(analysis::explain_failure(session.trace(), 1).verdict().cause() == Verdict::not_an_allocation);
    CHECK(analysis::explain_failure(session.trace()).verdict().cause() == Verdict::no_failure);
}

TEST_CASE("stitching joins addresses and makes no physical extent larger") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, 7 * kGiB).linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(bound(e, "stitched").largest().high_bytes() == kGiB);
    CHECK(bound(e, "compaction").largest().high_bytes() == kGiB);
    CHECK(bound(e, "direct").largest().high_bytes() == kGiB);
    CHECK(bound(e, "stitched").largest().reason().find("no larger physical extent") != std::string::npos);
}

TEST_CASE("a success after the failure, before any release, is a witness; one after a release is not") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, 7 * kGiB).linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    p.linear(0x3000000000, 256 * kMiB).free(0x1000000000).linear(0x4000000000, 2 * kGiB);
    const auto e = explained(session);
    CHECK(bound(e, "direct").largest().low_bytes() == 256 * kMiB);
    CHECK(bound(e, "vmm").largest().low_bytes() == 0);
}
