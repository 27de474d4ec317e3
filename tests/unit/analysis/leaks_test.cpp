// Leak classes and hazards: one small history for each, with counts and bytes worked out by hand, and what
// weakens them. Nothing may be claimed for certain where only the absence of records supports it.
#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/report.h"
#include "analysis/state_shown.h"
#include "tests/unit/analysis/builder.h"
#include "tests/unit/analysis/texts.h"
#include "tools/words_report.h"
#include "tools/words_state.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using report::Hazard;
using report::LeakClass;
using wire::Kind;

namespace {

constexpr std::uint64_t kDevice0 = wire::pack_location(1, 0, 0);
constexpr std::uint64_t kDevice1 = wire::pack_location(1, 1, 0);

// The state of each process at the end, and the report, which has to say the same there.
struct Ends {
    std::vector<report::State> states;
    report::Report report;

    const LeakClass* leak(LeakClass::Kind kind, const std::string& what = "",
                          std::uint32_t process = 0) const {
        for (const LeakClass& one : states.at(process).leaks()) {
            if (one.kind() == kind && (what.empty() || one.what() == what)) return &one;
        }
        return nullptr;
    }
    const Hazard* hazard(Hazard::Kind kind, std::uint32_t process = 0) const {
        for (const Hazard& one : states.at(process).hazards()) {
            if (one.kind() == kind) return &one;
        }
        return nullptr;
    }
};

std::vector<report::State> states_at(SessionBuilder& session, const std::string& at) {
    std::vector<report::State> out;
    const std::string why =
        answer_states(session.trace(), {at, *where_of(at), {}}, [&](const report::State& state) {
            check_words(state);
            CHECK_FALSE(tools::render_state(state, {}).empty());
            out.push_back(state);
            return true;
        });
    REQUIRE(why.empty());
    return out;
}

Ends ends(SessionBuilder& session) {
    session.trace().session.mutable_recording()->set_touches(true);
    Ends out{states_at(session, "end"), make_report(session.trace())};
    check_words(out.report);
    CHECK_FALSE(tools::render_report(out.report, {}).empty());
    int leaks = 0, hazards = 0;
    for (const report::State& state : out.states) {
        leaks += state.leaks_size();
        hazards += state.hazards_size();
    }
    CHECK(out.report.leaks_size() == leaks);
    CHECK(out.report.hazards_size() == hazards);
    return out;
}

bool exact(const report::Quantity& bytes, std::uint64_t value) {
    return bytes.low_bytes() == value && bytes.high_bytes() == value &&
           bytes.evidence() == report::Quantity::derived;
}

// At most so many, and perhaps none.
bool at_most(const report::Quantity& bytes, std::uint64_t value) {
    return bytes.has_low_bytes() && bytes.low_bytes() == 0 && bytes.high_bytes() == value &&
           bytes.evidence() == report::Quantity::bounded;
}

bool weakened_by(const LeakClass& leak, const std::string& part) {
    return std::any_of(leak.weakened_by().begin(), leak.weakened_by().end(),
                       [&](const std::string& why) { return why.find(part) != std::string::npos; });
}

bool not_shown(const Hazard& hazard, const std::string& part) {
    return std::any_of(hazard.not_shown().begin(), hazard.not_shown().end(),
                       [&](const std::string& what) { return what.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("a handle without a mapping, a mapping without access, a reservation without a mapping") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 4 * kMiB).create(2, 2 * kMiB).create(3, 8 * kMiB);
    p.reserve(0x40000000, 16 * kMiB).reserve(0x50000000, 32 * kMiB);
    p.map(0x40000000, 2 * kMiB, 2).map(0x40400000, 8 * kMiB, 3);
    // Half of the second mapping: 4 MiB of it nobody may use, and all of the first.
    p.call(Kind::kAccessSet, 0x40400000, 4 * kMiB, kDevice0, 3);
    p.call(Kind::kAccessSet, 0x40000000, 2 * kMiB, kDevice0, 0);  // PROT_NONE grants nothing
    const Ends end = ends(session);
    const LeakClass* handle = end.leak(LeakClass::handle_without_mapping);
    REQUIRE(handle != nullptr);
    CHECK(handle->count() == 1);
    CHECK(exact(handle->bytes(), 4 * kMiB));
    CHECK(handle->device() == "GPU-41414141-4141-4141-4141-414141414141");
    REQUIRE(handle->largest_size() == 1);
    CHECK(handle->largest(0).handles(0) == 1);
    const LeakClass* closed = end.leak(LeakClass::mapping_without_access);
    REQUIRE(closed != nullptr);
    CHECK(closed->count() == 2);
    CHECK(exact(closed->bytes(), 6 * kMiB));
    CHECK(closed->largest(0).address() == 0x40400000);
    const LeakClass* reserved = end.leak(LeakClass::reservation_without_mapping);
    REQUIRE(reserved != nullptr);
    CHECK(reserved->count() == 1);
    CHECK(exact(reserved->bytes(), 32 * kMiB));
}

TEST_CASE("a released handle that is still mapped is named, and said to be usual") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 4 * kMiB).reserve(0x40000000, 4 * kMiB).map(0x40000000, 4 * kMiB, 1);
    p.call(Kind::kAccessSet, 0x40000000, 4 * kMiB, kDevice0, 3).release(1);
    const Ends end = ends(session);
    const LeakClass* leak = end.leak(LeakClass::released_handle_still_mapped);
    REQUIRE(leak != nullptr);
    CHECK(exact(leak->bytes(), 4 * kMiB));
    CHECK(weakened_by(*leak, "on purpose"));
    const Hazard* hazard = end.hazard(Hazard::reachable_after_release);
    REQUIRE(hazard != nullptr);
    CHECK(hazard->by_records());
    CHECK(exact(hazard->bytes(), 4 * kMiB));
    p.unmap(0x40000000, 4 * kMiB);
    CHECK(ends(session).leak(LeakClass::released_handle_still_mapped) == nullptr);
}

TEST_CASE("a stream-ordered free that is pending is at most its bytes: a stream goes on without a call") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x10000000, 3 * kMiB, 0xb00).stack(9).pool_give(0x10000000);
    const Ends end = ends(session);
    const LeakClass* leak = end.leak(LeakClass::freed_pending_on_stream);
    REQUIRE(leak != nullptr);
    CHECK(leak->count() == 1);
    CHECK(at_most(leak->bytes(), 3 * kMiB));
    REQUIRE(leak->sites_size() == 1);
    CHECK(at_most(leak->sites(0).bytes(), 3 * kMiB));
    p.synchronize(7);
    CHECK(ends(session).leak(LeakClass::freed_pending_on_stream) == nullptr);
}

TEST_CASE("what was never given back, by kind and by the place that took it") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 5 * kMiB).stack(1).linear(0x20000000, 2 * kMiB).stack(2).linear(0x30000000, kMiB);
    p.linear(0x40000000, 4 * kMiB).stack(2).pool_take(0x50000000, 7 * kMiB, 0xb00);
    p.call(Kind::kHostAcquired, 0x7000, kMiB, kContext);
    p.linear(0x60000000, kMiB).free(0x60000000);
    const Ends end = ends(session);
    const LeakClass* linear = end.leak(LeakClass::never_freed, "linear");
    REQUIRE(linear != nullptr);
    CHECK(linear->count() == 4);
    CHECK(exact(linear->bytes(), 12 * kMiB));
    CHECK(linear->without_stack() == 1);
    REQUIRE(linear->sites_size() == 2);
    CHECK(exact(linear->sites(0).bytes(), 6 * kMiB));  // twice from place 2, 2 + 4
    CHECK(linear->sites(0).count() == 2);
    CHECK(exact(linear->sites(1).bytes(), 5 * kMiB));
    REQUIRE(end.leak(LeakClass::never_freed, "stream-ordered") != nullptr);
    CHECK(exact(end.leak(LeakClass::never_freed, "stream-ordered")->bytes(), 7 * kMiB));
    REQUIRE(end.leak(LeakClass::never_freed, "page-locked host memory") != nullptr);
    // Before the end it is live, and no leak.
    for (const report::State& state : states_at(session, "2us"))
        for (const LeakClass& one : state.leaks()) CHECK(one.kind() != LeakClass::never_freed);
}

TEST_CASE("what may have been released without a record is bounded, and says why") {
    SUBCASE("releases were lost") {
        SessionBuilder session;
        auto& p = session.process();
        p.linear(0x10000000, kMiB).create(1, 2 * kMiB);
        p.loss().set_releases(2);
        (*p.loss().mutable_records_by_kind())[static_cast<std::uint32_t>(Kind::kHandleReleased)] = 2;
        const Ends end = ends(session);
        // Lost were releases of handles only: linear memory stays what it is.
        CHECK(exact(end.leak(LeakClass::never_freed, "linear")->bytes(), kMiB));
        const LeakClass* handle = end.leak(LeakClass::handle_without_mapping);
        CHECK(at_most(handle->bytes(), 2 * kMiB));
        CHECK(weakened_by(*handle, "may have been given back"));
    }
    SUBCASE("nobody knows what was lost") {
        SessionBuilder session;
        auto& p = session.process();
        p.linear(0x10000000, kMiB);
        p.loss().clear_releases();
        const Ends end = ends(session);
        const LeakClass* leak = end.leak(LeakClass::never_freed, "linear");
        CHECK(leak->bytes().low_bytes() == 0);
        CHECK_FALSE(leak->bytes().has_high_bytes());
    }
    SUBCASE("the recording is cut off") {
        SessionBuilder session;
        session.process().linear(0x10000000, kMiB);
        session.trace().file.cut_off = true;
        const Ends end = ends(session);
        const LeakClass* leak = end.leak(LeakClass::never_freed, "linear");
        CHECK(at_most(leak->bytes(), kMiB));
        CHECK(weakened_by(*leak, "cut off"));
    }
    SUBCASE("the process ran on") {
        SessionBuilder session;
        auto& p = session.process();
        p.linear(0x10000000, kMiB);
        p.process().set_ended_how("still running");
        const Ends end = ends(session);
        const LeakClass* leak = end.leak(LeakClass::never_freed, "linear");
        CHECK(at_most(leak->bytes(), kMiB));
    }
    SUBCASE("something lies where something lay") {
        SessionBuilder session;
        session.process().linear(0x10000000, kMiB).linear(0x10000000, 2 * kMiB);
        const Ends end = ends(session);
        const LeakClass* leak = end.leak(LeakClass::never_freed, "linear");
        CHECK(at_most(leak->bytes(), 2 * kMiB));
        CHECK(weakened_by(*leak, "still taken"));
    }
}

TEST_CASE("memory that ended with its context, beside what the program released") {
    SessionBuilder session;
    auto& p = session.process();
    p.call(Kind::kContextCreated, 0, 0, 0xd0);
    p.linear(0x10000000, 4 * kMiB, 0xd0)
        .stack(3)
        .linear(0x20000000, kMiB, 0xd0)
        .linear(0x30000000, kMiB, 0xd0);
    p.free(0x30000000).call(Kind::kContextDestroyed, 0, 0, 0xd0);
    const Ends end = ends(session);
    const LeakClass* leak = end.leak(LeakClass::died_with_context);
    REQUIRE(leak != nullptr);
    CHECK(leak->count() == 2);
    CHECK(exact(leak->bytes(), 5 * kMiB));
    REQUIRE(leak->sites_size() == 1);
    CHECK(exact(leak->sites(0).bytes(), 4 * kMiB));
    CHECK(end.leak(LeakClass::never_freed) == nullptr);
}

TEST_CASE("an import outlives its exporter where the identities say so and the clock does") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    a.linear(0x10000000, 6 * kMiB).call(Kind::kIpcExported, 0x10000000, 0, 0, 42);
    b.call(Kind::kIpcOpened, 0x70000000, 0, kContext, 42);
    const report::State before = states_at(session, "3.1us").at(0);
    REQUIRE(before.linear_size() == 1);
    REQUIRE(before.linear(0).importers_size() == 1);
    CHECK(before.linear(0).importers(0).process() == 1);
    CHECK(before.linear(0).importers(0).certain());
    CHECK(states_at(session, "end").at(1).foreign(0).exporter() == 0);
    CHECK(ends(session).leak(LeakClass::import_outlives_exporter, "", 1) == nullptr);

    a.free(0x10000000);
    b.call(Kind::kMark);  // so that its last event lies behind it
    Ends end = ends(session);
    const LeakClass* leak = end.leak(LeakClass::import_outlives_exporter, "", 1);
    REQUIRE(leak != nullptr);
    CHECK(leak->count() == 1);
    CHECK(at_most(leak->bytes(), 6 * kMiB));  // undefined by the documentation: perhaps it is gone
    CHECK(leak->largest(0).exporter() == 0);
    const Hazard* hazard = end.hazard(Hazard::reachable_after_owner, 1);
    REQUIRE(hazard != nullptr);
    CHECK(hazard->examples(0).other_process() == 0);
    CHECK(hazard->examples(0).before() == "it was freed");
    CHECK(end.hazard(Hazard::recycled_unwritten, 1) == nullptr);

    // The exporter gets the addresses again: now the importer may see what is written there.
    a.linear(0x10200000, kMiB);
    b.call(Kind::kMark);
    end = ends(session);
    const Hazard* again = end.hazard(Hazard::recycled_unwritten, 1);
    REQUIRE(again != nullptr);
    CHECK_FALSE(again->by_records());
    CHECK(not_shown(*again, "same physical memory"));

    b.call(Kind::kIpcClosed, 0x70000000);
    end = ends(session);
    CHECK(end.leak(LeakClass::import_outlives_exporter, "", 1) == nullptr);
    CHECK(end.hazard(Hazard::reachable_after_owner, 1) == nullptr);
}

TEST_CASE("of imported physical handles no more is said than that their owners have given everything up") {
    SessionBuilder session;
    auto& a = session.process();
    auto& b = session.process();
    a.create(1, 4 * kMiB).call(Kind::kHandleExported, 0, 0, 1, 1);
    b.call(Kind::kHandleImported, 0, 0, 9, 1).reserve(0x40000000, 4 * kMiB).map(0x40000000, 4 * kMiB, 9);
    b.call(Kind::kAccessSet, 0x40000000, 4 * kMiB, kDevice0, 3);
    const report::State state = states_at(session, "5us").at(0);
    REQUIRE(state.physical_size() == 1);
    REQUIRE(state.physical(0).importers_size() == 1);
    CHECK_FALSE(state.physical(0).importers(0).certain());
    CHECK(ends(session).leak(LeakClass::import_outlives_exporter, "", 1) == nullptr);
    a.release(1);
    b.call(Kind::kMark);
    const Ends end = ends(session);
    const LeakClass* leak = end.leak(LeakClass::import_outlives_exporter, "", 1);
    REQUIRE(leak != nullptr);
    CHECK_FALSE(leak->bytes().has_low_bytes());
    CHECK(weakened_by(*leak, "no record"));
    const Hazard* hazard = end.hazard(Hazard::reachable_after_owner, 1);
    REQUIRE(hazard != nullptr);
    CHECK_FALSE(hazard->by_records());
}

TEST_CASE("two addresses of the same bytes are an alias; two parts of one allocation are none") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 4 * kMiB).reserve(0x40000000, 16 * kMiB);
    p.call(Kind::kMapped, 0x40000000, 2 * kMiB, 1, 0).call(Kind::kMapped, 0x40200000, 2 * kMiB, 1, 2 * kMiB);
    CHECK(ends(session).hazard(Hazard::alias) == nullptr);
    p.call(Kind::kMapped, 0x40400000, 3 * kMiB, 1, kMiB);  // overlaps 1 MiB of the first, 2 of the second
    const Ends end = ends(session);
    const Hazard* alias = end.hazard(Hazard::alias);
    REQUIRE(alias != nullptr);
    CHECK(alias->by_records());
    CHECK(alias->count() == 1);
    CHECK(exact(alias->bytes(), 3 * kMiB));
    CHECK(not_shown(*alias, "on purpose"));
    p.unmap(0x40400000, 3 * kMiB);
    CHECK(ends(session).hazard(Hazard::alias) == nullptr);
}

TEST_CASE("physical memory that comes to another device unwritten may show its contents of before") {
    SessionBuilder session;
    auto& p = session.process();
    p.another_device(kGiB, 'B');
    p.create(1, 4 * kMiB).reserve(0x40000000, 16 * kMiB);
    p.map(0x40000000, 4 * kMiB, 1).call(Kind::kAccessSet, 0x40000000, 4 * kMiB, kDevice0, 3);
    p.touch(0x40000000, kMiB).unmap(0x40000000, 4 * kMiB);
    p.map(0x40800000, 4 * kMiB, 1).call(Kind::kAccessSet, 0x40800000, 4 * kMiB, kDevice1, 3);
    {
        const Ends end = ends(session);
        const Hazard* hazard = end.hazard(Hazard::recycled_unwritten);
        REQUIRE(hazard != nullptr);
        CHECK_FALSE(hazard->by_records());
        CHECK(at_most(hazard->bytes(), 4 * kMiB));
        CHECK(hazard->examples(0).before() == "device 0");
        CHECK(hazard->examples(0).after() == "device 1");
        CHECK(not_shown(*hazard, "anybody read it"));
    }
    p.touch(0x40800000, 3 * kMiB);
    CHECK(at_most(ends(session).hazard(Hazard::recycled_unwritten)->bytes(), kMiB));
    p.touch(0x40b00000, kMiB);
    CHECK(ends(session).hazard(Hazard::recycled_unwritten) == nullptr);
}

TEST_CASE("access of two devices at once, or the same device again, passes nothing on") {
    SessionBuilder session;
    auto& p = session.process();
    p.another_device(kGiB, 'B');
    p.create(1, 4 * kMiB).reserve(0x40000000, 16 * kMiB);
    p.map(0x40000000, 4 * kMiB, 1).call(Kind::kAccessSet, 0x40000000, 4 * kMiB, kDevice0, 3);
    p.call(Kind::kAccessSet, 0x40000000, 4 * kMiB, kDevice1, 3).unmap(0x40000000, 4 * kMiB);
    p.map(0x40000000, 4 * kMiB, 1).call(Kind::kAccessSet, 0x40000000, 4 * kMiB, kDevice1, 3);
    CHECK(ends(session).hazard(Hazard::recycled_unwritten) == nullptr);
}

TEST_CASE("addresses that one context left to another are possible exposures until they are written") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 4 * kMiB, 0xc1).linear(0x20000000, kMiB, 0xc2).free(0x10000000);
    p.linear(0x10100000, 2 * kMiB, 0xc2);
    {
        const Ends end = ends(session);
        const Hazard* hazard = end.hazard(Hazard::recycled_unwritten);
        REQUIRE(hazard != nullptr);
        CHECK(at_most(hazard->bytes(), 2 * kMiB));
        CHECK(hazard->examples(0).before() == "context 0xc1");
        CHECK(not_shown(*hazard, "driver cleared it"));
    }
    SUBCASE("written since") {
        p.touch(0x10100000, 2 * kMiB);
        CHECK(ends(session).hazard(Hazard::recycled_unwritten) == nullptr);
    }
    SUBCASE("the same context's own memory again is none") {
        p.touch(0x10100000, 2 * kMiB).free(0x10100000).linear(0x10100000, 2 * kMiB, 0xc2);
        CHECK(ends(session).hazard(Hazard::recycled_unwritten) == nullptr);
    }
    SUBCASE("writes are not recorded: then their absence says nothing") {
        session.trace().session.mutable_recording()->set_touches(false);
        for (const report::State& state : states_at(session, "end")) CHECK(state.hazards_size() == 0);
    }
}

TEST_CASE("exported memory that a framework's allocator cut into blocks is open as a whole") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 20 * kMiB);
    p.call(Kind::kBlockAcquired, 0x10000000, 4 * kMiB, 4 * kMiB, 20 * kMiB);
    p.call(Kind::kIpcExported, 0x10000000, 0, 0, 42);
    CHECK(ends(session).hazard(Hazard::exported_whole) == nullptr);
    p.call(Kind::kBlockAcquired, 0x10400000, 2 * kMiB, 6 * kMiB, 20 * kMiB);
    const Ends end = ends(session);
    const Hazard* hazard = end.hazard(Hazard::exported_whole);
    REQUIRE(hazard != nullptr);
    CHECK(hazard->by_records());
    CHECK(exact(hazard->bytes(), 20 * kMiB));
}
