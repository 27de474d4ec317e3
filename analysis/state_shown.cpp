#include "analysis/state_shown.h"

#include <algorithm>
#include <utility>

#include "analysis/framework.h"
#include "analysis/framework_shown.h"
#include "analysis/health.h"
#include "analysis/session.h"
#include "analysis/sharing.h"
#include "analysis/situation.h"
#include "analysis/state_books.h"

namespace fragscope::analysis {
namespace {

// Calls that had begun by then and do not count yet.
std::uint64_t under_way_at(const Trace& trace, ProcessIndex process, std::uint64_t time_ns) {
    const auto& events = trace.events[process.value];
    std::uint64_t count = 0;
    for (const Event& event : events) {
        if (event.start.value <= time_ns && counts_from(event) > time_ns && !event.has(wire::kContinued))
            ++count;
    }
    return count;
}

// The session's clock at the moment: where none was asked for, when the last event counted; at the end of the
// events, the last moment of the process.
std::uint64_t clock_at(const Trace& trace, ProcessIndex process, const NamedMoment& moment) {
    if (moment.time_ns) return *moment.time_ns;
    const auto& events = trace.events[process.value];
    std::uint64_t out = trace.session.start_ns();
    if (moment.index != 0) out = std::max(out, counts_from(events[moment.index - 1]));
    if (moment.index == events.size() && process.value < trace.processes.size())
        out = std::max(out, std::max<std::uint64_t>(trace.processes[process.value].ended_ns(), 1) - 1);
    return out;
}

report::State heading_of(const Trace& trace, const StateQuestion& question, ProcessIndex process,
                         const NamedMoment& moment) {
    report::State out;
    out.set_trace(trace.path);
    out.set_at(question.asked);
    out.set_process(process.value);
    out.set_mark(moment.mark);
    if (moment.index != 0) {
        const Event& last = trace.events[process.value][moment.index - 1];
        out.set_sequence(last.sequence.value);
        out.set_time_ns(since_start(trace, last.start));
    }
    if (moment.time_ns) {
        out.set_asked_ns(since_start(trace, {*moment.time_ns}));
        out.set_calls_under_way(under_way_at(trace, process, *moment.time_ns));
    }
    if (process.value >= trace.processes.size()) return out;
    const trace::Process& one = trace.processes[process.value];
    if (one.pid() != 0) out.set_pid(one.pid());
    out.set_executable(one.executable());
    out.set_ended(moment.time_ns && one.has_ended_ns() && one.ended_ns() <= *moment.time_ns);
    return out;
}

}  // namespace

std::string answer_states(const Trace& trace, const StateQuestion& question,
                          const std::function<bool(const report::State&)>& answer) {
    const Moments moments = moments_of(trace, question.where, question.process);
    if (!moments.why_none.empty()) return moments.why_none;
    const report::Health health = health_of(trace);
    const Sharing sharing = sharing_of(trace);
    auto at = moments.found.begin();
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        const ProcessIndex process{index};
        const auto& events = trace.events[index];
        ProcessState state = state_of(trace, process);
        FrameworkState framework;
        std::size_t next = 0;
        for (; at != moments.found.end() && at->process == process; ++at) {
            const NamedMoment& moment = *at;
            for (; next < moment.index; ++next) {
                state.apply(events[next]);
                framework.apply(events[next], state);
            }
            report::State out = heading_of(trace, question, process, moment);
            *out.mutable_health() = health;
            if (question.driver) {
                show_books(state, trace, process, out);
                show_sharing(sharing, trace, process, clock_at(trace, process, moment), out);
            }
            if (question.framework) {
                for (report::FrameworkAllocator& shown : framework_shown(framework, trace, process))
                    *out.add_framework() = std::move(shown);
            }
            if (!answer(out)) return "";
        }
    }
    return "";
}

}  // namespace fragscope::analysis
