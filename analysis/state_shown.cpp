#include "analysis/state_shown.h"

#include <algorithm>
#include <utility>

#include "analysis/framework.h"
#include "analysis/framework_shown.h"
#include "analysis/hazards.h"
#include "analysis/health.h"
#include "analysis/leaks.h"
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
    if (moment.index == trace.events[process.value].size()) return clock_at_end(trace, process);
    return moment.index == 0 ? trace.session.start_ns()
                             : counts_from(trace.events[process.value][moment.index - 1]);
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

// One process, replayed from moment to moment.
class Replay {
  public:
    Replay(const Trace& trace, ProcessIndex process, const StateQuestion& question)
        : trace_(trace),
          process_(process),
          question_(question),
          state_(state_of(trace, process)),
          hazards_(trace, process) {
        if (question.domain) domain_.emplace(*question.domain);
    }

    void to(std::size_t index) {
        const auto& events = trace_.events[process_.value];
        for (; next_ < index; ++next_) {
            const Event& event = events[next_];
            state_.apply(event);
            framework_.apply(event, state_);
            if (domain_)
                domain_->add(state_, event);
            else
                hazards_.add(state_, event);
        }
    }

    // False: the domain that was asked for is not there.
    bool fill(const NamedMoment& named, const Sharing& sharing, report::State& out) const {
        const std::uint64_t clock = clock_at(trace_, process_, named);
        if (domain_) {
            Scope scope;
            scope.process = process_.value;
            scope.snapshot = out.sequence();
            scope.time_ns = since_start(trace_, {clock});
            const auto shown = domain_->shown(state_, framework_, trace_, process_, scope);
            if (shown) *out.mutable_domain() = *shown;
            return shown.has_value();
        }
        if (question_.driver) {
            show_books(state_, trace_, process_, out);
            show_sharing(sharing, trace_, process_, clock, out);
            add_leaks(named, sharing, clock, out);
        }
        if (question_.framework) {
            for (report::FrameworkAllocator& shown : framework_shown(framework_, trace_, process_))
                *out.add_framework() = std::move(shown);
        }
        return true;
    }

  private:
    void add_leaks(const NamedMoment& named, const Sharing& sharing, std::uint64_t clock,
                   report::State& out) const {
        LeakMoment moment;
        moment.trace = &trace_;
        moment.process = process_;
        moment.state = &state_;
        moment.sequence = out.sequence();
        moment.clock_ns = clock;
        moment.at_the_end = named.index == trace_.events[process_.value].size();
        for (const report::LeakClass& leak : leaks_at(moment, sharing, question_.stack_words))
            *out.add_leaks() = leak;
        for (const report::Hazard& hazard : hazards_at(moment, sharing, &framework_))
            *out.add_hazards() = hazard;
        for (const report::Hazard& hazard : hazards_.found()) *out.add_hazards() = hazard;
    }

    const Trace& trace_;
    ProcessIndex process_;
    const StateQuestion& question_;
    ProcessState state_;
    FrameworkState framework_;
    HazardWatch hazards_;
    std::optional<DomainWatch> domain_;
    std::size_t next_ = 0;
};

}  // namespace

std::string answer_states(const Trace& trace, const StateQuestion& question,
                          const std::function<bool(const report::State&)>& answer) {
    const Moments moments = moments_of(trace, question.where, question.process);
    if (!moments.why_none.empty()) return moments.why_none;
    const report::Health health = health_of(trace);
    const Sharing sharing = sharing_of(trace);
    bool answered = false;
    auto at = moments.found.begin();
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        const ProcessIndex process{index};
        Replay replay(trace, process, question);
        for (; at != moments.found.end() && at->process == process; ++at) {
            replay.to(at->index);
            report::State out = heading_of(trace, question, process, *at);
            *out.mutable_health() = health;
            if (!replay.fill(*at, sharing, out)) continue;
            answered = true;
            if (!answer(out)) return "";
        }
    }
    if (!answered) return "no process had such a pool at that moment";
    return "";
}

}  // namespace fragscope::analysis
