#include "analysis/state_shown.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "analysis/callers.h"
#include "analysis/failures.h"
#include "analysis/framework.h"
#include "analysis/framework_shown.h"
#include "analysis/health.h"
#include "analysis/session.h"
#include "analysis/situation.h"
#include "analysis/state_books.h"

namespace fragscope::analysis {
namespace {

// The state before the event of this index.
struct Moment {
    std::size_t index = 0;
    std::string mark;
};

template <typename Number>
std::optional<Number> number_in(const std::string& text) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

bool is_asked_for(const AtMarks& marks, const std::string& text) {
    return marks.prefix ? text.compare(0, marks.text.size(), marks.text) == 0 : text == marks.text;
}

struct Asked {
    const Trace& trace;
    ProcessIndex process;

    std::vector<Moment> operator()(const AtSequence& at) const {
        const std::vector<Event>& events = trace.events[process.value];
        std::size_t end = 0;
        while (end < events.size() && events[end].sequence.value <= at.sequence) ++end;
        return {{end, ""}};
    }
    std::vector<Moment> operator()(const AtMarks& marks) const {
        std::vector<Moment> out;
        const std::vector<Event>& events = trace.events[process.value];
        for (std::size_t i = 0; i < events.size(); ++i) {
            if (events[i].kind != wire::Kind::kMark) continue;
            std::string text = text_of(trace, process, events[i].object.value);
            if (is_asked_for(marks, text)) out.push_back({i + 1, std::move(text)});
        }
        return out;
    }
    std::vector<Moment> operator()(const AtFailure& at) const {
        const std::vector<Failure> failures = list_failures(trace);
        const Failure& failure = failures[at.number - 1];
        if (failure.process != process) return {};
        return {{snapshot_of(trace.events[process.value], failure.index).moment, ""}};
    }
    std::vector<Moment> operator()(const AtEnd&) const { return {{trace.events[process.value].size(), ""}}; }
};

// Why the question has no answer in this trace, where that can be seen at once.
std::string unanswerable(const Trace& trace, const StateQuestion& question) {
    if (question.process && *question.process >= trace.events.size())
        return fmt::format("there is no process {}: this trace holds {}, numbered from 0", *question.process,
                           trace.events.size());
    if (const auto* failure = std::get_if<AtFailure>(&question.where)) {
        const std::vector<Failure> failures = list_failures(trace);
        if (failure->number == 0 || failure->number > failures.size())
            return fmt::format("there is no failed call {}: this trace holds {}, numbered from 1",
                               failure->number, failures.size());
        const ProcessIndex whose = failures[failure->number - 1].process;
        if (question.process && *question.process != whose.value)
            return fmt::format("failed call {} is of process {}, not of process {}", failure->number,
                               whose.value, *question.process);
    }
    if (std::holds_alternative<AtSequence>(question.where) && !question.process && trace.events.size() > 1)
        return fmt::format(
            "sequence numbers count the events of one process, and this trace holds {}: say which one with "
            "--process",
            trace.events.size());
    return "";
}

}  // namespace

std::optional<StateQuestion> state_question(const std::string& asked) {
    StateQuestion out;
    out.asked = asked;
    constexpr std::string_view kMark = "mark:";
    constexpr std::string_view kFailure = "failure:";
    if (asked == "end") {
        out.where = AtEnd{};
    } else if (asked.rfind(kMark, 0) == 0) {
        AtMarks marks{asked.substr(kMark.size()), false};
        if (!marks.text.empty() && marks.text.back() == '*') {
            marks.prefix = true;
            marks.text.pop_back();
        }
        out.where = marks;
    } else if (asked.rfind(kFailure, 0) == 0) {
        const auto number = number_in<std::uint32_t>(asked.substr(kFailure.size()));
        if (!number) return std::nullopt;
        out.where = AtFailure{*number};
    } else {
        const auto number = number_in<std::uint64_t>(asked);
        if (!number) return std::nullopt;
        out.where = AtSequence{*number};
    }
    return out;
}

std::string answer_states(const Trace& trace, const StateQuestion& question,
                          const std::function<bool(const report::State&)>& answer) {
    if (std::string why = unanswerable(trace, question); !why.empty()) return why;
    const report::Health health = health_of(trace);
    std::size_t answers = 0;
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        if (question.process && *question.process != index) continue;
        const ProcessIndex process{index};
        const std::vector<Event>& events = trace.events[index];
        ProcessState state = state_of(trace, process);
        FrameworkState framework;
        std::size_t next = 0;
        for (const Moment& moment : std::visit(Asked{trace, process}, question.where)) {
            for (; next < moment.index; ++next) {
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
            out.set_mark(moment.mark);
            if (question.driver) show_books(state, trace, process, out);
            if (question.framework) {
                for (report::FrameworkAllocator& shown : framework_shown(framework, trace, process))
                    *out.add_framework() = std::move(shown);
            }
            ++answers;
            if (!answer(out)) return "";
        }
    }
    if (answers != 0) return "";
    const auto* marks = std::get_if<AtMarks>(&question.where);
    if (marks == nullptr) return "this trace holds nothing of such a process";
    return fmt::format("no mark {} '{}'", marks->prefix ? "begins with" : "is", marks->text);
}

}  // namespace fragscope::analysis
