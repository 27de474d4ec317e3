#include "analysis/quantity.h"

#include <doctest/doctest.h>

#include <random>

#include "tools/words.h"

using namespace fragscope::analysis;
using Q = fragscope::report::Quantity;

namespace {

Scope scope_at(std::uint64_t snapshot, const std::string& device = "GPU-a",
               const std::string& domain = "physical") {
    Scope scope;
    scope.process = 1;
    scope.device = device;
    scope.domain = domain;
    scope.snapshot = snapshot;
    return scope;
}

}  // namespace

TEST_CASE("arithmetic between scopes does not succeed, whichever part differs") {
    const Quantity a = Quantity::measured(Q::charged, 5, scope_at(1), "");
    Scope other_process = scope_at(1);
    other_process.process = 2;
    Scope timed = scope_at(1);
    timed.time_ns = 9;
    for (const Scope& other :
         {scope_at(2), scope_at(1, "GPU-b"), scope_at(1, "GPU-a", "virtual"), other_process, timed}) {
        const Quantity b = Quantity::measured(Q::charged, 3, other, "");
        CHECK_FALSE(plus(a, b, Q::charged, "").has_value());
        CHECK_FALSE(minus(a, b, Q::charged, "").has_value());
    }
    CHECK(plus(a, a, Q::charged, "").has_value());
}

TEST_CASE("evidence of a result is the weakest that went in, and never measured") {
    const Scope s = scope_at(1);
    const Quantity measured = Quantity::measured(Q::charged, 5, s, "");
    const Quantity derived = Quantity::derived(Q::charged, 5, s, "");
    const Quantity bounded = Quantity::bounded(Q::charged, {1, 9}, s, "");
    const Quantity assumed = Quantity::assumed(Q::charged, {1, 9}, s, "");
    CHECK(plus(measured, measured, Q::charged, "")->evidence() == Q::derived);
    CHECK(plus(measured, derived, Q::charged, "")->evidence() == Q::derived);
    CHECK(plus(derived, bounded, Q::charged, "")->evidence() == Q::bounded);
    CHECK(plus(bounded, assumed, Q::charged, "")->evidence() == Q::assumed);
    CHECK(minus(measured, assumed, Q::charged, "")->evidence() == Q::assumed);
    CHECK(weakest(Q::unknown, Q::assumed) == Q::unknown);
}

TEST_CASE("unknown is never zero") {
    const Scope s = scope_at(1);
    const Quantity nothing = Quantity::unknown(Q::cached, s, "not asked");
    CHECK_FALSE(nothing.low().has_value());
    CHECK_FALSE(nothing.high().has_value());
    const Quantity five = Quantity::measured(Q::charged, 5, s, "");
    const auto sum = plus(five, nothing, Q::charged, "why");
    CHECK(sum->evidence() == Q::unknown);
    CHECK_FALSE(sum->low().has_value());
    CHECK_FALSE(minus(five, nothing, Q::charged, "")->known());
    CHECK_FALSE(nothing.message().has_low_bytes());
    CHECK(nothing.message().evidence() == Q::unknown);
    // An interval that lost both ends is unknown, whatever it was called.
    CHECK(Quantity::bounded(Q::charged, {}, s, "").evidence() == Q::unknown);
}

TEST_CASE("intervals add and subtract end by end") {
    const Scope s = scope_at(1);
    const Quantity a = Quantity::bounded(Q::charged, {10, 20}, s, "");
    const Quantity b = Quantity::bounded(Q::charged, {3, 5}, s, "");
    CHECK(plus(a, b, Q::charged, "")->interval() == Interval{13, 25});
    CHECK(minus(a, b, Q::charged, "")->interval() == Interval{5, 17});
    CHECK(minus(b, a, Q::charged, "")->evidence() == Q::unknown);  // 3 … 5 less 10 … 20 cannot be
    const Quantity at_least = Quantity::bounded(Q::charged, {4, std::nullopt}, s, "");
    CHECK(plus(a, at_least, Q::charged, "")->interval() == Interval{14, std::nullopt});
    CHECK(minus(a, at_least, Q::charged, "")->interval() == Interval{std::nullopt, 16});
    CHECK(Interval{UINT64_MAX, UINT64_MAX} + Interval{1, 1} == Interval::exactly(UINT64_MAX));
}

TEST_CASE("a number of another scope enters by name only, and weaker") {
    const Quantity there = Quantity::measured(Q::charged, 7, scope_at(5, "GPU-b"), "their books");
    const Quantity here = there.carried_into(scope_at(1), Q::bounded, "by the clock");
    CHECK(here.scope() == scope_at(1));
    CHECK(here.evidence() == Q::bounded);
    CHECK(here.reason() == "by the clock");
}

TEST_CASE("fits only when even the least covers the most") {
    CHECK(fit_of({10, 20}, {5, 10}) == Fit::kFits);
    CHECK(fit_of({10, 20}, {5, 11}) == Fit::kCannotTell);
    CHECK(fit_of({10, 20}, {20, 20}) == Fit::kCannotTell);
    CHECK(fit_of({10, 20}, {21, 30}) == Fit::kDoesNotFit);
    CHECK(fit_of({10, std::nullopt}, {10, 10}) == Fit::kFits);
    CHECK(fit_of({std::nullopt, 20}, {10, 10}) == Fit::kCannotTell);
    CHECK(fit_of({}, {0, 0}) == Fit::kCannotTell);
    CHECK(margin_of({10, 20}, {5, 11}) == Margin{-1, 15});
    CHECK(margin_of({std::nullopt, 20}, {5, 11}) == Margin{std::nullopt, 15});
    CHECK(margin_of({UINT64_MAX, UINT64_MAX}, {0, 0}) == Margin{INT64_MAX, INT64_MAX});
}

TEST_CASE("bytes in words") {
    CHECK(in_words(0) == "0 B");
    CHECK(in_words(1023) == "1023 B");
    CHECK(in_words(1024) == "1 KiB");
    CHECK(in_words(std::uint64_t{20} << 20) == "20 MiB");
    CHECK(in_words((std::uint64_t{1} << 30) - 1) == "1.00 GiB");
    CHECK(in_words(Interval{1024, 2048}) == "between 1 KiB and 2 KiB");
    CHECK(in_words(Interval{}) == "an unknown number of bytes");
}

TEST_CASE("sentences write an amount as the pages around them do") {
    std::mt19937_64 random(4);
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t any = random() >> (random() % 64);
        for (const std::uint64_t bytes : {any, any & ~std::uint64_t{0xfffff}, std::uint64_t{1} << (i % 64)}) {
            REQUIRE(in_words(bytes) == fragscope::tools::human_bytes(bytes));
        }
    }
}

TEST_CASE("two amounts that differ and read alike are told apart by their bytes") {
    constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
    CHECK(in_words_beside({4 * kGiB - 4096, 4 * kGiB - 4096}, {4 * kGiB, 4 * kGiB}) ==
          "4.00 GiB (4294963200 B)");
    CHECK(in_words_beside({4 * kGiB, 4 * kGiB}, {4 * kGiB - 4096, std::nullopt}) == "4 GiB (4294967296 B)");
    CHECK(in_words_beside({4 * kGiB, 4 * kGiB}, {4 * kGiB, 4 * kGiB}) == "4 GiB");
    CHECK(in_words_beside({4 * kGiB, 4 * kGiB}, {kGiB, kGiB}) == "4 GiB");
    CHECK(in_words_beside({std::nullopt, kGiB - 1}, {kGiB, kGiB}) == "at most 1.00 GiB (1073741823 B)");
}
