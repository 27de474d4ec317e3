// The replay of one process: hand-computed cases, and random VMM histories against a model of pages.
#include "analysis/state.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "analysis/charged.h"
#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

ProcessState replayed(SessionBuilder& session) {
    ProcessState state({{0, 2 * kMiB}});
    for (const Event& event : session.trace().events[0]) state.apply(event);
    return state;
}

Event context_event(wire::Kind kind, std::uint64_t context) {
    Event event;
    event.kind = kind;
    event.object = {context};
    return event;
}

}  // namespace

TEST_CASE("linear blocks: requested, and between requested and whole pages") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 3 * kMiB).linear(0x20000000, 512 * kKiB).linear(0x20080000, 512 * kKiB);
    p.linear(0x30000000, 4 * kMiB).free(0x30000000);
    const ProcessState state = replayed(session);
    CHECK(state.totals(0).linear_requested == 4 * kMiB);
    // 3 MiB take two pages at most; the two small ones lie in one page.
    CHECK(charged_linear(state, 0) == Interval{4 * kMiB, 6 * kMiB});
}

TEST_CASE("failed calls change nothing, and captured ones add no bytes") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kMiB).linear(0x20000000, kMiB).failed();
    p.free(0x10000000).failed(1);
    p.create(5, 2 * kMiB).failed();
    p.pool_take(0x30000000, kMiB, 0xb00);
    session.trace().events[0].edit_last().flags |= wire::kCaptured;
    const ProcessState state = replayed(session);
    CHECK(state.totals(0).linear_requested == kMiB);
    CHECK(state.totals(0).handles == 0);
    CHECK(state.totals(0).pool_live == 0);
    CHECK(state.linear().size() == 1);
}

TEST_CASE("physical memory lives while a handle reference or a mapping is left") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(5, 2 * kMiB).map(0x10000000, 2 * kMiB, 5).release(5);
    CHECK(replayed(session).totals(0).handles == 2 * kMiB);  // released, still mapped
    p.retain(6, 0x10000000).unmap(0x10000000, 2 * kMiB);
    CHECK(replayed(session).totals(0).handles == 2 * kMiB);  // unmapped, retained under another value
    p.release(6);
    CHECK(replayed(session).totals(0).handles == 0);
    CHECK(replayed(session).physical().empty());
    p.create(5, 4 * kMiB);  // the driver uses the value again
    CHECK(replayed(session).totals(0).handles == 4 * kMiB);
    CHECK(replayed(session).contradictions()() == 0);
}

TEST_CASE("names of handles against a plain map, with many that crowd the same places") {
    std::mt19937_64 random(9);
    HandleTable table;
    std::map<std::uint64_t, PhysicalId> expected;
    for (int step = 0; step < 20000; ++step) {
        const std::uint64_t handle = (random() % 400) << (random() % 2 == 0 ? 6 : 58);
        if (HandleTable::Named* named = table.find({handle})) {
            REQUIRE(expected.at(handle) == named->physical);
            table.erase({handle});
            expected.erase(handle);
        } else {
            REQUIRE_FALSE(expected.contains(handle));
            expected[handle] = static_cast<PhysicalId>(step) + 1;
            table.add({handle}, static_cast<PhysicalId>(step) + 1);
        }
        REQUIRE(table.size() == expected.size());
        if (step % 500 != 0) continue;
        for (const auto& [key, physical] : expected) {
            REQUIRE(table.find({key}) != nullptr);
            REQUIRE(table.find({key})->physical == physical);
        }
    }
}

TEST_CASE("a slot is used again, and the id of what lay there finds nothing") {
    Slots<int> slots;
    const PhysicalId first = slots.add(1);
    slots.erase(first);
    const PhysicalId second = slots.add(2);
    CHECK(slots.find(first) == nullptr);
    REQUIRE(slots.find(second) != nullptr);
    CHECK(*slots.find(second) == 2);
    slots.erase(first);
    CHECK(slots.size() == 1);
}

TEST_CASE("one call unmaps several neighbours") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 2 * kMiB).create(2, 2 * kMiB).map(0x10000000, 2 * kMiB, 1).map(0x10200000, 2 * kMiB, 2);
    p.release(1).release(2).unmap(0x10000000, 4 * kMiB);
    CHECK(replayed(session).totals(0).handles == 0);
    CHECK(replayed(session).mappings().empty());
}

TEST_CASE("imported memory belongs to its exporter") {
    SessionBuilder session;
    auto& p = session.process();
    Event import;
    import.kind = wire::Kind::kHandleImported;
    import.bytes = {kGiB};
    import.object = {9};
    p.event(import).map(0x10000000, kGiB, 9);
    const ProcessState state = replayed(session);
    CHECK(state.totals(0).handles == 0);
    CHECK(state.mappings().total() == kGiB);
}

TEST_CASE("a context takes its linear and host memory with it, but neither handles nor pools") {
    SessionBuilder session;
    auto& p = session.process();
    p.event(context_event(wire::Kind::kContextCreated, 0xd0));
    p.linear(0x10000000, kMiB, 0xd0)
        .linear(0x20000000, kMiB, 0xe0)
        .create(1, 2 * kMiB)
        .pool_take(0x30000000, kMiB, 0xb00);
    Event pinned;
    pinned.kind = wire::Kind::kHostAcquired;
    pinned.address = {0x7000};
    pinned.bytes = {kMiB};
    pinned.object = {0xd0};
    p.event(pinned).event(context_event(wire::Kind::kContextDestroyed, 0xd0));
    const ProcessState state = replayed(session);
    CHECK(state.totals(0).linear_requested == kMiB);
    CHECK(state.host_pinned_bytes() == 0);
    CHECK(state.totals(0).handles == 2 * kMiB);
    CHECK(state.totals(0).pool_live == kMiB);
}

TEST_CASE("the primary context goes with its last release, or at once with a reset") {
    for (const bool reset : {false, true}) {
        SessionBuilder session;
        auto& p = session.process();
        p.event(context_event(wire::Kind::kPrimaryRetained, 0xd0))
            .event(context_event(wire::Kind::kPrimaryRetained, 0xd0));
        p.linear(0x10000000, kMiB, 0xd0);
        p.event(context_event(reset ? wire::Kind::kPrimaryReset : wire::Kind::kPrimaryReleased, 0));
        CHECK(replayed(session).totals(0).linear_requested == (reset ? 0 : kMiB));
        p.event(context_event(wire::Kind::kPrimaryReleased, 0));
        CHECK(replayed(session).totals(0).linear_requested == 0);
    }
}

TEST_CASE("stream-ordered frees wait for their own stream") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x10000000, kMiB, 0xb00, 7)
        .pool_take(0x20000000, kMiB, 0xb00, 8)
        .pool_give(0x10000000, 7)
        .pool_give(0x20000000, 8);
    CHECK(replayed(session).pending_frees().size() == 2);
    CHECK(replayed(session).totals(0).pool_live == 0);
    p.synchronize(7);
    CHECK(replayed(session).pending_frees().size() == 1);
    p.pool_take(0x20000000, 512 * kKiB, 0xb00, 8);  // the pool gave it out again on the same stream
    CHECK(replayed(session).pending_frees().empty());
    p.pool_give(0x20000000, 8).synchronize(0);
    CHECK(replayed(session).pending_frees().empty());
}

TEST_CASE("a NULL stream is what the call meant by it, and each thread has one of its own") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x10000000, kMiB, 0xb00, 0).pool_give(0x10000000, 0).synchronize(2);
    CHECK(replayed(session).pending_frees().size() == 1);
    p.synchronize(1);
    CHECK(replayed(session).pending_frees().empty());
    p.pool_take(0x20000000, kMiB, 0xb00, 0)
        .pool_give(0x20000000, 0)
        .flagged(wire::kPerThreadStream)
        .synchronize(1);
    p.thread(2).synchronize(2).thread(1);
    CHECK(replayed(session).pending_frees().size() == 1);
    p.synchronize(2);
    CHECK(replayed(session).pending_frees().empty());
}

TEST_CASE("blocks taken before their pool was known move to it") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x10000000, kMiB, 0);
    p.event(context_event(wire::Kind::kPoolBound, 0xb00)).pool_take(0x20000000, kMiB, 0);
    const ProcessState state = replayed(session);
    REQUIRE(state.pools().size() == 1);
    CHECK(state.pools().at({0xb00}).live_bytes == 2 * kMiB);
    CHECK(state.pools().at({0xb00}).live_count == 2);
}

TEST_CASE("releases of what was never acquired are counted, and change nothing") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kMiB)
        .free(0x5000)
        .release(77)
        .unmap(0x90000000, kMiB)
        .unreserve(0x80000000, kMiB)
        .free(0);
    const ProcessState state = replayed(session);
    CHECK(state.contradictions().unknown_releases == 4);  // freeing the null pointer is no release
    CHECK(state.totals(0).linear_requested == kMiB);
}

TEST_CASE("an acquisition where something still lies shows that a release is missing") {
    SessionBuilder session;
    session.process().linear(0x10000000, 4 * kMiB).linear(0x10200000, kMiB);
    const ProcessState state = replayed(session);
    CHECK(state.contradictions().overlapping_acquisitions == 1);
    CHECK(state.totals(0).linear_requested == kMiB);
}

TEST_CASE("written payload is counted once, by physical offset, in whole pages for the rest") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 4 * kMiB).map(0x10000000, 4 * kMiB, 1).touch(0x10000000, 100).touch(0x10000032, 100);
    p.unmap(0x10000000, 4 * kMiB)
        .map(0x50000000, 4 * kMiB, 1)
        .touch(0x50000000, 200);  // the same bytes elsewhere
    const Payload payload = payload_of(session.trace(), {0}, replayed(session), 0);
    CHECK(payload.written == 200);
    CHECK(payload.partly_unwritten == 2 * kMiB - 200);
    CHECK(payload.never_written == 2 * kMiB);
    CHECK(payload.decisive);
}

TEST_CASE("losses widen what is charged and never narrow it") {
    Losses none;
    none.counted = true;
    CHECK(weakened({5, 9}, none) == Interval{5, 9});
    Losses releases = none;
    releases.releases = true;
    CHECK(weakened({5, 9}, releases) == Interval{0, 9});
    Losses acquisitions = none;
    acquisitions.acquisitions = true;
    acquisitions.records = 1;
    acquisitions.acquired_bytes = 100;
    CHECK(weakened({5, 9}, acquisitions) == Interval{5, 109 + 2 * kMiB});
    CHECK(weakened({5, 9}, Losses{}) == Interval{0, std::nullopt});  // nothing is known about losses
}

TEST_CASE("random VMM histories against a model that keeps one owner for every page") {
    constexpr std::uint64_t kPages = 32;
    constexpr std::uint64_t kBase = 0x40000000;
    constexpr std::uint64_t kPage = 2 * kMiB;
    std::mt19937 random(3);
    for (int round = 0; round < 100; ++round) {
        SessionBuilder session;
        auto& p = session.process();
        ProcessState state({{0, kPage}});
        std::size_t applied = 0;
        struct Memory {
            std::uint64_t pages;
            int references;
        };
        std::map<std::uint64_t, Memory> memory;          // by our number
        std::map<std::uint64_t, std::uint64_t> names;    // handle -> number
        std::array<std::uint64_t, kPages> page_owner{};  // 0: free
        std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>
            placed;  // first page -> (pages, number)
        std::uint64_t next = 1;
        for (int step = 0; step < 300; ++step) {
            const std::uint64_t dice = random() % 4;
            const std::uint64_t handle = 1 + random() % 6;
            if (dice == 0 && !names.contains(handle)) {
                const std::uint64_t pages = 1 + random() % 4;
                p.create(handle, pages * kPage);
                names[handle] = next;
                memory[next++] = {pages, 1};
            } else if (dice == 1 && names.contains(handle)) {
                p.release(handle);
                --memory[names[handle]].references;
                names.erase(handle);
            } else if (dice == 2 && names.contains(handle)) {
                const Memory& what = memory[names[handle]];
                const std::uint64_t first = random() % (kPages - what.pages);
                bool free = true;
                for (std::uint64_t i = 0; i < what.pages; ++i) free = free && page_owner[first + i] == 0;
                if (!free) continue;
                p.map(kBase + first * kPage, what.pages * kPage, handle);
                for (std::uint64_t i = 0; i < what.pages; ++i) page_owner[first + i] = names[handle];
                placed[first] = {what.pages, names[handle]};
            } else if (dice == 3 && !placed.empty()) {
                auto at = placed.begin();
                std::advance(at, static_cast<long>(random() % placed.size()));
                p.unmap(kBase + at->first * kPage, at->second.first * kPage);
                for (std::uint64_t i = 0; i < at->second.first; ++i) page_owner[at->first + i] = 0;
                placed.erase(at);
            }
            for (; applied < session.trace().events[0].size(); ++applied)
                state.apply(session.trace().events[0][applied]);
            std::set<std::uint64_t> mapped(page_owner.begin(), page_owner.end());
            std::uint64_t held = 0;
            for (const auto& [number, what] : memory) {
                if (what.references > 0 || mapped.contains(number)) held += what.pages * kPage;
            }
            std::uint64_t mapped_pages = 0;
            for (const std::uint64_t owner : page_owner) mapped_pages += owner != 0 ? 1 : 0;
            REQUIRE(state.totals(0).handles == held);
            REQUIRE(state.totals(0).mapped == mapped_pages * kPage);
            REQUIRE(state.contradictions()() == 0);
        }
    }
}
