#include "analysis/moment.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "analysis/callers.h"
#include "analysis/failures.h"

namespace fragscope::analysis {
namespace {

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

// "1.5s": a number and its unit, which no sequence number has.
std::optional<std::uint64_t> time_in(std::string_view text) {
    struct Unit {
        std::string_view name;
        double ns;
    };
    // Those that end in others' names come first.
    for (const Unit& unit : {Unit{"ns", 1}, Unit{"us", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}}) {
        if (!text.ends_with(unit.name)) continue;
        const auto number = number_in<double>(text.substr(0, text.size() - unit.name.size()));
        // 2^63 ns are 292 years: beyond them the conversion would not be exact about anything.
        if (!number || !(*number >= 0) || *number * unit.ns >= 9.2e18) return std::nullopt;
        return static_cast<std::uint64_t>(std::llround(*number * unit.ns));
    }
    return std::nullopt;
}

bool is_asked_for(const AtMarks& marks, const std::string& text) {
    return marks.prefix ? text.starts_with(marks.text) : text == marks.text;
}

struct Asked {
    const Trace& trace;
    ProcessIndex process;
    std::vector<NamedMoment>& found;

    const EventLog& events() const { return trace.events[process.value]; }
    void add(std::size_t index, std::string mark = "") const {
        found.push_back({process, index, std::move(mark)});
    }
    void operator()(const AtSequence& at) const {
        std::size_t end = 0;
        while (end < events().size() && events()[end].sequence.value <= at.sequence) ++end;
        add(end);
    }
    void operator()(const AtTime& at) const {
        const std::uint64_t time = trace.session.start_ns() + at.ns;
        std::size_t end = 0;
        while (end < events().size() && events()[end].start.value + events()[end].duration_ns <= time) ++end;
        add(end);
    }
    void operator()(const AtMarks& marks) const {
        for (std::size_t i = 0; i < events().size(); ++i) {
            if (events()[i].kind != wire::Kind::kMark) continue;
            std::string text = text_of(trace, process, events()[i].object.value);
            if (is_asked_for(marks, text)) add(i + 1, std::move(text));
        }
    }
    void operator()(const AtFailure& at) const {
        const Failure failure = list_failures(trace)[at.number - 1];
        if (failure.process == process) add(snapshot_of(events(), failure.index).moment);
    }
    void operator()(const AtEnd&) const { add(events().size()); }
};

// Why there is no such moment in this trace, where that can be seen at once.
std::string impossible(const Trace& trace, const Where& where, const std::optional<std::uint32_t>& process) {
    if (process && *process >= trace.events.size())
        return fmt::format("there is no process {}: this trace holds {}, numbered from 0", *process,
                           trace.events.size());
    if (const auto* failure = std::get_if<AtFailure>(&where)) {
        const std::vector<Failure> failures = list_failures(trace);
        if (failure->number == 0 || failure->number > failures.size())
            return fmt::format("there is no failed call {}: this trace holds {}, numbered from 1",
                               failure->number, failures.size());
        const ProcessIndex whose = failures[failure->number - 1].process;
        if (process && *process != whose.value)
            return fmt::format("failed call {} is of process {}, not of process {}", failure->number,
                               whose.value, *process);
    }
    if (std::holds_alternative<AtSequence>(where) && !process && trace.events.size() > 1)
        return fmt::format(
            "sequence numbers count the events of one process, and this trace holds {}: say which one with "
            "--process",
            trace.events.size());
    return "";
}

}  // namespace

const char* const kWhereForms =
    "a sequence number, a time since the start (1.5s, 20ms, …), mark:TEXT, mark:TEXT*, failure:N or end";

std::optional<Where> where_of(const std::string& asked) {
    constexpr std::string_view kMark = "mark:";
    constexpr std::string_view kFailure = "failure:";
    if (asked == "end") return AtEnd{};
    if (asked.starts_with(kMark)) {
        AtMarks marks{asked.substr(kMark.size()), false};
        if (marks.text.ends_with('*')) {
            marks.prefix = true;
            marks.text.pop_back();
        }
        return marks;
    }
    if (asked.starts_with(kFailure)) {
        const auto number = number_in<std::uint32_t>(asked.substr(kFailure.size()));
        if (!number) return std::nullopt;
        return AtFailure{*number};
    }
    if (const auto sequence = number_in<std::uint64_t>(asked)) return AtSequence{*sequence};
    if (const auto ns = time_in(asked)) return AtTime{*ns};
    return std::nullopt;
}

Moments moments_of(const Trace& trace, const Where& where, const std::optional<std::uint32_t>& process) {
    Moments out;
    out.why_none = impossible(trace, where, process);
    if (!out.why_none.empty()) return out;
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        if (process && *process != index) continue;
        std::visit(Asked{trace, {index}, out.found}, where);
    }
    if (!out.found.empty()) return out;
    const auto* marks = std::get_if<AtMarks>(&where);
    out.why_none = marks == nullptr
                       ? "this trace holds nothing of such a process"
                       : fmt::format("no mark {} '{}'", marks->prefix ? "begins with" : "is", marks->text);
    return out;
}

}  // namespace fragscope::analysis
