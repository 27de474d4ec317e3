#include <doctest/doctest.h>

#include "collector/clock.h"

using namespace fragscope;
using collector::TickConverter;

TEST_CASE("ticks between two pairs are interpolated") {
    TickConverter clock(wire::Clock::kTsc, {1'000'000, 500'000'000});
    CHECK_FALSE(clock.to_ns(1'000'000));  // one pair tells no rate
    CHECK(clock.ticks_per_ns() == 0.0);
    clock.add({3'001'000'000, 1'500'000'000});  // 3 GHz
    clock.add({5'001'000'000, 2'500'000'000});  // then 2 GHz
    CHECK(clock.to_ns(1'000'000) == 500'000'000);
    CHECK(clock.to_ns(1'501'000'000) == 1'000'000'000);
    CHECK(clock.to_ns(4'001'000'000) == 2'000'000'000);
    CHECK(clock.to_ns(5'001'000'100) == 2'500'000'050);  // a little newer than the latest pair
    CHECK(clock.duration_ns(2'500) == 1'000);
}

TEST_CASE("times that cannot be are refused") {
    TickConverter clock(wire::Clock::kTsc, {1'000'000'000'000, 500});
    clock.add({1'000'000'000'000 + 2'000'000'000, 500 + 1'000'000'000});
    CHECK_FALSE(clock.to_ns(0));
    CHECK_FALSE(clock.to_ns(UINT64_MAX));
    CHECK_FALSE(clock.to_ns(1'000'000'000'000 + 9'000'000'000));
    CHECK(clock.to_ns(1'000'000'000'000 - 10) == 500);  // processors' counters may differ a little
}

TEST_CASE("the pairs kept stay few, and old times stay right") {
    TickConverter clock(wire::Clock::kTsc, {0, 1'000'000});
    for (std::uint64_t second = 1; second < 20'000; ++second)
        clock.add({second * 2'000'000'000, 1'000'000 + second * 1'000'000'000});
    CHECK(clock.pairs_kept() <= 4096);
    for (std::uint64_t second = 0; second < 19'999; second += 7) {
        const std::uint64_t expected = 1'000'000 + second * 1'000'000'000 + 250'000'000;
        const std::uint64_t got = clock.to_ns(second * 2'000'000'000 + 500'000'000).value_or(0);
        CHECK((got > expected ? got - expected : expected - got) < 100);
    }
}

TEST_CASE("the machine's own clocks: a reading lies between those around it") {
    const wire::Clock kind = collector::best_clock();
    TickConverter clock(kind, collector::read_clock_pair(kind));
    std::uint64_t last = 0;
    for (int i = 0; i < 1000; ++i) {
        const std::uint64_t before = collector::monotonic_ns();
        const collector::ClockPair pair = collector::read_clock_pair(kind);
        const std::uint64_t after = collector::monotonic_ns();
        clock.add(pair);
        CHECK(pair.ns >= before);
        CHECK(pair.ns <= after);
        const std::uint64_t ns = clock.to_ns(pair.ticks).value_or(0);
        CHECK(ns >= last);
        last = ns;
    }
}

TEST_CASE("the kernel's flags decide whether the counter can be used") {
    CHECK(collector::has_invariant_tsc("processor: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n"));
    CHECK_FALSE(collector::has_invariant_tsc("flags\t: tsc constant_tsc\n"));
    CHECK_FALSE(collector::has_invariant_tsc("flags\t: constant_tsc nonstop_tsc\nflags\t: tsc\n"));
    CHECK_FALSE(collector::has_invariant_tsc("Features\t: fp asimd\n"));
}
