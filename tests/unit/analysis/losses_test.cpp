// Lost records by kind: only what such a record could have changed becomes uncertain.
#include "analysis/losses.h"

#include <doctest/doctest.h>

#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

void lose(trace::Loss& loss, Kind kind, std::uint32_t count) {
    (*loss.mutable_records_by_kind())[static_cast<std::uint32_t>(kind)] += count;
}

// A full device: everything in one handle and one linear block.
ProcessBuilder& full(SessionBuilder& session) {
    auto& p = session.process();
    return p.create(1, 6 * kGiB)
        .linear(0x10000000, kGiB)
        .create(2, 2 * kGiB)
        .failed()
        .snapshot(kGiB, 8 * kGiB)
        .snapshot_end();
}

const report::Quantity& part(const report::Explanation& e, const std::string& id) {
    for (const auto& one : e.balance().parts()) {
        if (one.id() == id) return one.bytes();
    }
    FAIL("no part " << id);
    return e.balance().taken();
}

}  // namespace

TEST_CASE("lost marks weaken no sum of memory, and are said") {
    SessionBuilder session;
    auto& p = full(session);
    p.loss().set_others(7);
    lose(p.loss(), Kind::kMark, 5);
    lose(p.loss(), Kind::kTouched, 2);
    const auto e = explained(session);
    CHECK(part(e, "handles").evidence() == report::Quantity::derived);
    CHECK(part(e, "handles").low_bytes() == 6 * kGiB);
    CHECK(e.balance().unattributed().low_bytes() == e.balance().unattributed().high_bytes());
    CHECK_FALSE(e.health().complete());
    bool said = false;
    for (const auto& warning : e.health().warnings())
        said = said || warning.find("5 of mark") != std::string::npos;
    CHECK(said);
}

TEST_CASE("without the kinds the same loss weakens everything") {
    SessionBuilder session;
    auto& p = full(session);
    p.loss().set_others(7);
    const auto e = explained(session);
    CHECK(part(e, "handles").low_bytes() == 0);
    CHECK_FALSE(part(e, "handles").has_high_bytes());
}

TEST_CASE("kinds that do not sum up with the losses are not believed") {
    SessionBuilder session;
    auto& p = full(session);
    p.loss().set_others(7);
    lose(p.loss(), Kind::kMark, 6);
    CHECK(part(explained(session), "handles").low_bytes() == 0);
}

TEST_CASE("lost linear acquisitions widen linear memory by what they acquired, and nothing else") {
    SessionBuilder session;
    auto& p = full(session);
    p.loss().set_acquisitions(3);
    p.loss().set_acquired_bytes(10 * kMiB);
    lose(p.loss(), Kind::kLinearAcquired, 3);
    const auto e = explained(session);
    CHECK(part(e, "linear").low_bytes() == kGiB);
    CHECK(part(e, "linear").high_bytes() == kGiB + 10 * kMiB + 3 * 2 * kMiB);  // each in pages of its own
    CHECK(part(e, "handles").low_bytes() == 6 * kGiB);
    CHECK(part(e, "handles").high_bytes() == 6 * kGiB);
}

TEST_CASE("a lost release leaves the lower end open, of its own layer") {
    SessionBuilder session;
    auto& p = full(session);
    p.loss().set_releases(1);
    lose(p.loss(), Kind::kHandleReleased, 1);
    const auto e = explained(session);
    CHECK(part(e, "handles").low_bytes() == 0);
    CHECK(part(e, "handles").high_bytes() == 6 * kGiB);
    CHECK(part(e, "linear").low_bytes() == kGiB);
}

TEST_CASE("what a lost record keeps alive leaves the upper end open") {
    SessionBuilder session;
    auto& p = full(session);
    p.loss().set_acquisitions(1);  // the shim counts no bytes for it
    lose(p.loss(), Kind::kHandleRetained, 1);
    const auto e = explained(session);
    CHECK(part(e, "handles").low_bytes() == 6 * kGiB);
    CHECK_FALSE(part(e, "handles").has_high_bytes());
}

TEST_CASE("records that nobody could count by kind weaken everything") {
    SessionBuilder session;
    auto& p = full(session);
    p.loss().set_others(1);
    lose(p.loss(), Kind::kMark, 1);
    p.loss().set_rings_damaged(1);
    CHECK(part(explained(session), "handles").low_bytes() == 0);
}

TEST_CASE("every kind has words for what its loss makes uncertain") {
    Losses losses;
    losses.counted = true;
    for (std::uint32_t kind = 1; kind <= static_cast<std::uint32_t>(wire::kLastKind); ++kind)
        losses.by_kind[static_cast<Kind>(kind)] = kind;
    const auto words = lost_in_words(losses);
    REQUIRE(words.size() == static_cast<std::size_t>(wire::kLastKind));
    for (const std::string& one : words) {
        CHECK(one.find(": ") != std::string::npos);
        CHECK(one.find("unknown") == std::string::npos);
    }
}
