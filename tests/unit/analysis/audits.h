// What every audit has to hold, whatever the failure: the fixed order, nothing missing, nothing twice, one
// snapshot, and a reason wherever a number is not known.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "analysis/audit.h"
#include "proto/report.pb.h"

namespace fragscope::test {

inline void check_audit(const report::Explanation& e) {
    if (e.audit().empty()) return;  // nothing failed for want of memory
    const auto& order = analysis::audit_order();
    std::set<std::pair<int, std::string>> seen;
    std::ptrdiff_t rank = 0;
    for (const report::Quantity& row : e.audit()) {
        CAPTURE(report::Quantity::Definition_Name(row.definition()));
        CAPTURE(row.of());
        const auto at = std::find(order.begin(), order.end(), row.definition()) - order.begin();
        CHECK(at < std::ssize(order));
        CHECK(at >= rank);
        rank = std::max(rank, at);
        CHECK(seen.emplace(row.definition(), row.of()).second);
        const bool known = row.has_low_bytes() || row.has_high_bytes();
        CHECK(known == (row.evidence() != report::Quantity::unknown));
        if (!known) CHECK_FALSE(row.reason().empty());
        if (row.has_low_bytes() && row.has_high_bytes()) CHECK(row.low_bytes() <= row.high_bytes());
        CHECK(row.scope().snapshot() == e.audit(0).scope().snapshot());
        CHECK(row.scope().process() == e.audit(0).scope().process());
        // What a call gives back has a cost: measured, or a hypothesis with what would show it wrong.
        if (!row.by().empty()) {
            CHECK(row.has_cost());
            CHECK((row.cost().calls() != 0) == row.cost().has_median_ns());
            CHECK((row.cost().calls() == 0) == !row.cost().hypothesis().empty());
            CHECK(row.cost().hypothesis().empty() == row.cost().falsified_by().empty());
        }
    }
    for (const auto definition : order) {
        CAPTURE(report::Quantity::Definition_Name(definition));
        CHECK(std::any_of(e.audit().begin(), e.audit().end(),
                          [&](const report::Quantity& row) { return row.definition() == definition; }));
    }
}

// Inside one domain, or not at all: L is no more than F, the ratio is 1 - L/F, and the classes add up to F.
inline void check_domains(const google::protobuf::RepeatedPtrField<report::Domain>& domains) {
    std::set<std::string> names;
    for (const report::Domain& domain : domains) {
        CAPTURE(domain.name());
        CHECK(names.insert(domain.name()).second);
        if (domain.free_sum().has_high_bytes() && domain.free_largest().has_low_bytes())
            CHECK(domain.free_largest().low_bytes() <= domain.free_sum().high_bytes());
        CHECK(domain.has_external_ratio() == domain.external_ratio_reason().empty());
        CHECK(domain.free_sum().scope().domain() == domain.free_largest().scope().domain());
        if (!domain.has_free_extents()) CHECK_FALSE(domain.has_external_ratio());
        // Runs that somebody stated are a sum and a largest one, and no list.
        if (domain.extent_classes().empty()) continue;
        std::uint64_t sum = 0, count = 0;
        for (const report::ExtentClass& each : domain.extent_classes()) {
            sum += each.sum_bytes();
            count += each.count();
        }
        CHECK(sum == domain.free_sum().low_bytes());
        CHECK(count == domain.free_extents());
        CHECK(domain.largest_extents_bytes(0) == domain.free_largest().low_bytes());
        CHECK(domain.external_ratio() ==
              doctest::Approx(1.0 - static_cast<double>(domain.free_largest().low_bytes()) /
                                        static_cast<double>(sum)));
    }
}

}  // namespace fragscope::test
