#include "analysis/state_shown.h"

#include <fmt/format.h>

#include <vector>

#include "analysis/framework.h"
#include "analysis/framework_shown.h"
#include "analysis/health.h"
#include "analysis/session.h"
#include "analysis/situation.h"
#include "analysis/state_books.h"

namespace fragscope::analysis {

std::string answer_states(const Trace& trace, const StateQuestion& question,
                          const std::function<bool(const report::State&)>& answer) {
    const Moments moments = moments_of(trace, question.where, question.process);
    if (!moments.why_none.empty()) return moments.why_none;
    const report::Health health = health_of(trace);
    auto moment = moments.found.begin();
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        const ProcessIndex process{index};
        const EventLog& events = trace.events[index];
        ProcessState state = state_of(trace, process);
        FrameworkState framework;
        std::size_t next = 0;
        for (; moment != moments.found.end() && moment->process == process; ++moment) {
            for (; next < moment->index; ++next) {
                state.apply(events[next]);
                framework.apply(events[next], state);
            }
            report::State out;
            out.set_trace(trace.path);
            out.set_at(question.asked);
            *out.mutable_health() = health;
            out.set_process(index);
            if (index < trace.processes.size()) {
                if (trace.processes[index].pid() != 0) out.set_pid(trace.processes[index].pid());
                out.set_executable(trace.processes[index].executable());
            }
            if (next != 0) {
                out.set_sequence(events[next - 1].sequence.value);
                out.set_time_ns(since_start(trace, events[next - 1].start));
            }
            out.set_mark(moment->mark);
            if (question.driver) show_books(state, trace, process, out);
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
