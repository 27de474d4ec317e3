#include "analysis/call_times.h"

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/kinds.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

bool takes_or_gives(Kind kind) {
    return acquires(kind) || releases(kind) || kind == Kind::kReserved || kind == Kind::kMapped ||
           kind == Kind::kAccessSet;
}

// A driver has a few functions of each kind; a file that names many more is not worth the memory.
constexpr std::size_t kFunctionsOfAKind = 16;

}  // namespace

report::CallTimes times_in(const DurationHistogram& durations, const std::string& function) {
    report::CallTimes out;
    out.set_function(function);
    out.set_calls(durations.count());
    if (durations.count() == 0) return out;
    out.set_median_ns(durations.quantile(0.5));
    out.set_p90_ns(durations.quantile(0.9));
    out.set_p99_ns(durations.quantile(0.99));
    out.set_max_ns(durations.largest());
    return out;
}

void CallTimesWatch::add(const Event& event) {
    if (event.failed() || event.duration_ns == 0 || !takes_or_gives(event.kind)) return;
    if (event.has(wire::kByShim) || event.has(wire::kContinued)) return;
    std::vector<Timed>& functions = by_kind_[static_cast<std::size_t>(event.kind)];
    auto found = std::find_if(functions.begin(), functions.end(),
                              [&](const Timed& one) { return one.function == event.function; });
    if (found == functions.end()) {
        if (functions.size() == kFunctionsOfAKind) return;
        found = functions.insert(functions.end(), {event.function, {}});
    }
    found->durations.add(event.duration_ns);
}

TimesByKind CallTimesWatch::times(const std::vector<std::string>& functions) const {
    TimesByKind out;
    for (std::size_t kind = 0; kind < by_kind_.size(); ++kind) {
        if (by_kind_[kind].empty()) continue;
        const auto most = std::max_element(
            by_kind_[kind].begin(), by_kind_[kind].end(),
            [](const Timed& a, const Timed& b) { return a.durations.count() < b.durations.count(); });
        const std::uint32_t name = most->function.value;
        out[static_cast<Kind>(kind)] =
            times_in(most->durations, name < functions.size() ? functions[name] : "");
    }
    return out;
}

}  // namespace fragscope::analysis
