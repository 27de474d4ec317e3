#include "analysis/mechanism_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "analysis/quantity.h"

namespace fragscope::analysis {
namespace {

using report::CostPart;
using report::Mechanism;

constexpr std::array<const char*, 8> kObjectives = {
    "memory", "setup", "steady", "tail", "translation", "indirection", "allocator", "synchronisation"};

std::string part_of(const std::string& objective) {
    return objective == "steady" ? "steady_state" : objective;
}

// What one mechanism is known to cost by one objective, or why that is not known.
struct Known {
    std::optional<std::uint64_t> low, high;
    std::string why_not;
    bool there() const { return low && high; }
};

Known known_memory(const Mechanism& mechanism) {
    Known out;
    for (const report::OverheadPart& part : mechanism.overhead()) {
        if (part.part() != "rounding_slack") continue;
        if (!part.bytes().has_low_bytes() || !part.bytes().has_high_bytes()) {
            out.why_not = "what it takes beyond the payload has no upper end";
            return out;
        }
    }
    if (!mechanism.has_overhead_known() || !mechanism.overhead_known().has_low_bytes() ||
        !mechanism.overhead_known().has_high_bytes()) {
        out.why_not = "what it takes beyond the payload is not known";
        return out;
    }
    out.low = mechanism.overhead_known().low_bytes();
    out.high = mechanism.overhead_known().high_bytes();
    return out;
}

Known known_of(const Mechanism& mechanism, const std::string& objective) {
    if (objective == "memory") return known_memory(mechanism);
    Known out;
    for (const CostPart& cost : mechanism.costs()) {
        if (cost.part() != part_of(objective)) continue;
        if (cost.evidence() == CostPart::hypothesis || !cost.has_low_ns() || !cost.has_high_ns()) {
            out.why_not = "only a hypothesis: " + cost.how();
            return out;
        }
        out.low = cost.low_ns();
        out.high = cost.high_ns();
        return out;
    }
    out.why_not = "nothing is known of it";
    return out;
}

std::string in_time(std::uint64_t ns) {
    const double value = static_cast<double>(ns);
    if (ns < 1'000) return fmt::format("{} ns", ns);
    if (ns < 1'000'000) return fmt::format("{:.1f} us", value / 1e3);
    if (ns < 1'000'000'000) return fmt::format("{:.1f} ms", value / 1e6);
    return fmt::format("{:.1f} s", value / 1e9);
}

std::string value_in_words(const Known& known, const std::string& objective) {
    if (objective == "memory") return in_words(Interval{known.low, known.high});
    if (known.low == known.high) return in_time(*known.low);
    return fmt::format("{} to {}", in_time(*known.low), in_time(*known.high));
}

// a is certainly no worse than b in everything, and certainly better in something.
bool dominates(const Mechanism& a, const Mechanism& b) {
    bool better = false;
    for (const char* objective : kObjectives) {
        const Known of_a = known_of(a, objective);
        const Known of_b = known_of(b, objective);
        if (!of_a.there() || !of_b.there()) return false;
        if (*of_a.high > *of_b.low) return false;
        better = better || *of_a.high < *of_b.low;
    }
    return better;
}

// Where the two are not comparable for want of evidence alone.
std::string missing_for_an_order(const report::Comparison& comparison) {
    std::string out;
    for (const char* objective : kObjectives) {
        const bool open = std::any_of(
            comparison.mechanisms().begin(), comparison.mechanisms().end(), [&](const Mechanism& mechanism) {
                return mechanism.standing() != Mechanism::rejected && !known_of(mechanism, objective).there();
            });
        if (open)
            out += (out.empty() ? "" : ", ") +
                   std::string(objective == std::string("steady") ? "steady state" : objective);
    }
    return out;
}

}  // namespace

std::string objectives_in_words() {
    std::string out;
    for (const char* objective : kObjectives) out += (out.empty() ? "" : ", ") + std::string(objective);
    return out;
}

bool is_objective(const std::string& name) {
    return std::find(kObjectives.begin(), kObjectives.end(), name) != kObjectives.end();
}

void find_pareto_set(report::Comparison& comparison) {
    comparison.clear_pareto();
    comparison.clear_dominated();
    for (const Mechanism& mechanism : comparison.mechanisms()) {
        if (mechanism.standing() == Mechanism::rejected) continue;
        const auto& all = comparison.mechanisms();
        const auto better = std::find_if(all.begin(), all.end(), [&](const Mechanism& other) {
            return other.standing() != Mechanism::rejected && dominates(other, mechanism);
        });
        if (better == all.end())
            comparison.add_pareto(mechanism.id());
        else
            comparison.add_dominated(mechanism.id() + ": " + better->id() +
                                     " is at least as good in everything");
    }
    const std::string missing = missing_for_an_order(comparison);
    comparison.set_pareto_note(
        comparison.pareto_size() == 0 ? "None is left: each lacks something that it needs."
        : missing.empty()
            ? "None of these is certainly worse than another in everything."
            : "No priority was declared, and none of these is certainly worse than another: for some, " +
                  missing + " was not measured, and what was not measured excludes nothing.");
}

void rank(report::Comparison& comparison, const std::string& objective) {
    report::Ranking& out = *comparison.mutable_ranking();
    out.Clear();
    out.set_objective(objective);
    struct Row {
        const Mechanism* mechanism;
        Known known;
        std::uint32_t rank = 1;
    };
    std::vector<Row> rows;
    for (const Mechanism& mechanism : comparison.mechanisms()) {
        if (mechanism.standing() == Mechanism::rejected) continue;
        Known known = known_of(mechanism, objective);
        if (!known.there())
            out.add_cannot_be_ranked(mechanism.id() + ": " + known.why_not);
        else
            rows.push_back({&mechanism, std::move(known)});
    }
    for (Row& row : rows) {
        row.rank += static_cast<std::uint32_t>(std::count_if(
            rows.begin(), rows.end(), [&](const Row& other) { return *other.known.high < *row.known.low; }));
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.rank < b.rank; });
    for (const Row& row : rows) {
        report::RankedMechanism& ranked = *out.add_ranked();
        ranked.set_id(row.mechanism->id());
        ranked.set_rank(row.rank);
        ranked.set_value(value_in_words(row.known, objective));
    }
    out.set_note(objective == "memory"
                     ? "By what is known of the bytes beyond the payload; page tables and the driver's own "
                       "metadata are in "
                       "none of them. A feasible one still has to be chosen by everything else that it costs."
                     : "By time in the driver's calls of this trace; 0 ns: it makes no such call at all. Equal "
                       "ranks cannot be told apart.");
}

}  // namespace fragscope::analysis
