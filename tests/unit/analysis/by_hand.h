// Situations that no trace stands behind: only what a test says of them is known. For the tests of what is
// concluded from one, which then need no recording that happens to lead there.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "analysis/counterfactuals.h"
#include "analysis/read/scenario_reader.h"
#include "analysis/scenario.h"
#include "analysis/situation.h"
#include "analysis/verdict.h"
#include "tests/unit/analysis/builder.h"

namespace fragscope::test {

inline constexpr std::uint64_t kPageBytes = 2 * kMiB;

// A failed call for `needed` bytes on a device of `capacity`, of which cuMemGetInfo said that `left` were
// held by nobody. Nothing else is held, kept, lost or limited.
inline analysis::Situation failed_call(std::uint64_t capacity, std::uint64_t left, std::uint64_t needed) {
    using analysis::Quantity;
    using Q = report::Quantity;
    analysis::Situation s;
    s.device = "GPU-a";
    s.physical.process = 0;
    s.physical.device = s.device;
    s.physical.domain = "physical";
    s.physical.snapshot = 7;
    s.address = s.physical.in_domain("virtual");
    s.page = kPageBytes;
    s.losses.counted = true;
    s.books.counted = true;
    s.snapshot.complete = true;
    s.capacity = Quantity::measured(Q::capacity, capacity, s.physical, "cuMemGetInfo");
    s.device_free = Quantity::measured(Q::device_free, left, s.physical, "cuMemGetInfo");
    s.free_then = s.device_free;
    for (Quantity* each : {&s.handles, &s.linear, &s.linear_requested, &s.arrays, &s.pools_reserved,
                           &s.graphs, &s.graphs_unused, &s.attributed, &s.others, &s.unattributed, &s.pending,
                           &s.cached, &s.reclaimable, &s.linear_waste, &s.handle_waste, &s.partly_waste,
                           &s.never_written, &s.held_by_importers, &s.leaked})
        *each = Quantity::derived(Q::charged, 0, s.physical, "none");
    s.request.draws = analysis::Draws::kPhysical;
    s.request.kind = wire::Kind::kLinearAcquired;
    s.request.domain = "physical";
    s.request.device = 0;
    s.request.requested = needed;
    s.request.needed = analysis::Interval::exactly(needed);
    s.request.needed_reason = "in whole pages";
    s.request.in_words = "some bytes";
    s.contract.shape = report::Contract::virtual_only;
    return s;
}

// So many bytes of the device's physical memory.
inline analysis::Quantity bytes_of(const analysis::Situation& s, const analysis::Interval& bytes,
                                   const std::string& reason = "said") {
    return bytes.exact()
               ? analysis::Quantity::derived(report::Quantity::charged, *bytes.low, s.physical, reason)
               : analysis::Quantity::bounded(report::Quantity::charged, bytes, s.physical, reason);
}
inline analysis::Quantity bytes_of(const analysis::Situation& s, std::uint64_t bytes,
                                   const std::string& reason = "said") {
    return bytes_of(s, analysis::Interval::exactly(bytes), reason);
}

inline analysis::Interval between(std::uint64_t low, std::uint64_t high) { return {low, high}; }
inline analysis::Interval at_least(std::uint64_t low) { return {low, std::nullopt}; }
inline analysis::Interval at_most(std::uint64_t high) { return {std::nullopt, high}; }
inline analysis::Interval exactly(std::uint64_t bytes) { return analysis::Interval::exactly(bytes); }

inline analysis::PoolAtFailure pool_of(const analysis::Situation& s, std::uint64_t id,
                                       const std::string& name, std::uint64_t reserved, std::uint64_t used) {
    analysis::PoolAtFailure out;
    out.pool = analysis::ObjectId{id};
    out.name = name;
    out.live = exactly(used);
    out.said.reserved = reserved;
    out.said.used = used;
    out.reserved = bytes_of(s, reserved);
    out.used = bytes_of(s, used);
    out.cached = bytes_of(s, reserved - used);
    out.reclaimable = bytes_of(s, reserved - used);
    return out;
}

// A request to pool A, on a device of which 1 GiB is left; A has 512 MiB unused, B 2 GiB, C nothing, D 1 GiB.
inline analysis::Situation of_pools() {
    analysis::Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    s.request.draws = analysis::Draws::kPool;
    s.request.kind = wire::Kind::kPoolAcquired;
    s.request.pool = analysis::ObjectId{0xa};
    s.pools = {pool_of(s, 0xa, "pool A", 2 * kGiB, 1536 * kMiB), pool_of(s, 0xb, "pool B", 2 * kGiB, 0),
               pool_of(s, 0xc, "pool C", kGiB, kGiB), pool_of(s, 0xd, "pool D", kGiB, 0)};
    s.reclaimable = bytes_of(s, 3584 * kMiB);
    s.cached = s.reclaimable;
    return s;
}

// So many bytes of a framework's allocator, as `framework_of` has them.
inline analysis::Quantity bytes_inside(const analysis::Situation& s, const analysis::Interval& bytes) {
    const analysis::Scope scope = s.physical.in_domain("framework's allocator");
    return bytes.exact() ? analysis::Quantity::derived(report::Quantity::cached, *bytes.low, scope, "told")
                         : analysis::Quantity::bounded(report::Quantity::cached, bytes, scope, "told");
}
inline analysis::Quantity bytes_inside(const analysis::Situation& s, std::uint64_t bytes) {
    return bytes_inside(s, analysis::Interval::exactly(bytes));
}
// A framework's allocator on the situation's device: so much in segments, so much of it live, nothing else known to
// be there.
inline analysis::FrameworkAtFailure framework_of(const analysis::Situation& s, std::uint64_t reserved,
                                                 std::uint64_t live) {
    analysis::FrameworkAtFailure out;
    out.scope = s.physical.in_domain("framework's allocator");
    out.reserved = bytes_inside(s, reserved);
    out.live = bytes_inside(s, live);
    out.cached = out.reclaimable = out.waiting = out.in_gaps = bytes_inside(s, 0);
    return out;
}

// A state of the scenarios' format.
inline analysis::Situation stated(const std::string& events, const std::string& request) {
    const analysis::ScenarioText read =
        analysis::read_scenario(R"({"id": "x", "events": [)" + events + R"(], "request": )" + request + "}");
    REQUIRE_MESSAGE(read.scenario, read.problem);
    return analysis::situation_of(*read.scenario);
}

inline const analysis::Counterfactual* find(const std::vector<analysis::Counterfactual>& rows,
                                            const std::string& id) {
    for (const analysis::Counterfactual& row : rows) {
        if (row.id == id) return &row;
    }
    return nullptr;
}
inline const analysis::Counterfactual& row(const std::vector<analysis::Counterfactual>& rows,
                                           const std::string& id) {
    const analysis::Counterfactual* found = find(rows, id);
    REQUIRE_MESSAGE(found != nullptr, id);
    return *found;
}

inline report::Verdict verdict_of(const analysis::Situation& s) {
    return analysis::verdict_of(s, analysis::counterfactuals_of(s));
}

inline bool has_part(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace fragscope::test
