// `fragscope dump`: a trace's events in words or as JSON, one a line, filtered.
#include <fmt/format.h>
#include <fnmatch.h>

#include <cstdio>
#include <limits>
#include <queue>
#include <string>
#include <vector>

#include "analysis/read/kind_name.h"
#include "analysis/read/result_name.h"
#include "analysis/read/trace_reader.h"
#include "tools/command.h"
#include "tools/words.h"
#include "tools/words_json.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

namespace {

using analysis::Event;
using analysis::Trace;

struct Filter {
    std::optional<std::uint32_t> process;
    std::string function;  // glob; empty: all
    std::optional<wire::Kind> kind;
    bool failed = false;
    double from_s = 0.0;  // since the session's start
    double to_s = std::numeric_limits<double>::infinity();
    std::optional<std::uint64_t> address;
};

double seconds(const Trace& trace, const Event& event) {
    return static_cast<double>(static_cast<std::int64_t>(event.start.value - trace.session.start_ns())) / 1e9;
}

bool passes(const Filter& filter, const Trace& trace, const Event& event) {
    if (filter.process && event.process.value != *filter.process) return false;
    if (filter.kind && event.kind != *filter.kind) return false;
    if (filter.failed && !event.failed()) return false;
    const double at = seconds(trace, event);
    if (at < filter.from_s || at > filter.to_s) return false;
    if (filter.address) {
        const std::uint64_t begin = event.address.value;
        if (begin == 0 || *filter.address < begin) return false;
        if (*filter.address != begin && *filter.address - begin >= event.bytes.value) return false;
    }
    return filter.function.empty() ||
           ::fnmatch(filter.function.c_str(), trace.functions[event.function.value].c_str(), 0) == 0;
}

std::vector<std::string> flag_names(std::uint16_t flags) {
    static constexpr std::pair<wire::Flag, const char*> kNames[] = {
        {wire::kByShim, "by_recorder"},
        {wire::kCaptured, "captured"},
        {wire::kCaptureUnknown, "capture_unknown"},
        {wire::kContinued, "continued"},
        {wire::kUnknownDevice, "device_unknown"},
        {wire::kNoContext, "no_context"},
        {wire::kPerThreadStream, "per_thread_stream"},
        {wire::kSnapshot, "snapshot"},
        {wire::kDurationFull, "duration_at_least"},
    };
    std::vector<std::string> out;
    for (const auto& [flag, name] : kNames)
        if ((flags & flag) != 0) out.emplace_back(name);
    return out;
}

// A JSON string: the text is UTF-8 already, as protobuf demands.
std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += {'\\', c};
        else if (static_cast<unsigned char>(c) < 0x20)
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
            out += c;
    }
    return out + "\"";
}

std::string json_event(const Trace& trace, const Event& event) {
    const trace::Process& process = trace.processes[event.process.value];
    std::string flags;
    for (const std::string& name : flag_names(event.flags))
        flags += (flags.empty() ? "" : ",") + quoted(name);
    return fmt::format(
        R"({{"time_ns":{},"process":{},"pid":{},"thread":{},"sequence":{},"function":{},"kind":{},"address":"{:#x}",)"
        R"("bytes":{},"object":"{:#x}","extra":"{:#x}","device":{},"result":{},"result_name":{},"duration_ns":{},)"
        R"("stack":{},"flags":[{}]}})",
        static_cast<std::int64_t>(event.start.value - trace.session.start_ns()), event.process.value,
        process.pid(), event.thread, event.sequence.value, quoted(trace.functions[event.function.value]),
        quoted(std::string(analysis::kind_name(event.kind).id)), event.address.value, event.bytes.value,
        event.object.value, event.extra,
        event.device == analysis::kNoDevice ? "null" : std::to_string(event.device), event.result,
        quoted(analysis::result_name(event.result)), event.duration_ns, event.stack, flags);
}

std::string text_event(const Trace& trace, const Event& event, const Style& style) {
    std::string line = fmt::format("{:>13.6f}  {:>3}  {:>7}  {:>6}  {:<30}  {:<33}", seconds(trace, event),
                                   event.process.value, event.thread, event.sequence.value,
                                   printable(trace.functions[event.function.value], style.utf8),
                                   analysis::kind_name(event.kind).words);
    line += event.address.value != 0 ? fmt::format("  {:#14x}", event.address.value)
                                     : fmt::format("  {:>14}", "-");
    line += event.bytes.value != 0 ? fmt::format("  {:>12} {:<12}", event.bytes.value,
                                                 "(" + human_bytes(event.bytes.value) + ")")
                                   : fmt::format("  {:>12} {:<12}", "-", "");
    line +=
        event.object.value != 0 ? fmt::format("  {:#14x}", event.object.value) : fmt::format("  {:>14}", "-");
    line += event.device == analysis::kNoDevice ? fmt::format("  {:>3}", "-")
                                                : fmt::format("  {:>3}", event.device);
    line += fmt::format("  {:<28}  {:>8}", analysis::result_name(event.result),
                        human_duration(event.duration_ns));
    const std::vector<std::string> flags = flag_names(event.flags);
    if (!flags.empty()) line += fmt::format("  {}", fmt::join(flags, " "));
    return line;
}

constexpr char kColumns[] =
    "#    time (s)  prc   thread  number  function                        what                               "
    "       "
    "address         bytes                       object  dev  result                            took";

// Calls `take(event)` in the order of time; inside a process the order of numbers is kept even where clocks
// disagree. Stops when `take` returns false.
template <typename Take>
void in_order(const Trace& trace, Take&& take) {
    struct Next {
        std::uint64_t time;
        std::size_t process;
        std::size_t index;
        bool operator>(const Next& other) const {
            return time != other.time ? time > other.time : process > other.process;
        }
    };
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    for (std::size_t p = 0; p < trace.events.size(); ++p)
        if (!trace.events[p].empty()) next.push({trace.events[p][0].start.value, p, 0});
    while (!next.empty()) {
        const Next now = next.top();
        next.pop();
        if (!take(trace.events[now.process][now.index])) return;
        if (now.index + 1 < trace.events[now.process].size())
            next.push({trace.events[now.process][now.index + 1].start.value, now.process, now.index + 1});
    }
}

// What a reader must know before the first event.
std::vector<std::string> warnings(const Trace& trace) {
    std::vector<std::string> out;
    if (trace.file.cut_off) {
        out.push_back(fmt::format("this trace is cut off after {} bytes: {}", trace.file.readable_bytes,
                                  trace.file.problem));
    } else if (!trace.file.problem.empty()) {
        out.push_back(fmt::format("this trace is damaged behind its end: {}", trace.file.problem));
    }
    std::uint64_t lost = 0;
    for (const trace::Loss& loss : trace.losses)
        lost += loss.acquisitions() + loss.releases() + loss.others() + loss.records_without_ring();
    if (lost != 0) out.push_back(fmt::format("{} lost while recording", counted(lost, "record")));
    if (trace.end.events_not_written() != 0)
        out.push_back(fmt::format("{} not written: {}", counted(trace.end.events_not_written(), "event"),
                                  trace.end.reason()));
    return out;
}

void print_environment(const Trace& trace, bool as_json) {
    if (as_json) {
        const auto print = [](const google::protobuf::Message& message) {
            if (const std::optional<std::string> line = json_line(message)) fmt::print("{}\n", *line);
        };
        print(trace.session);
        for (const trace::Process& process : trace.processes) print(process);
        if (!trace.file.cut_off) print(trace.end);
        return;
    }
    // Protobuf's text form escapes what could disturb a terminal.
    fmt::print("# session\n{}", trace.session.DebugString());
    for (std::size_t i = 0; i < trace.processes.size(); ++i) {
        fmt::print("\n# process {}\n{}", i, trace.processes[i].DebugString());
        fmt::print("\n# losses of process {}\n{}", i, trace.losses[i].DebugString());
    }
    if (!trace.file.cut_off) fmt::print("\n# end of the session\n{}", trace.end.DebugString());
}

std::optional<std::uint64_t> parse_number(const std::string& text) {
    try {
        std::size_t used = 0;
        const std::uint64_t value = std::stoull(text, &used, 0);
        if (used == text.size() && text.front() != '-') return value;
    } catch (const std::exception&) {
        // Not a number: said by the caller.
    }
    return std::nullopt;
}

}  // namespace

int cmd_dump(int argc, char** argv) {
    CLI::App app("Prints the events of a trace, one a line, in the order in which they happened.",
                 "fragscope dump");
    app.footer(
        "Example:\n  fragscope dump train.fst --failed\n  fragscope dump train.fst --address 0x7f2a40000000 "
        "--json\n\n"
        "Times are seconds since the recording began. Exit status 3: printed, from a trace that is cut off "
        "or damaged.");
    std::string path;
    Filter filter;
    std::string kind;
    std::string address;
    std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
    bool json = false;
    bool environment = false;
    app.add_option("TRACE", path, "the trace file")->required();
    app.add_option("--process", filter.process, "only this process, by its index in the trace");
    app.add_option("--function", filter.function,
                   "only functions that match this pattern, e.g. 'cuMem*Async*'");
    app.add_option("--kind", kind, "only this kind, as --json names it, e.g. mapped");
    app.add_flag("--failed", filter.failed, "only calls that failed");
    app.add_option("--from", filter.from_s, "only from this time on, seconds");
    app.add_option("--to", filter.to_s, "only up to this time, seconds");
    app.add_option("--address", address, "only events whose address range holds this address");
    app.add_option("--limit", limit, "at most so many events");
    app.add_flag("--json", json, "one JSON object a line");
    app.add_flag("--env", environment, "print what is known of the session and its processes instead");
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;
    if (!kind.empty()) {
        filter.kind = analysis::kind_from_id(kind);
        if (!filter.kind) {
            complain(fmt::format("--kind {}: there is no such kind; --json prints each event's", kind));
            return kWrongUsage;
        }
    }
    if (!address.empty()) {
        filter.address = parse_number(address);
        if (!filter.address) {
            complain(fmt::format("--address {}: expected a number, such as 0x7f2a40000000", address));
            return kWrongUsage;
        }
    }

    const analysis::ReadResult read = analysis::read_trace(path);
    if (!read.trace) {
        complain(read.error);
        return kCannot;
    }
    const Trace& trace = *read.trace;
    const Style style = style_of_stdout();
    for (const std::string& warning : warnings(trace)) {
        if (json || environment)
            complain(warning);
        else
            fmt::print("# {}\n", printable(warning, style.utf8));
    }
    if (environment) {
        print_environment(trace, json);
    } else {
        if (!json) fmt::print("{}\n", kColumns);
        std::uint64_t printed = 0;
        in_order(trace, [&](const Event& event) {
            if (printed >= limit) return false;
            if (!passes(filter, trace, event)) return true;
            fmt::print("{}\n", json ? json_event(trace, event) : text_event(trace, event, style));
            ++printed;
            return true;
        });
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        complain("cannot write the events to standard output");
        return kCannot;
    }
    return trace.file.problem.empty() && !trace.file.cut_off ? kDone : kIncompleteTrace;
}

}  // namespace fragscope::tools
