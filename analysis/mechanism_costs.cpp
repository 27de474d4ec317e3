#include "analysis/mechanism_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

namespace fragscope::analysis {
namespace {

using report::CostPart;

std::uint64_t times_saturated(std::uint64_t a, std::uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

std::uint64_t plus_saturated(std::uint64_t a, std::uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

CostPart part(const char* name, CostPart::Evidence evidence, std::string how, std::string falsified_by = "") {
    CostPart out;
    out.set_part(name);
    out.set_evidence(evidence);
    out.set_how(std::move(how));
    out.set_falsified_by(std::move(falsified_by));
    return out;
}

CostPart none_needed(const char* name, std::string how) {
    CostPart out = part(name, CostPart::none_needed, std::move(how));
    out.set_low_ns(0);
    out.set_high_ns(0);
    return out;
}

void add_call(CostPart& out, const Step& step, const SizedTimes* times) {
    report::CountedCalls& calls = *out.add_calls();
    calls.set_call(call_name(step.call));
    if (step.times.low) calls.set_times_low(*step.times.low);
    if (step.times.high) calls.set_times_high(*step.times.high);
    if (times == nullptr) return;
    if (const auto found = times->times(step.call, step.bytes)) *calls.mutable_times() = *found;
}

// What is to be measured where a step has no durations of its own.
std::string to_measure(const Way& way, const std::set<std::string>& calls) {
    std::string names;
    for (const std::string& call : calls) names += (names.empty() ? "" : ", ") + call;
    return fmt::format("a recording of a program that makes these calls on this device{}: {}",
                       way.unit == 0 ? "" : fmt::format(" in units of {}", in_words(way.unit)), names);
}

// The steps one after the other: a call that is made once between its 10th and its 90th percentile, others
// between their least and their most.
CostPart in_sequence(const char* name, const Way& way, const std::vector<Step>& steps,
                     const SizedTimes* times) {
    CostPart out = part(name, CostPart::measured, "");
    std::set<std::string> missing, elsewhere, more_often;
    std::uint64_t low = 0, high = 0;
    bool open = false;  // how often a call is made has no upper end
    for (const Step& step : steps) {
        if (step.times.high == std::optional<std::uint64_t>(0)) continue;
        add_call(out, step, times);
        const report::CountedCalls& calls = out.calls(out.calls_size() - 1);
        if (!calls.has_times()) {
            missing.insert(calls.call());
            continue;
        }
        if (calls.times().other_sizes()) elsewhere.insert(calls.call());
        if (!step.times.high || *step.times.high > calls.times().count()) more_often.insert(calls.call());
        // What is made many times meets its rare slow calls too: a percentile of one is no bound of the sum.
        const bool once = step.times.high && *step.times.high <= 1;
        low = plus_saturated(low, times_saturated(step.times.low.value_or(0),
                                                  once ? calls.times().p10_ns() : calls.times().least_ns()));
        if (step.times.high)
            high = plus_saturated(high, times_saturated(*step.times.high, once ? calls.times().p90_ns()
                                                                               : calls.times().max_ns()));
        else
            open = true;
    }
    if (!missing.empty()) {
        out.set_evidence(CostPart::hypothesis);
        std::string names;
        for (const std::string& call : missing) names += (names.empty() ? "" : ", ") + call;
        out.set_how("not measured here: " + names);
        out.set_falsified_by(to_measure(way, missing));
        return out;
    }
    out.set_low_ns(low);
    if (!open) out.set_high_ns(high);
    std::string how = "a call that is made once between its 10th and its 90th percentile here, others between their least and their most";
    if (!elsewhere.empty() || !more_often.empty() || open) {
        out.set_evidence(CostPart::hypothesis);
        std::set<std::string> all = elsewhere;
        all.insert(more_often.begin(), more_often.end());
        if (!elsewhere.empty()) how += "; some were seen at other sizes only";
        if (!more_often.empty()) how += "; some would be made more often than they were seen";
        if (open) how += "; how often the call is made is not known";
        out.set_falsified_by(to_measure(way, all));
    } else if (out.calls_size() != 1 || out.calls(0).times_high() != 1) {
        out.set_evidence(CostPart::added);
        how += ", added up: the sum itself was not measured";
    }
    out.set_how(how);
    return out;
}

// The slowest single call of a use: between the largest of the 99th percentiles and the largest duration.
CostPart tail(const Way& way, const std::vector<Step>& steps, const SizedTimes* times) {
    CostPart out = part("tail", CostPart::measured, "");
    std::set<std::string> missing, elsewhere;
    std::uint64_t p99 = 0, most = 0, fewest = UINT64_MAX;
    for (const Step& step : steps) {
        if (step.times.high == std::optional<std::uint64_t>(0)) continue;
        add_call(out, step, times);
        const report::CountedCalls& calls = out.calls(out.calls_size() - 1);
        if (!calls.has_times()) {
            missing.insert(calls.call());
            continue;
        }
        if (calls.times().other_sizes()) elsewhere.insert(calls.call());
        p99 = std::max(p99, calls.times().p99_ns());
        most = std::max(most, calls.times().max_ns());
        fewest = std::min(fewest, calls.times().count());
    }
    if (!missing.empty()) {
        out.set_evidence(CostPart::hypothesis);
        out.set_how("some of its calls were not measured here, and the slowest may be among them");
        out.set_falsified_by(to_measure(way, missing));
        return out;
    }
    out.set_low_ns(p99);
    out.set_high_ns(std::max(p99, most));
    out.set_how(
        fmt::format("the slowest single call: from the 99th percentile to the largest that was seen{}",
                    fewest < 100 ? fmt::format("; of only {} call{}", fewest, fewest == 1 ? "" : "s") : ""));
    // A 99th percentile of few calls is their largest: what a rarer one would take is not known.
    if (!elsewhere.empty() || fewest < 100) {
        out.set_evidence(CostPart::hypothesis);
        out.set_falsified_by(elsewhere.empty() ? "at least 100 calls of each kind"
                                               : to_measure(way, elsewhere));
    } else if (out.calls_size() != 1) {
        out.set_evidence(CostPart::added);
    }
    return out;
}

CostPart translation(const Way& way) {
    if (way.present && way.kind != WayKind::kSegmented)
        return none_needed("translation", "what it is measured against: it stays as it is");
    if (way.kind == WayKind::kCompaction)
        return part("translation", CostPart::hypothesis,
                    "the pages behind the addresses are others than before",
                    "the time of the workload's kernels before and after the move");
    return part(
        "translation", CostPart::hypothesis,
        "no counter was read: neither smaller nor larger pages are known to be faster for this workload",
        "the time of the workload's kernels, and their address translation counters, with both ways");
}

CostPart indirection(const Way& way) {
    if (way.kind != WayKind::kSegmented)
        return none_needed("indirection", "the program sees one range of consecutive addresses");
    return part("indirection", CostPart::hypothesis,
                "every access goes through a table of segments; what that costs its kernels no record says",
                "the time of the kernels that use the memory, with segments and without");
}

CostPart allocator(const Way& way) {
    if (way.kind == WayKind::kDirect || way.kind == WayKind::kPool)
        return none_needed("allocator", "the driver's own bookkeeping is inside its calls");
    return part("allocator", CostPart::hypothesis,
                way.kind == WayKind::kCompaction
                    ? "choosing what to move, and knowing when, is the program's own work"
                    : "which piece serves which address is the program's own bookkeeping",
                "the time that the program spends between these calls");
}

CostPart synchronisation(const Way& way, const SizedTimes* times) {
    const Step wait = {TimedCall::kSynchronize, {1, 1}, 0};
    switch (way.kind) {
        case WayKind::kPool:
            return none_needed("synchronisation",
                               "its calls are ordered in their stream and wait for nothing");
        case WayKind::kDirect:
        case WayKind::kSegmented:
            return part(
                "synchronisation", CostPart::hypothesis,
                "cuMemFree may wait for what the device does; where it did, the wait is inside its durations",
                "the same calls with an idle device");
        default:
            break;
    }
    CostPart out = in_sequence("synchronisation", way, {wait}, times);
    out.set_how(
        "before memory is unmapped nothing may use it any more: a wait of the program's own, as long as what "
        "runs "
        "meanwhile" +
        (out.has_high_ns() ? "; synchronisations took so long here"
                           : std::string("; no synchronisation was timed here")));
    out.set_evidence(CostPart::hypothesis);
    if (out.falsified_by().empty())
        out.set_falsified_by("the wait at the points where this memory is given back");
    return out;
}

const CostPart* named(const std::vector<CostPart>& costs, const char* name) {
    const auto found =
        std::find_if(costs.begin(), costs.end(), [&](const CostPart& c) { return c.part() == name; });
    return found == costs.end() ? nullptr : &*found;
}

bool certain(const CostPart* cost) {
    return cost != nullptr && cost->evidence() != CostPart::hypothesis && cost->has_low_ns() &&
           cost->has_high_ns();
}

std::uint64_t quotient_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b == 0 ? 0 : 1); }

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

std::vector<CostPart> cost_parts_of(const Way& way, const SizedTimes* times) {
    if (way.kind == WayKind::kSmaller) return {};
    std::vector<Step> all = way.setup;
    all.insert(all.end(), way.again.begin(), way.again.end());
    return {in_sequence("setup", way, way.setup, times),
            in_sequence("steady_state", way, way.again, times),
            tail(way, all, times),
            translation(way),
            indirection(way),
            allocator(way),
            synchronisation(way, times)};
}

std::optional<report::Amortisation> amortised(const Way& way, const std::vector<CostPart>& costs,
                                              const std::vector<CostPart>* present_costs,
                                              const Recurrence& reuse) {
    // Compaction is no backing that could be kept, and a granularity that the driver lacks costs nothing at
    // all.
    if (way.kind == WayKind::kCompaction || way.kind == WayKind::kSmaller) return std::nullopt;
    const Interval uses = reuse.uses();
    const CostPart* setup = named(costs, "setup");
    if (!uses.low || !uses.high || *uses.low == 0 || !certain(setup)) return std::nullopt;
    report::Amortisation out;
    out.set_per_use_low_ns(setup->low_ns() / *uses.high);
    out.set_per_use_high_ns(quotient_up(setup->high_ns(), *uses.low));
    out.set_how(fmt::format(
        "time in the driver, if the backing were kept between its uses ({} to {} of them, as seen in "
        "this trace); what the program itself does then is not in it",
        *uses.low, *uses.high));
    const CostPart* before = present_costs == nullptr ? nullptr : named(*present_costs, "setup");
    const CostPart* each = present_costs == nullptr ? nullptr : named(*present_costs, "steady_state");
    if (!certain(before) || !certain(each)) {
        out.set_paid(report::Amortisation::cannot_tell);
        return out;
    }
    // N uses cost `setup` when it is kept, and before + (N - 1) * each in the present way.
    const std::uint64_t more_low = way.present ? 0 : less(setup->low_ns(), before->high_ns());
    const std::uint64_t more_high = way.present ? 0 : less(setup->high_ns(), before->low_ns());
    // What is kept in the same way saves its first repetition already.
    const std::uint64_t least = way.present ? 2 : 1;
    if (each->high_ns() != 0)
        out.set_break_even_low(std::max(least, 1 + quotient_up(more_low, each->high_ns())));
    if (each->low_ns() != 0)
        out.set_break_even_high(std::max(least, 1 + quotient_up(more_high, each->low_ns())));
    if (out.has_break_even_high() && *uses.low >= out.break_even_high())
        out.set_paid(report::Amortisation::yes);
    else if (out.has_break_even_low() && *uses.high < out.break_even_low())
        out.set_paid(report::Amortisation::no);
    else
        out.set_paid(report::Amortisation::cannot_tell);
    return out;
}

}  // namespace fragscope::analysis
