// Fragmentation over time, against a list of 512-byte units that is looked at after every event.
#include "analysis/curves.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

constexpr std::uint64_t kSegment = 0x7f0000000000;
constexpr std::uint64_t kUnit = 512;
constexpr std::size_t kUnits = 64;

struct Gaps {
    std::uint64_t sum = 0, largest = 0, count = 0;
};

Gaps gaps_of(const std::vector<bool>& taken) {
    Gaps out;
    std::uint64_t run = 0;
    for (std::size_t i = 0; i <= taken.size(); ++i) {
        if (i < taken.size() && !taken[i]) {
            run += kUnit;
            continue;
        }
        if (run == 0) continue;
        out.sum += run;
        out.largest = std::max(out.largest, run);
        ++out.count;
        run = 0;
    }
    return out;
}

// A program of `steps` calls of an allocator with one segment; what was unused after each event, by sequence.
std::map<std::uint64_t, Gaps> random_program(ProcessBuilder& p, int steps, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::map<std::uint64_t, Gaps> after;
    std::vector<bool> taken(kUnits, false);
    std::map<std::size_t, std::size_t> blocks;  // first unit, units
    std::uint64_t live = 0;
    p.linear(kSegment, kUnits * kUnit);
    for (int step = 0; step < steps; ++step) {
        const std::size_t at = random() % kUnits;
        const std::size_t units = std::min<std::size_t>(1 + random() % 9, kUnits - at);
        if (blocks.empty() || random() % 2 == 0) {
            if (std::find(taken.begin() + static_cast<std::ptrdiff_t>(at),
                          taken.begin() + static_cast<std::ptrdiff_t>(at + units),
                          true) != taken.begin() + static_cast<std::ptrdiff_t>(at + units))
                continue;
            blocks[at] = units;
            live += units * kUnit;
            p.call(Kind::kBlockAcquired, kSegment + at * kUnit, units * kUnit, live, kUnits * kUnit);
            for (std::size_t i = at; i < at + units; ++i) taken[i] = true;
        } else {
            auto block = blocks.begin();
            std::advance(block, static_cast<std::ptrdiff_t>(random() % blocks.size()));
            live -= block->second * kUnit;
            p.call(Kind::kBlockReleased, kSegment + block->first * kUnit, block->second * kUnit, live,
                   kUnits * kUnit);
            for (std::size_t i = block->first; i < block->first + block->second; ++i) taken[i] = false;
            blocks.erase(block);
        }
        after[p.last_sequence()] = gaps_of(taken);
    }
    return after;
}

}  // namespace

TEST_CASE("an allocator's curve and its domain's, by hand") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 8 * kMiB, 8 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment + 8 * kMiB, 4 * kMiB, 12 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockReleased, kSegment, 8 * kMiB, 4 * kMiB, 20 * kMiB);
    const report::Report report = make_report(session.trace());
    check_words(report);
    REQUIRE(report.allocator_curves_size() == 1);
    const auto& points = report.allocator_curves(0).points();
    REQUIRE(points.size() == 3);
    CHECK(points[1].live_bytes() == 12 * kMiB);
    CHECK(points[1].cached_bytes() == 8 * kMiB);
    CHECK(points[2].live_bytes() == 4 * kMiB);
    CHECK(points[2].cached_bytes() == 16 * kMiB);
    for (const auto& point : points) CHECK(point.reserved_bytes() == 20 * kMiB);
    CHECK(report.allocator_curves(0).note().empty());
    REQUIRE(report.domain_curves_size() == 1);
    const auto& domain = report.domain_curves(0);
    CHECK(domain.domain() == "framework's allocator: large segments, of a stream that is not known");
    const auto& last = domain.points(domain.points_size() - 1);
    // 8 MiB before the block that is left, 8 MiB behind it.
    CHECK(last.free_sum_bytes() == 16 * kMiB);
    CHECK(last.free_largest_bytes() == 8 * kMiB);
    CHECK(last.free_extents() == 2);
    CHECK(last.external_ratio() == 0.5);
    REQUIRE(report.measures_at_peaks_size() == 1);
    CHECK(report.measures_at_peaks(0).held().low_bytes() ==
          20 * kMiB);  // the driver's block, from the first on
}

TEST_CASE("every point of a domain's curve is what was unused then, and none lies too far from the next") {
    for (const int steps : {5, 300, 60'000}) {
        CAPTURE(steps);
        SessionBuilder session;
        const auto after = random_program(session.process(), steps, 3);
        const report::Report report = make_report(session.trace());
        REQUIRE(report.domain_curves_size() == 1);
        const auto& curve = report.domain_curves(0);
        CHECK(curve.points_size() <= static_cast<int>(kCurvePoints));
        CHECK(curve.points_size() >= std::min<int>(static_cast<int>(after.size()) / 70, kCurvePoints / 4));
        std::uint64_t before = 0;
        for (const report::DomainPoint& point : curve.points()) {
            const auto found = after.find(point.sequence());
            REQUIRE(found != after.end());
            CHECK(point.free_sum_bytes() == found->second.sum);
            CHECK(point.free_largest_bytes() == found->second.largest);
            CHECK(point.free_extents() == found->second.count);
            CHECK(point.has_external_ratio() == (found->second.sum != 0));
            if (before != 0) CHECK(point.sequence() - before <= curve.every_events());
            before = point.sequence();
        }
        CHECK(before == after.rbegin()->first);  // the end is always looked at
        const auto& allocator = report.allocator_curves(0);
        CHECK(allocator.points_size() <= static_cast<int>(kCurvePoints));
        std::uint64_t most = 0, kept = 0;
        for (const auto& [sequence, gaps] : after) most = std::max(most, kUnits * kUnit - gaps.sum);
        for (const report::AllocatorPoint& point : allocator.points())
            kept = std::max(kept, point.live_bytes());
        CHECK(kept == most);  // thinning loses no peak
    }
}

TEST_CASE("addresses over time: gaps that were given back, of the process and of no device") {
    SessionBuilder session;
    auto& p = session.process();
    p.reserve(0x1000000000, 4 * kPage).reserve(0x1000000000 + 4 * kPage, kPage);
    p.reserve(0x1000000000 + 5 * kPage, 2 * kPage).reserve(0x1000000000 + 7 * kPage, kPage);
    p.unreserve(0x1000000000, 4 * kPage).unreserve(0x1000000000 + 5 * kPage, 2 * kPage);
    const report::Report report = make_report(session.trace());
    REQUIRE(report.domain_curves_size() == 1);
    const auto& curve = report.domain_curves(0);
    CHECK(curve.domain() == "virtual");
    CHECK(curve.device().empty());
    const auto& last = curve.points(curve.points_size() - 1);
    CHECK(last.free_sum_bytes() == 6 * kPage);
    CHECK(last.free_largest_bytes() == 4 * kPage);
    CHECK(last.external_ratio() == doctest::Approx(1.0 / 3));
}

TEST_CASE("a pool over time: what it keeps is known when the driver was asked, how it lies is not") {
    SessionBuilder session;
    auto& p = session.process();
    p.pool_take(0x30000000, kMiB, 0x99)
        .sample(7 * kGiB, 8 * kGiB)
        .sample_pool(0x99, kMiB, 32 * kMiB)
        .sample_end();
    p.pool_give(0x30000000).sample(7 * kGiB, 8 * kGiB).sample_pool(0x99, 0, 32 * kMiB).sample_end();
    const report::Report report = make_report(session.trace());
    REQUIRE(report.domain_curves_size() == 1);
    const auto& curve = report.domain_curves(0);
    REQUIRE(curve.points_size() == 2);
    CHECK(curve.points(0).free_sum_bytes() == 31 * kMiB);
    CHECK(curve.points(1).free_sum_bytes() == 32 * kMiB);
    CHECK_FALSE(curve.points(1).has_free_largest_bytes());
    CHECK_FALSE(curve.points(1).has_external_ratio());
}

TEST_CASE("what samples cost is bounded by the number of events, however much is live") {
    SessionBuilder session;
    auto& p = session.process();
    // 20,000 live blocks of an allocator's one segment, and then a long time in which one comes and goes.
    constexpr std::uint64_t kLive = 20'000;
    p.linear(kSegment, (kLive + 1) * kUnit);
    std::uint64_t live = 0;
    for (std::uint64_t i = 0; i < kLive; ++i)
        p.call(Kind::kBlockAcquired, kSegment + i * kUnit, kUnit, live += kUnit, (kLive + 1) * kUnit);
    for (int i = 0; i < 20'000; ++i) {
        p.call(Kind::kBlockAcquired, kSegment + kLive * kUnit, kUnit, live + kUnit, (kLive + 1) * kUnit);
        p.call(Kind::kBlockReleased, kSegment + kLive * kUnit, kUnit, live, (kLive + 1) * kUnit);
    }
    CurveRecorder recorder(session.trace(), {0});
    ProcessState state({{0, kPage}});
    FrameworkState framework;
    const auto& events = session.trace().events[0];
    for (const Event& event : events) {
        state.apply(event);
        framework.apply(event, state);
        recorder.add(state, framework, event);
    }
    recorder.finish(state, framework);
    // Two for each event, the last sample, and what small ones cost: kCurvePoints of them at each stride.
    CHECK(recorder.visited() <= 2 * events.size() + 2 * kLive + 16 * kCurvePoints * CurveRecorder::kSmall);
    const report::DomainCurve curve = recorder.domains(state, framework)[0];
    CHECK(curve.points_size() >= 40);
    CHECK(curve.every_events() <= kLive);
}

TEST_CASE("where records are missing, the curves say so") {
    SessionBuilder session;
    random_program(session.process(), 50, 4);
    session.trace().losses[0].set_acquisitions(3);
    const report::Report report = make_report(session.trace());
    CHECK(report.domain_curves(0).note().find("missing") != std::string::npos);
    CHECK(report.allocator_curves(0).note().find("missing") != std::string::npos);
}
