// One domain at a moment: its free extents by kind, with sums worked out by hand, and what is said to be
// unknown.
#include "analysis/domain_shown.h"

#include <doctest/doctest.h>

#include "analysis/state_shown.h"
#include "tests/unit/analysis/builder.h"
#include "tests/unit/analysis/texts.h"
#include "tools/words_state.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

std::vector<report::DomainExtents> domains(SessionBuilder& session, const std::string& name,
                                           std::string* why = nullptr) {
    StateQuestion question{"end", *where_of("end"), {}};
    question.domain = domain_in(name);
    REQUIRE_MESSAGE(question.domain, name);
    std::vector<report::DomainExtents> out;
    const std::string none = answer_states(session.trace(), question, [&](const report::State& state) {
        REQUIRE(state.has_domain());
        CHECK(state.physical().empty());
        CHECK(state.leaks().empty());
        check_words(state);
        CHECK_FALSE(tools::render_state(state, {}).empty());
        out.push_back(state.domain());
        return true;
    });
    if (why != nullptr) *why = none;
    return out;
}

const report::FreeExtents& free_of(const report::DomainExtents& domain, const std::string& part) {
    for (const report::FreeExtents& free : domain.eligible_free()) {
        if (free.what().find(part) != std::string::npos) return free;
    }
    FAIL("no free extents: " << part);
    return domain.eligible_free(0);
}

bool exact(const report::Quantity& bytes, std::uint64_t value) {
    return bytes.low_bytes() == value && bytes.high_bytes() == value && bytes.has_high_bytes();
}

}  // namespace

TEST_CASE("what is a domain, and what is none") {
    CHECK(domain_in("virtual")->kind == DomainKind::kVirtual);
    CHECK(domain_in("pool:0x7f00")->pool.value == 0x7f00);
    for (const char* none : {"", "pool", "pool:", "pool:0x", "pool:7f00", "pool:0xg", "Virtual", "segments"})
        CHECK_MESSAGE(!domain_in(none), none);
}

TEST_CASE("address space: gaps inside reservations and what was reserved before are two kinds") {
    SessionBuilder session;
    auto& p = session.process();
    p.reserve(0x40000000, 8 * kMiB).create(1, 2 * kMiB).map(0x40200000, 2 * kMiB, 1);  // gaps of 2 and 4 MiB
    p.reserve(0x50000000, 16 * kMiB).unreserve(0x50000000, 16 * kMiB);
    p.linear(0x50400000, 2 * kMiB);  // takes some of what was reserved: 4 and 10 MiB are left
    const report::DomainExtents domain = domains(session, "virtual").at(0);
    const report::FreeExtents& inside = free_of(domain, "mapped to nothing");
    CHECK(inside.count() == 2);
    CHECK(exact(inside.sum(), 6 * kMiB));
    CHECK(exact(inside.largest(), 4 * kMiB));
    CHECK(inside.extents(0).address() == 0x40000000);
    const report::FreeExtents& outside = free_of(domain, "reserved before");
    CHECK(outside.count() == 2);
    CHECK(exact(outside.sum(), 14 * kMiB));
    CHECK(exact(outside.largest(), 10 * kMiB));
    // Each has its own scope: they are never added up.
    CHECK(inside.sum().scope().domain() != outside.sum().scope().domain());
    CHECK(domain.held_size() == 2);
    CHECK(domain.not_known_size() == 1);
}

TEST_CASE("with lost records any gap may be taken, and others may be there") {
    SessionBuilder session;
    auto& p = session.process();
    p.reserve(0x40000000, 8 * kMiB);
    p.loss().clear_acquisitions();
    const report::Quantity sum = free_of(domains(session, "virtual").at(0), "mapped to nothing").sum();
    CHECK(sum.low_bytes() == 0);
    CHECK_FALSE(sum.has_high_bytes());
}

TEST_CASE("a pool: what it gave out before, what waits, and what the driver said, each by itself") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x10000000, 4 * kMiB, 0xb00).pool_take(0x10400000, 2 * kMiB, 0xb00);
    p.pool_take(0x90000000, kMiB, 0xb01).pool_take(0x10600000, kMiB, 0xb00);
    p.pool_give(0x10000000).synchronize(7).pool_give(0x10400000);
    p.sample_pool(0xb00, kMiB, 32 * kMiB).sample_end();
    const report::DomainExtents domain = domains(session, "pool:0xb00").at(0);
    const report::FreeExtents& before = free_of(domain, "given out before");
    CHECK(before.count() == 1);
    CHECK(before.extents(0).address() == 0x10000000);
    CHECK(before.sum().low_bytes() == 0);  // the pool may have given it back to the device
    CHECK(before.sum().high_bytes() == 4 * kMiB);
    const report::FreeExtents& pending = free_of(domain, "stream's word");
    CHECK(pending.sum().high_bytes() == 2 * kMiB);
    CHECK(exact(free_of(domain, "as the driver said").sum(), 31 * kMiB));
    REQUIRE(domain.held_size() == 1);
    CHECK(domain.held(0).bytes() == kMiB);
    std::string why;
    CHECK(domains(session, "pool:0xbad", &why).empty());
    CHECK(why.find("no process had such a pool") != std::string::npos);
}

TEST_CASE("a framework's gaps are told apart by class and stream") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 20 * kMiB).linear(0x20000000, 2 * kMiB);
    p.call(Kind::kBlockAcquired, 0x10000000, 4 * kMiB, 4 * kMiB, 22 * kMiB);
    p.call(Kind::kBlockAcquired, 0x20000000, 512 * kKiB, 4 * kMiB + 512 * kKiB, 22 * kMiB);
    const report::DomainExtents domain = domains(session, "framework").at(0);
    CHECK(exact(free_of(domain, "large segments").sum(), 16 * kMiB));
    CHECK(exact(free_of(domain, "small segments").sum(), kMiB + 512 * kKiB));
    CHECK(domain.held_size() == 2);
}

TEST_CASE("physical memory has no extents that a program can see") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 2 * kMiB).linear(0x10000000, kMiB).sample(5 * kGiB, 8 * kGiB).sample_end();
    const report::DomainExtents domain = domains(session, "physical").at(0);
    CHECK(domain.held_size() == 2);
    const report::FreeExtents& free = free_of(domain, "device-free");
    CHECK(exact(free.sum(), 5 * kGiB));
    CHECK(free.sum().evidence() == report::Quantity::measured);
    CHECK_FALSE(free.largest().has_low_bytes());
    CHECK_FALSE(free.largest().has_high_bytes());
}
