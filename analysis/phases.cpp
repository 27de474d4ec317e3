#include "analysis/phases.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "analysis/callers.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

// A domain of 0 is the default one.
std::string domain_of(const Trace& trace, const Event& event) {
    return event.address.value == 0 ? "" : text_of(trace, event.process, event.address.value);
}

std::string name_of(const Trace& trace, const Event& event) {
    const std::string domain = domain_of(trace, event);
    const std::string name = text_of(trace, event.process, event.object.value);
    return domain.empty() ? name : domain + ": " + name;
}

// Ranges that are open now. Pushed ones nest within their thread and domain; started ones end by their id,
// wherever that is called.
class OpenRanges {
  public:
    void begin(const Event& event) {
        if (event.extra != 0) {
            started_[event.extra] = event;
        } else {
            pushed_[{event.thread, event.address.value}].push_back(event);
        }
    }
    // The beginning of the range that ends, if it was seen.
    std::optional<Event> end(const Event& event) {
        if (event.extra != 0) {
            const auto found = started_.find(event.extra);
            if (found == started_.end()) return std::nullopt;
            const Event begun = found->second;
            started_.erase(found);
            return begun;
        }
        auto& nest = pushed_[{event.thread, event.address.value}];
        if (nest.empty()) return std::nullopt;
        const Event begun = nest.back();
        nest.pop_back();
        return begun;
    }
    // In order of their beginning.
    std::vector<Event> open() const {
        std::vector<Event> out;
        for (const auto& [id, event] : started_) out.push_back(event);
        for (const auto& [where, nest] : pushed_) out.insert(out.end(), nest.begin(), nest.end());
        std::sort(out.begin(), out.end(),
                  [](const Event& a, const Event& b) { return a.sequence < b.sequence; });
        return out;
    }

  private:
    std::map<std::uint64_t, Event> started_;
    std::map<std::pair<std::int32_t, std::uint64_t>, std::vector<Event>> pushed_;
};

}  // namespace

WhereInProgram where_in_program(const Trace& trace, ProcessIndex process, std::size_t index) {
    WhereInProgram out;
    const auto& events = trace.events[process.value];
    const std::int32_t thread = events[index].thread;
    if (process.value < trace.processes.size()) {
        const auto& names = trace.processes[process.value].thread_names();
        if (const auto name = names.find(thread); name != names.end()) out.thread_name = name->second;
    }
    OpenRanges ranges;
    const Kinds said = kinds_of({Kind::kRangeBegun, Kind::kRangeEnded, Kind::kMark});
    events.for_each_of(said, 0, index, [&](std::size_t, const Event& event) {
        if (event.kind == Kind::kRangeBegun) ranges.begin(event);
        if (event.kind == Kind::kRangeEnded) ranges.end(event);
        if (event.kind == Kind::kMark && event.thread == thread) out.last_mark = name_of(trace, event);
    });
    for (const Event& begun : ranges.open()) {
        if (begun.thread == thread) out.ranges.push_back(name_of(trace, begun));
    }
    return out;
}

std::vector<report::Phase> phases_of(const Trace& trace, ProcessIndex process) {
    struct Named {
        std::optional<Event> longest;
        std::optional<std::uint64_t> ended_ns;
        std::uint64_t times = 0;
        std::uint64_t length(std::uint64_t open) const {
            return ended_ns ? *ended_ns - std::min(longest->start.value, *ended_ns) : open;
        }
    };
    // By name, domain, and whether it is a mark.
    std::map<std::tuple<std::uint64_t, std::uint64_t, bool>, Named> by_name;
    const auto note = [&](const Event& begun, std::optional<std::uint64_t> ended, bool mark) {
        Named& named = by_name[{begun.object.value, begun.address.value, mark}];
        ++named.times;
        Named candidate{begun, ended, 0};
        if (!named.longest || candidate.length(UINT64_MAX) > named.length(UINT64_MAX)) {
            named.longest = begun;
            named.ended_ns = ended;
        }
    };
    OpenRanges ranges;
    if (process.value >= trace.events.size()) return {};
    const Kinds said = kinds_of({Kind::kRangeBegun, Kind::kRangeEnded, Kind::kMark});
    trace.events[process.value].for_each_of(said, [&](std::size_t, const Event& event) {
        if (event.kind == Kind::kMark) note(event, event.start.value, true);
        if (event.kind == Kind::kRangeBegun) ranges.begin(event);
        if (event.kind != Kind::kRangeEnded) return;
        if (const std::optional<Event> begun = ranges.end(event)) note(*begun, event.start.value, false);
    });
    for (const Event& begun : ranges.open()) note(begun, std::nullopt, false);

    std::vector<Named> shown;
    for (const auto& [name, named] : by_name) shown.push_back(named);
    const auto longer = [](const Named& a, const Named& b) {
        return a.length(UINT64_MAX) > b.length(UINT64_MAX);
    };
    std::stable_sort(shown.begin(), shown.end(), longer);
    if (shown.size() > kPhasesShown) shown.resize(kPhasesShown);
    std::sort(shown.begin(), shown.end(),
              [](const Named& a, const Named& b) { return a.longest->sequence < b.longest->sequence; });
    std::vector<report::Phase> out;
    for (const Named& named : shown) {
        report::Phase phase;
        phase.set_name(text_of(trace, process, named.longest->object.value));
        phase.set_domain(domain_of(trace, *named.longest));
        phase.set_begun_ns(since_start(trace, named.longest->start));
        phase.set_mark(named.longest->kind == Kind::kMark);
        if (named.ended_ns && !phase.mark()) phase.set_ended_ns(since_start(trace, TimeNs{*named.ended_ns}));
        phase.set_thread(named.longest->thread);
        phase.set_times(named.times);
        out.push_back(phase);
    }
    return out;
}

}  // namespace fragscope::analysis
