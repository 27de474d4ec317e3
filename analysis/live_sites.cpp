#include "analysis/live_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "analysis/kinds.h"
#include "analysis/losses.h"
#include "analysis/quantity.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

struct Site {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};

std::unordered_map<std::uint32_t, Site> sites_of(const ProcessState& state, int device) {
    std::unordered_map<std::uint32_t, Site> out;
    const auto add = [&](std::uint32_t stack, std::uint64_t bytes) {
        Site& site = out[stack];
        ++site.count;
        site.bytes += bytes;
    };
    state.linear().for_each([&](const Range&, const LinearBlock& block) {
        if (block.device == device && block.kind != wire::Kind::kManagedAcquired)
            add(block.stack, block.requested);
    });
    state.pool_blocks().for_each([&](const Range&, const PoolBlock& block) {
        if (block.device == device) add(block.stack, block.requested);
    });
    state.physical().for_each([&](const Physical& physical) {
        if (physical.on_device && physical.device == device && !physical.maybe_gone)
            add(physical.stack, physical.bytes);
    });
    for (const auto& [id, array] : state.arrays().all()) {
        if (array.owns_memory && array.device == device) add(array.stack, array.texel_bytes);
    }
    return out;
}

std::string why_without(const Trace& trace) {
    if (!trace.session.has_recording()) return "which allocations were to have one is not in the trace";
    const trace::Recording& recording = trace.session.recording();
    if (!recording.has_stack_bytes()) return "call stacks of allocations were not asked for";
    return recording.stack_bytes() == 0 ? "their stacks were not to be had, or were lost"
                                        : fmt::format("call stacks are recorded of allocations from {} on",
                                                      in_words(recording.stack_bytes()));
}

report::LiveAtPeak message_at(const Trace& trace, ProcessIndex process, const ProcessState& state, int device,
                              const Event& event, const StackWords& words) {
    report::LiveAtPeak out;
    const std::string uuid = device_uuid(trace, process, device);
    Scope scope;
    scope.process = process.value;
    scope.device = uuid.empty() ? fmt::format("device {}", device) : uuid;
    scope.snapshot = event.sequence.value;
    scope.time_ns = since_start(trace, event.start);
    out.set_process(process.value);
    out.set_device(scope.device);
    out.set_sequence(event.sequence.value);
    out.set_time_ns(*scope.time_ns);
    const Losses losses = with_contradictions(losses_of(trace, process), state.contradictions());
    const auto quantity = [&](std::uint64_t bytes) {
        const Interval wide = weakened(Interval::exactly(bytes), losses);
        return (wide.exact() ? Quantity::derived(report::Quantity::live, bytes, scope, "sum over its records")
                             : Quantity::bounded(report::Quantity::live, wide, scope, "records are missing"))
            .message();
    };
    std::unordered_map<std::uint32_t, Site> sites = sites_of(state, device);
    *out.mutable_all() = quantity(live_bytes(state, device));
    *out.mutable_without_stack() = quantity(sites[0].bytes);
    if (sites[0].bytes != 0) out.set_without_stack_reason(why_without(trace));
    sites.erase(0);
    std::vector<std::pair<std::uint32_t, Site>> order(sites.begin(), sites.end());
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
        return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
    });
    std::uint64_t others = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        if (i >= kSitesShown) {
            others += order[i].second.bytes;
            continue;
        }
        report::CallSite& site = *out.add_sites();
        site.set_process(process.value);
        site.set_device(scope.device);
        site.set_count(order[i].second.count);
        *site.mutable_bytes() = quantity(order[i].second.bytes);
        *site.mutable_stack() = call_stack_of(trace, process, order[i].first, words).value();
    }
    out.set_other_sites(order.size() - std::min(order.size(), kSitesShown));
    if (out.other_sites() != 0) *out.mutable_in_other_sites() = quantity(others);
    return out;
}

}  // namespace

std::uint64_t live_bytes(const ProcessState& state, int device) {
    const DeviceTotals& totals = state.totals(device);
    return totals.linear_requested + totals.handles + totals.pool_live + totals.array_texels;
}

void FullestMoment::add(const ProcessState& state, const Event& event) {
    const std::size_t index = index_++;
    if (event.failed() || !acquires(event.kind)) return;
    for (const auto& [device, totals] : state.all_totals()) {
        if (device == kNoDevice) continue;
        Most& most = most_[device];
        const std::uint64_t now = live_bytes(state, device);
        if (now > most.bytes) most = {now, index};
    }
}

std::map<int, std::size_t> FullestMoment::moments() const {
    std::map<int, std::size_t> out;
    for (const auto& [device, most] : most_) {
        if (most.bytes != 0) out[device] = most.index;
    }
    return out;
}

void at_moments(
    const Trace& trace, SessionWalk& walk, ProcessIndex process, const std::map<int, std::size_t>& moments,
    const std::function<void(int device, const ProcessState&, const FrameworkState&, const Event&)>& visit) {
    std::multimap<std::size_t, int> order;
    for (const auto& [device, index] : moments) order.emplace(index, device);
    for (const auto& [index, device] : order) {
        const ProcessState& state = walk.at(process, index + 1);
        visit(device, state, walk.framework(process), trace.events[process.value][index]);
    }
}

std::optional<report::LiveAtPeak> live_at_peak(const Trace& trace, ProcessIndex process,
                                               const ProcessState& state, int device, const Event& event,
                                               const StackWords& words) {
    if (process.value >= trace.names.size() || trace.names[process.value].stacks.empty()) return std::nullopt;
    return message_at(trace, process, state, device, event, words);
}

}  // namespace fragscope::analysis
