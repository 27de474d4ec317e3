#include "analysis/call_times.h"

#include <algorithm>
#include <string>
#include <utility>
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

TimesByKind call_times_of(const Trace& trace, ProcessIndex process) {
    TimesByKind out;
    if (process.value >= trace.events.size()) return out;
    std::map<Kind, std::vector<std::pair<FunctionId, DurationHistogram>>> seen;
    for (const Event& event : trace.events[process.value]) {
        if (event.failed() || event.duration_ns == 0 || !takes_or_gives(event.kind)) continue;
        if (event.has(wire::kByShim) || event.has(wire::kContinued)) continue;
        auto& functions = seen[event.kind];
        auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const auto& one) { return one.first == event.function; });
        if (found == functions.end()) {
            if (functions.size() == kFunctionsOfAKind) continue;
            found = functions.insert(functions.end(), {event.function, {}});
        }
        found->second.add(event.duration_ns);
    }
    for (const auto& [kind, functions] : seen) {
        const auto most = std::max_element(
            functions.begin(), functions.end(),
            [](const auto& a, const auto& b) { return a.second.count() < b.second.count(); });
        const std::uint32_t name = most->first.value;
        out[kind] = times_in(most->second, name < trace.functions.size() ? trace.functions[name] : "");
    }
    return out;
}

}  // namespace fragscope::analysis
