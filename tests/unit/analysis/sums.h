// The identity that every balance has to hold: what is taken is the parts and the rest.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "proto/report.pb.h"

namespace fragscope::test {

// Recomputed from the message alone, in 128 bits.
inline void check_sum(const report::Balance& b) {
    __extension__ using Wide = __int128;
    REQUIRE(b.taken().has_low_bytes());
    CHECK(b.taken().low_bytes() == b.taken().high_bytes());
    const Wide taken = b.taken().low_bytes();
    Wide low = 0, high = 0;
    bool bounded = true;
    for (const report::BalancePart& part : b.parts()) {
        CHECK_FALSE(part.id().empty());
        low += part.bytes().low_bytes();  // an absent low end is none
        bounded = bounded && part.bytes().has_high_bytes();
        high += part.bytes().high_bytes();
    }
    constexpr Wide kMost = INT64_MAX;
    const auto clamp = [&](Wide value) {
        return static_cast<std::int64_t>(std::clamp(value, -kMost, kMost));
    };
    CHECK(b.has_rest_low_bytes() == bounded);
    if (bounded) CHECK(b.rest_low_bytes() == clamp(taken - high));
    REQUIRE(b.has_rest_high_bytes());
    CHECK(b.rest_high_bytes() == clamp(taken - low));
    if (b.rest_high_bytes() < 0) {
        CHECK_FALSE(b.contradiction().empty());
        CHECK_FALSE(b.unattributed().has_low_bytes());
    } else {
        CHECK(b.contradiction().empty());
        CHECK(b.unattributed().high_bytes() == static_cast<std::uint64_t>(b.rest_high_bytes()));
        CHECK(b.unattributed().low_bytes() ==
              static_cast<std::uint64_t>(
                  b.has_rest_low_bytes() ? std::max<std::int64_t>(b.rest_low_bytes(), 0) : 0));
    }
}

inline void check_sums(const report::Report& report) {
    for (const report::Balance& balance : report.balances()) check_sum(balance);
}
inline void check_sums(const report::Explanation& explanation) {
    if (explanation.has_balance()) check_sum(explanation.balance());
}

}  // namespace fragscope::test
