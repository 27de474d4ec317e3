#include "analysis/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace fragscope::analysis {
namespace {

int strength(Evidence evidence) {
    switch (evidence) {
        case report::Quantity::measured:
            return 4;
        case report::Quantity::derived:
            return 3;
        case report::Quantity::bounded:
            return 2;
        case report::Quantity::assumed:
            return 1;
        default:
            return 0;
    }
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t total = a + b;
    return total < a ? std::numeric_limits<std::uint64_t>::max() : total;
}

std::int64_t difference(std::uint64_t a, std::uint64_t b) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (a >= b) return static_cast<std::int64_t>(std::min(a - b, kMost));
    return -static_cast<std::int64_t>(std::min(b - a, kMost));
}

// What arithmetic on two numbers yields: not measured any more, and bounded once it has two ends.
Evidence of_result(const Quantity& a, const Quantity& b, const Interval& interval) {
    if (!interval.known()) return report::Quantity::unknown;
    Evidence least = weakest(a.evidence(), b.evidence());
    if (least == report::Quantity::measured) least = report::Quantity::derived;
    if (!interval.exact() && strength(least) > strength(report::Quantity::bounded))
        least = report::Quantity::bounded;
    // One side was unknown, yet an end is known: that end is a bound.
    if (least == report::Quantity::unknown) least = report::Quantity::bounded;
    return least;
}

constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

// The largest unit that the number reaches.
std::size_t unit_of(std::uint64_t bytes) {
    std::size_t unit = 0;
    while (unit + 1 < kUnits.size() && (bytes >> (10 * (unit + 1))) != 0) ++unit;
    return unit;
}

std::string three_digits(std::uint64_t bytes) {
    std::size_t unit = unit_of(bytes);
    double value = static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << (10 * unit));
    if (value >= 1023.5 && unit + 1 < kUnits.size()) {
        ++unit;
        value /= 1024;
    }
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

bool read_alike(const std::optional<std::uint64_t>& a, const std::optional<std::uint64_t>& b) {
    return a && b && *a != *b && three_digits(*a) == three_digits(*b);
}

}  // namespace

Scope Scope::in_domain(std::string name) const {
    Scope other = *this;
    other.domain = std::move(name);
    return other;
}

report::Scope Scope::message() const {
    report::Scope out;
    if (process) out.set_process(*process);
    out.set_device(device);
    out.set_domain(domain);
    if (snapshot) out.set_snapshot(*snapshot);
    if (time_ns) out.set_time_ns(*time_ns);
    return out;
}

Evidence weakest(Evidence a, Evidence b) { return strength(a) <= strength(b) ? a : b; }

Interval operator+(const Interval& a, const Interval& b) {
    Interval out;
    if (a.low && b.low) out.low = sum(*a.low, *b.low);
    if (a.high && b.high) out.high = sum(*a.high, *b.high);
    return out;
}

Quantity::Quantity(Definition definition, Evidence evidence, Interval interval, Scope scope,
                   std::string reason)
    : definition_(definition),
      evidence_(evidence),
      interval_(interval),
      scope_(std::move(scope)),
      reason_(std::move(reason)) {
    if (interval_.low && interval_.high && *interval_.low > *interval_.high) {
        std::swap(interval_.low, interval_.high);
    }
    if (!interval_.known()) evidence_ = report::Quantity::unknown;
}

Quantity Quantity::measured(Definition definition, std::uint64_t bytes, Scope scope, std::string reason) {
    return {definition, report::Quantity::measured, Interval::exactly(bytes), std::move(scope),
            std::move(reason)};
}
Quantity Quantity::derived(Definition definition, std::uint64_t bytes, Scope scope, std::string reason) {
    return {definition, report::Quantity::derived, Interval::exactly(bytes), std::move(scope),
            std::move(reason)};
}
Quantity Quantity::bounded(Definition definition, Interval interval, Scope scope, std::string reason) {
    return {definition, report::Quantity::bounded, interval, std::move(scope), std::move(reason)};
}
Quantity Quantity::assumed(Definition definition, Interval interval, Scope scope, std::string reason) {
    return {definition, report::Quantity::assumed, interval, std::move(scope), std::move(reason)};
}
Quantity Quantity::unknown(Definition definition, Scope scope, std::string reason) {
    return {definition, report::Quantity::unknown, Interval{}, std::move(scope), std::move(reason)};
}

Quantity Quantity::carried_into(Scope scope, Evidence at_best, std::string why) const {
    return {definition_, weakest(evidence_, at_best), interval_, std::move(scope), std::move(why)};
}

Quantity Quantity::as(Definition definition, std::string reason) const {
    return {definition, evidence_, interval_, scope_, std::move(reason)};
}

report::Quantity Quantity::message() const {
    report::Quantity out;
    out.set_definition(definition_);
    out.set_evidence(evidence_);
    if (interval_.low) out.set_low_bytes(*interval_.low);
    if (interval_.high) out.set_high_bytes(*interval_.high);
    *out.mutable_scope() = scope_.message();
    out.set_reason(reason_);
    return out;
}

namespace {

// What arithmetic on two quantities of one scope gives: known as well as the weaker of them.
Quantity result_of(const Quantity& a, const Quantity& b, Definition definition, const Interval& interval,
                   std::string reason) {
    switch (of_result(a, b, interval)) {
        case report::Quantity::unknown:
            return Quantity::unknown(definition, a.scope(), std::move(reason));
        case report::Quantity::derived:
            return Quantity::derived(definition, *interval.low, a.scope(), std::move(reason));
        case report::Quantity::assumed:
            return Quantity::assumed(definition, interval, a.scope(), std::move(reason));
        default:
            return Quantity::bounded(definition, interval, a.scope(), std::move(reason));
    }
}

}  // namespace

std::optional<Quantity> plus(const Quantity& a, const Quantity& b, Definition definition,
                             std::string reason) {
    if (!(a.scope() == b.scope())) return std::nullopt;
    const Interval interval = a.interval() + b.interval();
    return result_of(a, b, definition, interval, std::move(reason));
}

std::optional<Quantity> minus(const Quantity& a, const Quantity& b, Definition definition,
                              std::string reason) {
    if (!(a.scope() == b.scope())) return std::nullopt;
    if (a.high() && b.low() && *b.low() > *a.high()) {
        return Quantity::unknown(definition, a.scope(),
                                 fmt::format("the numbers contradict each other: {} is to be taken from {}",
                                             in_words(b.interval()), in_words(a.interval())));
    }
    Interval interval;
    if (a.low() && b.high()) interval.low = *a.low() > *b.high() ? *a.low() - *b.high() : 0;
    if (a.high() && b.low()) interval.high = *a.high() - *b.low();
    return result_of(a, b, definition, interval, std::move(reason));
}

std::optional<Share> share(const Quantity& part, const Quantity& whole) {
    if (!(part.scope() == whole.scope())) return std::nullopt;
    Share out;
    if (whole.low().value_or(0) == 0) return out;
    const auto ratio = [](std::uint64_t a, std::uint64_t b) {
        return std::min(1.0, static_cast<double>(a) / static_cast<double>(b));
    };
    if (part.low() && whole.high()) out.low = ratio(*part.low(), *whole.high());
    if (part.high() && whole.low()) out.high = ratio(*part.high(), *whole.low());
    return out;
}

Share rest_of(const Share& share) {
    Share out;
    if (share.high) out.low = 1.0 - *share.high;
    if (share.low) out.high = 1.0 - *share.low;
    return out;
}

Margin margin_of(const Interval& available, const Interval& needed) {
    Margin margin;
    if (available.low && needed.high) margin.low = difference(*available.low, *needed.high);
    if (available.high && needed.low) margin.high = difference(*available.high, *needed.low);
    return margin;
}

Fit fit_of(const Interval& available, const Interval& needed) {
    if (available.low && needed.high && *available.low >= *needed.high) return Fit::kFits;
    if (available.high && needed.low && *available.high < *needed.low) return Fit::kDoesNotFit;
    return Fit::kCannotTell;
}

std::string in_words(std::uint64_t bytes) {
    const std::size_t unit = unit_of(bytes);
    const std::uint64_t one = std::uint64_t{1} << (10 * unit);
    return bytes % one == 0 ? fmt::format("{} {}", bytes / one, kUnits[unit]) : three_digits(bytes);
}

std::string in_words(const Interval& interval) {
    if (interval.low && *interval.low >= kAnyAddressSpace)
        return fmt::format("more than any address space ({} or more)", in_words(kAnyAddressSpace));
    if (interval.exact()) return in_words(*interval.low);
    if (interval.low && interval.high) {
        const std::string low = in_words(*interval.low);
        const std::string high = in_words(*interval.high);
        // Ends that would read alike are told apart by their bytes.
        return low == high ? fmt::format("between {} B and {} B", *interval.low, *interval.high)
                           : fmt::format("between {} and {}", low, high);
    }
    if (interval.low) return fmt::format("at least {}", in_words(*interval.low));
    if (interval.high) return fmt::format("at most {}", in_words(*interval.high));
    return "an unknown number of bytes";
}

std::string in_words_beside(const Interval& interval, const Interval& other) {
    const std::string words = in_words(interval);
    const bool alike = read_alike(interval.low, other.low) || read_alike(interval.low, other.high) ||
                       read_alike(interval.high, other.low) || read_alike(interval.high, other.high);
    if (!alike) return words;
    if (interval.exact() || !interval.high) return fmt::format("{} ({} B)", words, *interval.low);
    if (!interval.low) return fmt::format("{} ({} B)", words, *interval.high);
    return fmt::format("{} ({} B and {} B)", words, *interval.low, *interval.high);
}

}  // namespace fragscope::analysis
