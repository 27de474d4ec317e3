#include "analysis/balances_shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "analysis/rest.h"

namespace fragscope::analysis {
namespace {

struct Shown {
    const Balance* balance = nullptr;
    std::vector<std::string> moments;
};

using Where = std::pair<std::uint32_t, int>;  // process, device

void show(std::map<std::size_t, Shown>& shown, const Balance& balance, const std::string& moment) {
    Shown& entry = shown[balance.index];
    entry.balance = &balance;
    entry.moments.push_back(moment);
}

void add_over_time(const std::vector<Balance>& samples, report::Report& out) {
    for (report::Timeline& timeline : *out.mutable_timelines()) {
        for (const Balance& balance : samples) {
            if (balance.process.value != timeline.process() || balance.device_name != timeline.device())
                continue;
            const Quantity rest = unattributed_of(balance);
            report::UnattributedPoint& point = *timeline.add_unattributed();
            point.set_time_ns(balance.scope.time_ns.value_or(0));
            if (rest.low()) point.set_low_bytes(*rest.low());
            if (rest.high()) point.set_high_bytes(*rest.high());
        }
    }
}

}  // namespace

void add_balances(const Trace& trace, const std::vector<Balance>& samples,
                  const std::vector<FailedAt>& failures, report::Report& out) {
    add_over_time(samples, out);
    std::map<Where, std::map<std::size_t, Shown>> shown;  // by the event's index, so in order
    std::map<Where, std::vector<const Balance*>> by_place;
    for (const Balance& sample : samples) by_place[{sample.process.value, sample.device}].push_back(&sample);
    for (const auto& [where, all] : by_place) {
        const Balance* fullest =
            *std::max_element(all.begin(), all.end(),
                              [](const Balance* a, const Balance* b) { return a->taken() < b->taken(); });
        show(shown[where], *all.front(), "first sample");
        show(shown[where], *fullest, "fullest sample");
        show(shown[where], *all.back(), "last sample");
    }
    for (const FailedAt& failed : failures) {
        show(shown[{failed.balance.process.value, failed.balance.device}], failed.balance,
             fmt::format("failure {}", failed.number));
    }
    for (const auto& [where, line] : shown) {
        std::size_t before = 0;
        for (const auto& [index, entry] : line) {
            report::Balance& message = *out.add_balances();
            message = message_of(*entry.balance);
            for (const std::string& moment : entry.moments) message.add_moments(moment);
            for (const std::string& what : happened_between(trace, entry.balance->process, before, index))
                message.add_since_before(what);
            before = index;
        }
    }
    if (samples.empty()) {
        out.set_balances_missing(
            "Between its calls nobody asked the driver for its numbers in this recording: what no record "
            "explains "
            "is known at failures only.");
    }
}

std::size_t last_asked_before(const Trace& trace, const Balance& balance, std::size_t index) {
    const auto& events = trace.events[balance.process.value];
    return events.last_of(kinds_of({wire::Kind::kDeviceMemory}), std::min(index, events.size()), 0,
                          [&](const Event& event) {
                              return event.device == balance.device && !event.failed() &&
                                     (event.has(wire::kSample) || event.has(wire::kSnapshot));
                          });
}

}  // namespace fragscope::analysis
