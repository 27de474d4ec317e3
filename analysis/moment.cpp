#include "analysis/moment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>

#include "analysis/callers.h"
#include "analysis/charged.h"
#include "analysis/failures.h"
#include "analysis/quantity.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

struct Unit {
    std::string_view name;
    std::uint64_t ns;
};
// Longer names first: "s" ends all but one of the others.
constexpr std::array<Unit, 5> kUnits = {
    {{"min", 60'000'000'000}, {"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};

// "1.5s"; what is below a nanosecond is cut off. Nothing: no such time, or more than 64 bits hold.
std::optional<std::uint64_t> time_in(std::string_view text) {
    for (const Unit& unit : kUnits) {
        if (text.size() <= unit.name.size() || text.substr(text.size() - unit.name.size()) != unit.name)
            continue;
        const std::string_view number = text.substr(0, text.size() - unit.name.size());
        const std::size_t point = number.find('.');
        const auto whole = number_in<std::uint64_t>(number.substr(0, point));
        if (!whole || *whole > UINT64_MAX / unit.ns) return std::nullopt;
        std::uint64_t ns = *whole * unit.ns;
        if (point == std::string_view::npos) return ns;
        const std::string_view digits = number.substr(point + 1);
        if (digits.empty()) return std::nullopt;
        std::uint64_t place = unit.ns;
        for (const char digit : digits) {
            if (digit < '0' || digit > '9') return std::nullopt;
            // The units are no powers of ten: a minute's tenth is six seconds, its digits below a nanosecond
            // are nothing.
            place /= 10;
            const std::uint64_t more = place * static_cast<std::uint64_t>(digit - '0');
            if (more > UINT64_MAX - ns) return std::nullopt;
            ns += more;
        }
        return ns;
    }
    return std::nullopt;
}

// Exact, without zeros at the end: "4.2".
std::string seconds(std::uint64_t ns) {
    std::string out = fmt::format("{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
    return out;
}

bool is_asked_for(const AtMarks& marks, const std::string& text) {
    return marks.prefix ? text.compare(0, marks.text.size(), marks.text) == 0 : text == marks.text;
}

bool same_letters(std::string_view beginning, std::string_view text) {
    return beginning.size() <= text.size() &&
           std::equal(beginning.begin(), beginning.end(), text.begin(), [](char a, char b) {
               return std::tolower(static_cast<unsigned char>(a)) ==
                      std::tolower(static_cast<unsigned char>(b));
           });
}

// Which device of each process is meant.
struct NamedDevice {
    std::vector<int> ordinals;  // by process; kNoDevice where it is not its
    std::string why_not;
};

NamedDevice by_ordinal(const Trace& trace, std::uint32_t number, std::optional<std::uint32_t> only) {
    NamedDevice out;
    std::set<std::string> meant;
    for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
        const int ordinal = number <= INT16_MAX && device_of(trace, {process}, static_cast<int>(number))
                                ? static_cast<int>(number)
                                : kNoDevice;
        out.ordinals.push_back(only && *only != process ? kNoDevice : ordinal);
        if (out.ordinals.back() == kNoDevice) continue;
        // Without a UUID nothing tells whether it is the same device as another process's.
        const std::string uuid = device_uuid(trace, {process}, ordinal);
        meant.insert(uuid.empty() ? fmt::format("device {} of process {}", ordinal, process) : uuid);
    }
    if (meant.empty()) {
        out.why_not = only ? fmt::format("process {} has no device {}", *only, number)
                           : fmt::format("no process of this trace has a device {}", number);
    } else if (meant.size() > 1) {
        out.why_not = fmt::format(
            "device {} is not the same one in every process ({}): say which process with --process, or name "
            "the device by its UUID",
            number, fmt::join(meant, ", "));
    }
    return out;
}

NamedDevice by_uuid(const Trace& trace, const std::string& beginning, std::optional<std::uint32_t> only) {
    NamedDevice out;
    std::set<std::string> known, meant;
    for (std::uint32_t process = 0; process < trace.processes.size(); ++process) {
        if (only && *only != process) continue;
        for (const trace::Device& device : trace.processes[process].devices()) {
            const std::string uuid = device_uuid(trace, {process}, static_cast<int>(device.ordinal()));
            if (uuid.empty()) continue;
            known.insert(uuid);
            // With "GPU-" or without.
            if (same_letters(beginning, uuid) || same_letters(beginning, std::string_view(uuid).substr(4)))
                meant.insert(uuid);
        }
    }
    if (meant.empty()) {
        out.why_not = known.empty() ? "no device of this trace has a UUID: name it by its ordinal"
                                    : fmt::format("no device's UUID begins with '{}'; there is {}", beginning,
                                                  fmt::join(known, ", "));
    } else if (meant.size() > 1) {
        out.why_not = fmt::format("'{}' begins more than one UUID: {}", beginning, fmt::join(meant, ", "));
    } else {
        for (std::uint32_t process = 0; process < trace.events.size(); ++process)
            out.ordinals.push_back(only && *only != process ? kNoDevice
                                                            : ordinal_of(trace, {process}, *meant.begin()));
    }
    return out;
}

// What the process holds there at least, by its records.
std::uint64_t held_on(const ProcessState& state, int ordinal) {
    return charged_by_records(state, ordinal).low.value_or(0);
}

// Goes through all processes together, in the order in which their events counted.
class TogetherInTime {
  public:
    TogetherInTime(const Trace& trace, std::vector<int> ordinals)
        : trace_(trace), ordinals_(std::move(ordinals)) {
        for (std::uint32_t process = 0; process < trace.events.size(); ++process) {
            cursors_.push_back({state_of(trace, {process}), 0, 0, 0, false});
            look_ahead(process);
        }
    }

    // One event, or the end of a process. False: there is nothing left.
    bool step() {
        std::optional<std::uint32_t> first;
        for (std::uint32_t process = 0; process < cursors_.size(); ++process) {
            if (ordinals_[process] == kNoDevice || cursors_[process].ended) continue;
            if (!first || cursors_[process].next_time < cursors_[*first].next_time) first = process;
        }
        if (!first) return false;
        Cursor& cursor = cursors_[*first];
        now_ = std::max(now_, cursor.next_time);
        sum_ -= cursor.held;
        if (cursor.next < trace_.events[*first].size()) {
            cursor.state.apply(trace_.events[*first][cursor.next]);
            ++cursor.next;
            cursor.held = held_on(cursor.state, ordinals_[*first]);
        } else {
            cursor.ended = true;
            cursor.held = 0;
        }
        sum_ += cursor.held;
        look_ahead(*first);
        return true;
    }

    std::uint64_t sum() const { return sum_; }
    std::uint64_t time_ns() const { return now_; }
    std::vector<std::size_t> places() const {
        std::vector<std::size_t> out;
        for (const Cursor& cursor : cursors_) out.push_back(cursor.next);
        return out;
    }

  private:
    struct Cursor {
        ProcessState state;
        std::size_t next;
        std::uint64_t next_time;  // when the next event counts; never falls
        std::uint64_t held;
        bool ended;  // the driver took everything back, or the recording says no more
    };

    void look_ahead(std::uint32_t process) {
        Cursor& cursor = cursors_[process];
        const auto& events = trace_.events[process];
        if (cursor.next < events.size()) {
            cursor.next_time = std::max(cursor.next_time, counts_from(events[cursor.next]));
        } else if (process < trace_.processes.size() && trace_.processes[process].has_ended_ns()) {
            cursor.next_time = std::max(cursor.next_time, trace_.processes[process].ended_ns());
        } else {
            cursor.next_time = UINT64_MAX;
        }
    }

    const Trace& trace_;
    std::vector<int> ordinals_;
    std::vector<Cursor> cursors_;
    std::uint64_t sum_ = 0;
    std::uint64_t now_ = 0;
};

class Finder {
  public:
    Finder(const Trace& trace, std::optional<std::uint32_t> only) : trace_(trace), only_(only) {}

    Moments operator()(const AtSequence& at) {
        if (!only_ && trace_.events.size() > 1) {
            return none(fmt::format(
                "sequence numbers count the events of one process, and this trace holds {}: say which one "
                "with --process",
                trace_.events.size()));
        }
        for_each_asked([&](ProcessIndex process) {
            const auto& events = trace_.events[process.value];
            const auto behind = std::upper_bound(
                events.begin(), events.end(), at.sequence,
                [](std::uint64_t asked, const Event& event) { return asked < event.sequence.value; });
            add(process, static_cast<std::size_t>(behind - events.begin()));
        });
        return std::move(out_);
    }

    Moments operator()(const AtMarks& marks) {
        for_each_asked([&](ProcessIndex process) {
            const auto& events = trace_.events[process.value];
            events.for_each_of(kinds_of({wire::Kind::kMark}), [&](std::size_t i, const Event& event) {
                std::string text = text_of(trace_, process, event.object.value);
                if (is_asked_for(marks, text)) out_.found.push_back({process, i + 1, std::move(text), {}});
            });
        });
        return out_.found.empty()
                   ? none(fmt::format("no mark {} '{}'", marks.prefix ? "begins with" : "is", marks.text))
                   : std::move(out_);
    }

    Moments operator()(const AtFailure& at) {
        const std::vector<Failure> failures = list_failures(trace_);
        if (at.number == 0 || at.number > failures.size())
            return none(fmt::format("there is no failed call {}: this trace holds {}, numbered from 1",
                                    at.number, failures.size()));
        const Failure& failure = failures[at.number - 1];
        if (only_ && *only_ != failure.process.value)
            return none(fmt::format("failed call {} is of process {}, not of process {}", at.number,
                                    failure.process.value, *only_));
        add(failure.process, snapshot_of(trace_.events[failure.process.value], failure.index).moment);
        return std::move(out_);
    }

    Moments operator()(const AtEnd&) {
        for_each_asked([&](ProcessIndex process) { add(process, trace_.events[process.value].size()); });
        return std::move(out_);
    }

    Moments operator()(const AtTime& at) {
        const std::uint64_t lasted = duration_of(trace_);
        if (at.ns > lasted)
            return none(fmt::format("the recording lasted {} s: no moment lies {} s after its start",
                                    seconds(lasted), seconds(at.ns)));
        const std::uint64_t time = trace_.session.start_ns() + at.ns;
        for_each_asked([&](ProcessIndex process) { add(process, index_at(trace_, process, time), time); });
        return std::move(out_);
    }

    Moments operator()(const AtPeak& at) {
        const auto number = number_in<std::uint32_t>(at.device);
        NamedDevice named = number ? by_ordinal(trace_, *number, only_) : by_uuid(trace_, at.device, only_);
        // A UUID may begin with a few digits.
        if (number && !named.why_not.empty()) {
            NamedDevice other = by_uuid(trace_, at.device, only_);
            if (other.why_not.empty()) named = std::move(other);
        }
        if (!named.why_not.empty()) return none(named.why_not);
        TogetherInTime together(trace_, named.ordinals);
        std::uint64_t most = 0;
        std::uint64_t when = 0;
        std::vector<std::size_t> places;
        while (together.step()) {
            if (together.sum() <= most) continue;
            most = together.sum();
            when = together.time_ns();
            places = together.places();
        }
        if (most == 0)
            return none(fmt::format(
                "by the records {} on device {} at any time",
                only_ ? fmt::format("process {} held nothing", *only_) : "no process held anything",
                at.device));
        for_each_asked([&](ProcessIndex process) {
            const bool uses = named.ordinals[process.value] != kNoDevice;
            add(process, uses ? places[process.value] : index_at(trace_, process, when), when);
        });
        return std::move(out_);
    }

  private:
    template <typename Visit>
    void for_each_asked(Visit&& visit) {
        for (std::uint32_t process = 0; process < trace_.events.size(); ++process) {
            if (!only_ || *only_ == process) visit(ProcessIndex{process});
        }
    }
    void add(ProcessIndex process, std::size_t index, std::optional<std::uint64_t> time_ns = std::nullopt) {
        out_.found.push_back({process, index, "", time_ns});
    }
    static Moments none(std::string why) { return {{}, std::move(why)}; }

    const Trace& trace_;
    std::optional<std::uint32_t> only_;
    Moments out_;
};

}  // namespace

const char* const kWhereForms =
    "a sequence number, a time since the start with its unit (1.5s, 20ms, …), mark:TEXT, mark:TEXT*, "
    "failure:N, "
    "peak:DEVICE or end";

std::optional<Where> where_of(const std::string& asked) {
    constexpr std::string_view kMark = "mark:", kFailure = "failure:", kTime = "time:", kPeak = "peak:";
    const auto behind = [&](std::string_view word) -> std::optional<std::string> {
        return asked.rfind(word, 0) == 0 ? std::optional(asked.substr(word.size())) : std::nullopt;
    };
    if (asked == "end") return AtEnd{};
    if (auto text = behind(kMark)) {
        AtMarks marks{std::move(*text), false};
        if (!marks.text.empty() && marks.text.back() == '*') {
            marks.prefix = true;
            marks.text.pop_back();
        }
        return marks;
    }
    if (const auto text = behind(kFailure)) {
        const auto number = number_in<std::uint32_t>(*text);
        return number ? std::optional<Where>(AtFailure{*number}) : std::nullopt;
    }
    if (const auto text = behind(kPeak))
        return text->empty() ? std::nullopt : std::optional<Where>(AtPeak{*text});
    const auto timed = behind(kTime);
    if (const auto ns = time_in(timed.value_or(asked))) return AtTime{*ns};
    if (timed) return std::nullopt;
    const auto number = number_in<std::uint64_t>(asked);
    return number ? std::optional<Where>(AtSequence{*number}) : std::nullopt;
}

Moments moments_of(const Trace& trace, const Where& where, const std::optional<std::uint32_t>& process) {
    if (process && *process >= trace.events.size())
        return {{},
                fmt::format("there is no process {}: this trace holds {}, numbered from 0", *process,
                            trace.events.size())};
    if (trace.events.empty()) return {{}, "this trace holds no process"};
    return std::visit(Finder(trace, process), where);
}

std::uint64_t counts_from(const Event& event) {
    using wire::Kind;
    switch (event.kind) {
        case Kind::kLinearReleased:
        case Kind::kHostReleased:
        case Kind::kHostUnregistered:
        case Kind::kReservationFreed:
        case Kind::kHandleReleased:
        case Kind::kUnmapped:
        case Kind::kPoolReleased:
        case Kind::kPoolDestroyed:
        case Kind::kContextDestroyed:
        case Kind::kPrimaryReleased:
        case Kind::kPrimaryReset:
        case Kind::kArrayReleased:
        case Kind::kIpcClosed:
        case Kind::kExternalReleased:
        case Kind::kGraphicsUnmapped:
        case Kind::kGraphicsReleased:
        case Kind::kMulticastUnbound:
        case Kind::kGraphExecReleased:
        case Kind::kGraphReleased:
        case Kind::kModuleUnloaded:
            return event.start.value;
        default:
            return event.duration_ns > UINT64_MAX - event.start.value ? UINT64_MAX
                                                                      : event.start.value + event.duration_ns;
    }
}

std::size_t index_at(const Trace& trace, ProcessIndex process, std::uint64_t time_ns) {
    const auto& events = trace.events[process.value];
    std::size_t index = 0;
    while (index < events.size() && counts_from(events[index]) <= time_ns) ++index;
    return index;
}

std::uint64_t clock_at_end(const Trace& trace, ProcessIndex process) {
    const auto& events = trace.events[process.value];
    std::uint64_t out = trace.session.start_ns();
    if (!events.empty()) out = std::max(out, counts_from(events[events.size() - 1]));
    if (process.value < trace.processes.size())
        out = std::max(out, std::max<std::uint64_t>(trace.processes[process.value].ended_ns(), 1) - 1);
    return out;
}

std::uint64_t duration_of(const Trace& trace) {
    std::uint64_t end = trace.end.end_ns();
    for (const auto& events : trace.events) {
        for (const Event& event : events) end = std::max(end, event.start.value + event.duration_ns);
    }
    return since_start(trace, {end});
}

}  // namespace fragscope::analysis
