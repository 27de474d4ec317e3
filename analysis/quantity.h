// A number of bytes that carries its evidence: which definition, how it is known, and where and when it
// holds.
//
// The value is an interval; an absent end is not known, and unknown is never zero. Arithmetic succeeds only
// inside one scope (`plus` and `minus` answer nothing otherwise); evidence of a result is the weakest that
// went in. A number of another scope enters by `carried_into` only, which names the reason and weakens it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/report.pb.h"

namespace fragscope::analysis {

using Definition = report::Quantity::Definition;
using Evidence = report::Quantity::Evidence;

// Where and when a number holds; see report::Scope.
struct Scope {
    std::optional<std::uint32_t> process;
    std::string device;  // UUID as text
    std::string domain;
    std::optional<std::uint64_t> snapshot;  // sequence number
    std::optional<std::uint64_t> time_ns;   // since the session's start
    bool operator==(const Scope&) const = default;

    Scope in_domain(std::string name) const;
    report::Scope message() const;
};

// The weaker of two ways of knowing: unknown < assumed < bounded < derived < measured.
Evidence weakest(Evidence a, Evidence b);

// Bytes between two ends, each included; an absent end is not known.
struct Interval {
    std::optional<std::uint64_t> low;
    std::optional<std::uint64_t> high;
    bool operator==(const Interval&) const = default;

    static Interval exactly(std::uint64_t bytes) { return {bytes, bytes}; }
    bool exact() const { return low.has_value() && low == high; }
    bool known() const { return low.has_value() || high.has_value(); }
};

// Ends that are known on both sides add; sums saturate at 2^64 - 1.
Interval operator+(const Interval& a, const Interval& b);

class Quantity {
  public:
    Quantity() = default;  // unknown, of nothing
    static Quantity measured(Definition definition, std::uint64_t bytes, Scope scope, std::string reason);
    static Quantity derived(Definition definition, std::uint64_t bytes, Scope scope, std::string reason);
    // low <= high, or the two are exchanged: an interval is never empty.
    static Quantity bounded(Definition definition, Interval interval, Scope scope, std::string reason);
    static Quantity assumed(Definition definition, Interval interval, Scope scope, std::string reason);
    static Quantity unknown(Definition definition, Scope scope, std::string reason);

    Definition definition() const { return definition_; }
    Evidence evidence() const { return evidence_; }
    const Interval& interval() const { return interval_; }
    const std::optional<std::uint64_t>& low() const { return interval_.low; }
    const std::optional<std::uint64_t>& high() const { return interval_.high; }
    const Scope& scope() const { return scope_; }
    const std::string& reason() const { return reason_; }
    bool known() const { return interval_.known(); }
    bool exact() const { return interval_.exact(); }

    // The same number in another scope, at most as good as `at_best`; `why` says why it may stand there.
    Quantity carried_into(Scope scope, Evidence at_best, std::string why) const;
    // The same number under another definition or reason.
    Quantity as(Definition definition, std::string reason) const;

    report::Quantity message() const;

  private:
    Quantity(Definition definition, Evidence evidence, Interval interval, Scope scope, std::string reason);

    Definition definition_ = report::Quantity::definition_unspecified;
    Evidence evidence_ = report::Quantity::unknown;
    Interval interval_;
    Scope scope_;
    std::string reason_;
};

// a + b; nothing if their scopes differ.
std::optional<Quantity> plus(const Quantity& a, const Quantity& b, Definition definition, std::string reason);
// a - b, never below zero; nothing if their scopes differ. Unknown if b is larger than a for certain: then at
// least one of the two is wrong, and the reason says so.
std::optional<Quantity> minus(const Quantity& a, const Quantity& b, Definition definition,
                              std::string reason);

// A share of one number in another, between two ends in [0, 1]; an absent end is not known.
struct Share {
    std::optional<double> low;
    std::optional<double> high;
    bool operator==(const Share&) const = default;
};

// part / whole, where the part lies inside of the whole; nothing if their scopes differ. An end is known only
// where the numbers it rests on are, and where the whole is larger than zero for certain: a share of nothing is no
// number.
std::optional<Share> share(const Quantity& part, const Quantity& whole);
// 1 - share.
Share rest_of(const Share& share);

// available - needed, in bytes; absent ends are not known.
struct Margin {
    std::optional<std::int64_t> low;
    std::optional<std::int64_t> high;
    bool operator==(const Margin&) const = default;
};

enum class Fit { kFits, kDoesNotFit, kCannotTell };

Margin margin_of(const Interval& available, const Interval& needed);
// Fits when even the least available covers the most needed; does not fit when the most available is below
// the least needed; anything between cannot be told.
Fit fit_of(const Interval& available, const Interval& needed);

// Addresses of devices and hosts have at most 57 bits: no request from this size on can be met anywhere.
inline constexpr std::uint64_t kAnyAddressSpace = std::uint64_t{1} << 57;

// "20 MiB" where that is exact, otherwise three digits: "1.46 GiB". The pages around these sentences write
// amounts so too.
std::string in_words(std::uint64_t bytes);
// "20 MiB", "between 1 GiB and 2.50 GiB", "at least …", "at most …", "an unknown number of bytes".
std::string in_words(const Interval& interval);
// The same, with exact bytes in brackets behind it where an end of the other differs from it and would read
// alike.
std::string in_words_beside(const Interval& interval, const Interval& other);

}  // namespace fragscope::analysis
