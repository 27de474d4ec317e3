// How far the evidence goes: what is missing, ambiguous or of another place must weaken the answer, and never
// turn into zero.
#include <doctest/doctest.h>

#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using report::Verdict;
using Q = report::Quantity;

namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

analysis::Event pool_attribute(std::uint64_t pool, std::uint64_t attribute, std::uint64_t value) {
    analysis::Event event;
    event.kind = wire::Kind::kPoolAttributeSet;
    event.object = {pool};
    event.bytes = {value};
    event.extra = attribute;
    return event;
}

// A pool that keeps 64 MiB in pieces of 8 MiB, asked for 48 MiB on a device with 10 MiB left.
ProcessBuilder& pool_in_pieces(ProcessBuilder& p) {
    for (std::uint64_t i = 0; i < 16; ++i) p.pool_take(0x2000000000 + i * 8 * kMiB, 8 * kMiB, 0xb00);
    for (std::uint64_t i = 0; i < 16; i += 2) p.pool_give(0x2000000000 + i * 8 * kMiB);
    p.synchronize(7).pool_take(0, 48 * kMiB, 0xb00).failed();
    p.snapshot(10 * kMiB, 8 * kGiB).snapshot_pool(0xb00, 64 * kMiB, 128 * kMiB).snapshot_end();
    return p;
}

}  // namespace

TEST_CASE("a reservation names no device: its own snapshot speaks of exactly one") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.reserve(0x1000000000, 60 * kGiB)
        .on(analysis::kNoDevice)
        .reserve(0, kGiB)
        .on(analysis::kNoDevice)
        .failed();
    p.snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().constraint() == "address_space");
    CHECK(e.request().device() == "GPU-41414141-4141-4141-4141-414141414141");
    CHECK(audit(e, Q::capacity).low_bytes() == 8 * kGiB);
    CHECK(audit(e, Q::device_free).low_bytes() == 7 * kGiB);
    CHECK(contains(audit(e, Q::device_free).reason(), "the call names no device"));
}

TEST_CASE("a reservation names no device, and its snapshot speaks of two: none is chosen") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB).another_device(8 * kGiB, 'B');
    p.reserve(0x1000000000, 60 * kGiB)
        .on(analysis::kNoDevice)
        .reserve(0, kGiB)
        .on(analysis::kNoDevice)
        .failed();
    p.snapshot(7 * kGiB, 8 * kGiB, 0).snapshot(6 * kGiB, 8 * kGiB, 1).snapshot_end();
    const auto e = explained(session);
    CHECK(e.request().device().empty());
    CHECK_FALSE(audit(e, Q::device_free).has_low_bytes());
    CHECK_FALSE(audit(e, Q::capacity).has_low_bytes());
}

TEST_CASE("a reservation that is the first of its process: nothing is said to be used up") {
    SessionBuilder session;
    session.process(8 * kGiB).reserve(0, 2048 * kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().constraint() == "address_space");
    CHECK(contains(e.verdict().summary(), "no other reservation"));
    CHECK_FALSE(contains(e.verdict().summary(), "ran out"));
}

TEST_CASE("two failures in a row: the second was not asked about, and the first one is pointed to") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, kGiB).linear(0, 4 * kGiB).failed().snapshot(2 * kGiB, 8 * kGiB).snapshot_end();
    p.linear(0, 4 * kGiB).failed();
    const auto e = explained(session);
    CHECK(e.id() == "failure:2");
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(contains(e.verdict().deciding_measurement(), "cuMemGetInfo right after the failure"));
    CHECK(says(e, "--failure 1"));
    CHECK_FALSE(audit(e, Q::device_free).has_high_bytes());
}

TEST_CASE("a failure that was not asked about, but the process's own records leave too little: capacity") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, 7 * kGiB).linear(0, 2 * kGiB).failed();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(contains(e.verdict().summary(), "the driver was not asked"));
    CHECK(audit(e, Q::device_free).evidence() == Q::unknown);
    CHECK(audit(e, Q::eligible_free).high_bytes() == kGiB);
    CHECK_FALSE(audit(e, Q::eligible_free).has_low_bytes());
    p.loss().set_releases(1);
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
}

TEST_CASE("memory from before the recording: what is attributed is a lower bound, what is not may be less") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, 2 * kGiB).free(0x7000000000).linear(0, 2 * kGiB).failed();
    p.snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(contains(e.verdict().deciding_measurement(), "from the program's start on"));
    CHECK(audit(e, Q::attributed).low_bytes() == 2 * kGiB);
    CHECK_FALSE(audit(e, Q::attributed).has_high_bytes());
    CHECK_FALSE(audit(e, Q::unattributed).has_low_bytes());
    CHECK(audit(e, Q::unattributed).high_bytes() == 5 * kGiB);
}

TEST_CASE("the driver spoke of another device than the request's: its numbers are not used") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB).another_device(8 * kGiB, 'B');
    analysis::Event create;
    create.kind = wire::Kind::kHandleCreated;
    create.bytes = {4 * kGiB};
    create.extra = wire::pack_location(1, 1, 0);
    p.event(create).on(1).failed().snapshot(kGiB, 8 * kGiB, 0).snapshot_end();
    const auto e = explained(session);
    CHECK(e.request().device() == "GPU-42424242-4242-4242-4242-424242424242");
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK_FALSE(audit(e, Q::device_free).has_low_bytes());
    CHECK(contains(audit(e, Q::device_free).reason(), "another device"));
    CHECK(contains(e.verdict().deciding_measurement(), "a context of the request's device"));
}

TEST_CASE("books of one device do not enter those of another") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB).another_device(8 * kGiB, 'B');
    p.linear(0x1000000000, 5 * kGiB).on(0).linear(0x2000000000, 7 * kGiB).on(1);
    p.linear(0, 2 * kGiB).on(1).failed().snapshot(kGiB, 8 * kGiB, 1).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(audit(e, Q::attributed).low_bytes() == 7 * kGiB);
    CHECK(audit(e, Q::unattributed).high_bytes() == 0);
}

TEST_CASE("a pool of which the device is not known may lie on this one: what it keeps is not zero") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB).another_device(8 * kGiB, 'B');
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB);
    p.snapshot_pool(0xb00, 0, 6 * kGiB);
    auto& events = session.trace().events[0];
    for (std::size_t i = 0; i < events.size(); ++i) {
        analysis::Event& event = events.edit(i);
        if (event.object.value == 0xb00) event.device = analysis::kNoDevice;
    }
    p.snapshot_end();
    const auto e = explained(session);
    CHECK(audit(e, Q::cached).low_bytes() == 0);
    CHECK(audit(e, Q::cached).high_bytes() == 6 * kGiB);
    CHECK(e.verdict().cause() == Verdict::undetermined);
}

TEST_CASE("more pools than were asked about: what they keep has no upper end") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, kGiB, 0xb00).linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB);
    p.snapshot_pool(0xb00, kGiB, kGiB).snapshot_end(0, 3);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK_FALSE(row(e, "with_cached_returned").has_margin_high());
}

TEST_CASE("a capture was running, so nothing was asked: undetermined, and said so") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, kGiB).linear(0, 4 * kGiB).failed().snapshot_end(wire::kCaptured);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(contains(e.verdict().summary(), "stream capture"));
    CHECK(contains(e.verdict().deciding_measurement(), "no stream capture is running"));
}

TEST_CASE("graphs may hold what no record explains: undetermined, with the question that tells") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, 6 * kGiB, 0xb00).flagged(wire::kCaptured);
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_pool(0xb00, 0, 0).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(contains(e.verdict().summary(), "1 stream-ordered allocation into graphs"));
    CHECK(contains(e.verdict().deciding_measurement(), "cuDeviceGetGraphMemAttribute"));
    CHECK(contains(e.verdict().deciding_measurement(), "cuDeviceGraphMemTrim"));
}

TEST_CASE("graphs were captured, but not even all that no record explains would make room: capacity") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, kGiB, 0xb00).flagged(wire::kCaptured).linear(0x1000000000, 6 * kGiB);
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_pool(0xb00, 0, 0).snapshot_end();
    CHECK(explained(session).verdict().cause() == Verdict::capacity_exhaustion);
}

TEST_CASE("an allocation inside a capture takes no memory: no shortage of it is claimed") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0, 4 * kGiB, 0xb00).flagged(wire::kCaptured).failed().snapshot_end(wire::kCaptured);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(contains(e.request().in_words(), "graph"));
}

TEST_CASE("a captured free may take effect at a launch: the block counts as live at most") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, kGiB, 0xb00).pool_give(0x2000000000).flagged(wire::kCaptured);
    p.linear(0, 9 * kGiB / 2)
        .failed()
        .snapshot(4 * kGiB, 8 * kGiB)
        .snapshot_pool(0xb00, kGiB, kGiB)
        .snapshot_end();
    const auto e = explained(session);
    const auto& requested = domain(e, "pool 0xb00").requested();
    CHECK(requested.low_bytes() == 0);
    CHECK(requested.high_bytes() == kGiB);
}

TEST_CASE(
    "a full device, and a pool with enough in pieces: allocator fragmentation, as nothing else is left") {
    SessionBuilder session;
    pool_in_pieces(session.process(8 * kGiB));
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::allocator_external_fragmentation);
    CHECK(e.verdict().removed(0) == "with_pool_gaps_merged");
    // What the pool keeps is in the base already; it is not added a second time.
    // By bytes 74 MiB; the failure itself says that less than the request was there in one piece.
    CHECK(row(e, "as_it_was").available().high_bytes() == 48 * kMiB - 1);
    CHECK(row(e, "as_it_was").outcome() == report::Counterfactual::does_not_fit);
    CHECK(row(e, "with_cached_returned").available().high_bytes() == 74 * kMiB);
}

TEST_CASE("the same pool, but a release may be missing: undetermined") {
    SessionBuilder session;
    auto& p = pool_in_pieces(session.process(8 * kGiB));
    p.loss().set_releases(1);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(contains(e.verdict().deciding_measurement(), "cudaDeviceSynchronize"));
}

TEST_CASE("the same pool, but the program forbade giving memory to another stream: undetermined") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.event(pool_attribute(0xb00, 2, 0));
    pool_in_pieces(p);
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
}

TEST_CASE("a pool that keeps less than was asked for, on a full device: capacity") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.pool_take(0x2000000000, 7 * kGiB, 0xb00).pool_take(0, kGiB, 0xb00).failed();
    p.snapshot(512 * kMiB, 8 * kGiB).snapshot_pool(0xb00, 7 * kGiB, 7 * kGiB + 32 * kMiB).snapshot_end();
    CHECK(explained(session).verdict().cause() == Verdict::capacity_exhaustion);
}

TEST_CASE("kept by a pool, and still waiting for a stream: both have to go, and both are named") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 6; ++i) p.pool_take(0x2000000000 + i * kGiB, kGiB, 0xb00);
    for (std::uint64_t i = 0; i < 6; ++i) p.pool_give(0x2000000000 + i * kGiB);
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_pool(0xb00, 0, 6 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(row(e, "with_cached_returned").outcome() == report::Counterfactual::cannot_tell);
    CHECK(e.verdict().constraint() == "cached_by_pool");
    REQUIRE(e.verdict().removed_size() == 2);
    CHECK(e.verdict().removed(0) == "with_cached_returned");
    CHECK(e.verdict().removed(1) == "with_pending_frees_done");
}

TEST_CASE(
    "rounding that would have made room, but is little of what is held: capacity, and the rounding is not "
    "denied") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    small_objects(p, 100, 40 * kKiB).linear(0x4000000000, 7 * kGiB);
    p.linear(0, 64 * kMiB).failed().snapshot(8 * kMiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(row(e, "without_internal_waste").outcome() == report::Counterfactual::fits);
    CHECK(contains(e.verdict().summary(), "less than a quarter"));
    CHECK_FALSE(contains(e.verdict().summary(), "or wastes, would have been enough"));
}

TEST_CASE(
    "a success of the failed size, with nothing released here, shows that something else changed: no "
    "witness") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, 7 * kGiB).linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    p.linear(0x3000000000, 256 * kMiB).linear(0x4000000000, 2 * kGiB).linear(0x5000000000, kGiB);
    CHECK(bound(explained(session), "direct").largest().low_bytes() == 256 * kMiB);
}

TEST_CASE("an address reservation that failed long ago says nothing once memory was released") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, kGiB).reserve(0, kGiB).failed().free(0x1000000000);
    p.linear(0, kGiB).failed().snapshot(7 * kGiB, 8 * kGiB).snapshot_end();
    CHECK(explained(session).verdict().constraint() == "driver_refused");
}

TEST_CASE("amounts that differ and read alike are told apart") {
    SessionBuilder session;
    session.process(8 * kGiB).linear(0, 4 * kGiB).failed().snapshot(4 * kGiB - 4096, 8 * kGiB).snapshot_end();
    CHECK(contains(explained(session).verdict().summary(), "4.00 GiB (4294963200 B)"));
}

TEST_CASE("the driver counts as used what no record holds as live: it waited for its stream, and is named") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 6; ++i) p.pool_take(0x2000000000 + i * kGiB, kGiB, 0xb00);
    for (std::uint64_t i = 0; i < 6; ++i) p.pool_give(0x2000000000 + i * kGiB);
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB);
    p.snapshot_pool(0xb00, 6 * kGiB, 6 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().constraint() == "pending_frees");
    CHECK(audit(e, Q::pending_free).low_bytes() == 6 * kGiB);
    CHECK(audit(e, Q::pending_free).high_bytes() == 6 * kGiB);
    CHECK(row(e, "with_pending_frees_done").outcome() == report::Counterfactual::fits);
    CHECK(says(e, "then trim their pool"));
    p.loss().set_releases(1);
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
}

TEST_CASE(
    "whole pages never written are waste by definition, but no rounding: capacity, and they are named") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.create(100, 7 * kGiB).reserve(0x1000000000, 7 * kGiB).map(0x1000000000, 7 * kGiB, 100);
    p.touch(0x1000000000, 64 * kMiB).linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(audit(e, Q::internal_waste).low_bytes() == 7 * kGiB - 64 * kMiB);
    CHECK(contains(audit(e, Q::internal_waste).reason(), "6.94 GiB"));  // of it in whole pages: all
    CHECK(row(e, "without_internal_waste").outcome() == report::Counterfactual::does_not_fit);
    CHECK(row(e, "without_never_written_pages").outcome() == report::Counterfactual::fits);
    CHECK(e.verdict().removed(0) == "without_never_written_pages");
    CHECK(contains(e.verdict().summary(), "never written: without those it would have fitted"));
    CHECK_FALSE(contains(e.verdict().summary(), "or wastes"));
    CHECK(says(e, "first used"));
}

TEST_CASE(
    "the same bytes came in smaller handles right after: physical fragmentation, by that evidence only") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.create(1, 2 * kGiB).release(1).create(0, 2 * kGiB).failed().snapshot(3 * kGiB, 8 * kGiB).snapshot_end();
    for (std::uint64_t i = 0; i < 7; ++i) p.create(10 + i, 256 * kMiB);
    CHECK(explained(session).verdict().cause() == Verdict::undetermined);
    p.create(17, 256 * kMiB);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::physical_external_fragmentation);
    CHECK(row(e, "with_physical_merged").outcome() == report::Counterfactual::fits);
    CHECK(says(e, "several smaller physical allocations"));
}

TEST_CASE("smaller handles came, but one of the size never had: it may be a limit of one allocation") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.create(0, 2 * kGiB).failed().snapshot(3 * kGiB, 8 * kGiB).snapshot_end();
    for (std::uint64_t i = 0; i < 8; ++i) p.create(10 + i, 256 * kMiB);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(contains(e.verdict().deciding_measurement(), "several smaller cuMemCreate"));
}

TEST_CASE("a size near 2^64 is larger than the device, and never rounded below itself") {
    SessionBuilder session;
    session.process(8 * kGiB)
        .linear(0, UINT64_MAX - 4095)
        .failed()
        .snapshot(7 * kGiB, 8 * kGiB)
        .snapshot_end();
    const auto e = explained(session);
    CHECK(e.request().needed().low_bytes() == UINT64_MAX - 4095);
    CHECK(e.request().needed().high_bytes() == UINT64_MAX);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK_FALSE(row(e, "as_it_was").has_margin_high());
}

TEST_CASE("larger than the device: only a smaller request or a larger device helps, and nobody is blamed") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    p.linear(0x1000000000, 2 * kGiB).linear(0, 9 * kGiB).failed().snapshot(6 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(contains(e.verdict().summary(), "larger than the device"));
    CHECK(e.verdict().contributing_size() == 0);
    REQUIRE(e.actions_size() == 1);
    CHECK(contains(e.actions(0), "Ask for less than the device has"));
}

TEST_CASE(
    "most is held by nobody who was recorded: the first advice is to see who, and contexts are counted") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 32; ++i) {
        analysis::Event context;
        context.kind = wire::Kind::kContextCreated;
        context.object = {0xc000 + i};
        p.event(context).on(0);
    }
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(contains(e.actions(0), "See who else uses the device"));
    CHECK(says(e, "it has 32"));
    CHECK(std::any_of(e.verdict().contributing().begin(), e.verdict().contributing().end(),
                      [](const std::string& each) { return contains(each, "32 contexts"); }));
}

TEST_CASE("physical allocations that are mapped nowhere are named, with the call that gives them back") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 15; ++i) p.create(100 + i, 512 * kMiB);
    p.create(0, kGiB).failed().snapshot(512 * kMiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(says(e, "7.50 GiB in 15 physical allocations that are mapped nowhere"));
    CHECK(std::any_of(e.verdict().contributing().begin(), e.verdict().contributing().end(),
                      [](const std::string& each) { return contains(each, "mapped nowhere"); }));
}

TEST_CASE("handles of memory that was mapped, is no longer, and would have been enough: leaked handles") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    for (std::uint64_t i = 0; i < 15; ++i) {
        const std::uint64_t address = 0x1000000000 + i * kGiB;
        p.create(100 + i, 512 * kMiB).reserve(address, 512 * kMiB).map(address, 512 * kMiB, 100 + i);
    }
    std::uint64_t unmapped = 4;
    SUBCASE("as many as the request needs, with what nobody holds") { unmapped = 1; }
    SUBCASE("more") {}
    for (std::uint64_t i = 0; i < unmapped; ++i) p.unmap(0x1000000000 + i * kGiB, 512 * kMiB);
    p.create(0, kGiB).failed().snapshot(512 * kMiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "leaked_handles");
    CHECK(row(e, "with_leaked_handles_released").margin_low() ==
          static_cast<std::int64_t>(unmapped * 512 * kMiB) - static_cast<std::int64_t>(512 * kMiB));
    CHECK(says(e, "cuMemRelease"));
}

TEST_CASE("others hold more than the device has: no sum passes its capacity, and the contradiction is said") {
    SessionBuilder session;
    auto& other = session.process(8 * kGiB);
    auto& worker = session.process(8 * kGiB);
    other.linear(0x1000000000, 7 * kGiB);
    worker.linear(0, 6 * kGiB).failed().snapshot(5 * kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    const auto& others = row(e, "without_other_processes");
    CHECK(others.available().high_bytes() == 8 * kGiB);
    CHECK(others.outcome() == report::Counterfactual::cannot_tell);
    CHECK(contains(others.reason(), "contradict each other"));
}

TEST_CASE("the same request succeeded after a trim: it is said") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    session.trace().functions[4] = "cuMemPoolTrimTo";
    p.pool_take(0x2000000000, 6 * kGiB, 0xb00).pool_give(0x2000000000).synchronize(7);
    p.linear(0, 4 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_pool(0xb00, 0, 6 * kGiB).snapshot_end();
    analysis::Event trim;
    trim.kind = wire::Kind::kPoolTrimmed;
    trim.object = {0xb00};
    p.event(trim).linear(0x3000000000, 4 * kGiB);
    const auto e = explained(session);
    CHECK(e.verdict().constraint() == "cached_by_pool");
    CHECK(contains(e.verdict().summary(), "The same request succeeded"));
    CHECK(contains(e.verdict().summary(), "later, after cuMemPoolTrimTo."));
}

TEST_CASE("freed memory that another process of the trace still maps would have been enough: the import keeps it") {
    for (const bool closed : {false, true}) {
        CAPTURE(closed);
        SessionBuilder session;
        auto& exporter = session.process(8 * kGiB);
        auto& importer = session.process(8 * kGiB);
        exporter.linear(0x10000000, 4 * kGiB).call(wire::Kind::kIpcExported, 0x10000000, 0, 0, 42);
        importer.call(wire::Kind::kIpcOpened, 0x50000000, 0, kContext, 42);
        exporter.free(0x10000000);
        if (closed) importer.call(wire::Kind::kIpcClosed, 0x50000000);
        exporter.linear(0, 5 * kGiB).failed().snapshot(2 * kGiB, 8 * kGiB).snapshot_end();
        const auto e = explained(session);
        // 2 GiB that nobody holds and the 4 GiB are enough for 5; without the import nothing explains what is taken.
        CHECK(e.verdict().constraint() == (closed ? "" : "IPC_import_keeps_memory"));
        CHECK(e.verdict().cause() == (closed ? Verdict::capacity_exhaustion : Verdict::other_constraint));
    }
}
