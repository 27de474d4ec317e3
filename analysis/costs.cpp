#include "analysis/costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fragscope::analysis {

std::uint64_t DurationHistogram::end_of(std::size_t bucket) {
    if (bucket < 2 * kSteps) return bucket;
    const std::size_t shift = bucket / kSteps - 1;
    const std::uint64_t mantissa = bucket % kSteps + kSteps;
    return ((mantissa + 1) << shift) - 1;
}

std::uint64_t DurationHistogram::quantile(double share) const {
    if (count_ == 0) return 0;
    const auto wanted = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_))));
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
        seen += counts_[bucket];
        if (seen >= wanted) return std::min(end_of(bucket), largest_);
    }
    return largest_;
}

std::vector<report::FunctionCost> costs_of(const Trace& trace) {
    struct Cost {
        DurationHistogram durations;  // of the calls that have one
        std::uint64_t calls = 0;
        std::uint64_t failed = 0;
        double sum = 0;
    };
    std::vector<Cost> costs(trace.functions.size());
    for (const auto& events : trace.events) {
        events.for_each(0, events.size(), [&](std::size_t, const Event& event) {
            // Not calls of the program: the shim's questions, further records of one call, records of no
            // call.
            if (event.has(wire::kByShim) || event.has(wire::kContinued)) return;
            // Sent once for each growth of what was written, not once for each call.
            if (event.kind == wire::Kind::kTouched) return;
            // Told by a framework of its own blocks; no calls of the driver.
            if (event.kind >= wire::Kind::kBlockAcquired && event.kind <= wire::Kind::kBlockStream) return;
            if (event.function.value >= trace.functions.size() ||
                trace.functions[event.function.value].empty())
                return;
            Cost& cost = costs[event.function.value];
            ++cost.calls;
            if (event.failed()) ++cost.failed;
            // No call takes no time: zero stands for a duration that was not taken.
            if (event.duration_ns == 0) return;
            cost.durations.add(event.duration_ns);
            cost.sum += static_cast<double>(event.duration_ns);
        });
    }
    std::vector<std::pair<double, report::FunctionCost>> sorted;
    for (std::size_t function = 0; function < costs.size(); ++function) {
        const Cost& cost = costs[function];
        if (cost.calls == 0) continue;
        report::FunctionCost out;
        out.set_function(trace.functions[function]);
        out.set_calls(cost.calls);
        out.set_failed(cost.failed);
        if (cost.durations.count() != 0) {
            out.set_median_ns(cost.durations.quantile(0.5));
            out.set_p99_ns(cost.durations.quantile(0.99));
            out.set_max_ns(cost.durations.largest());
        }
        sorted.emplace_back(cost.sum, out);
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<report::FunctionCost> out;
    for (auto& [sum, cost] : sorted) out.push_back(std::move(cost));
    return out;
}

}  // namespace fragscope::analysis
