// `fragscope dump`: a trace's events in words or as JSON, one a line, filtered.
#include <fmt/format.h>
#include <fnmatch.h>

#include <array>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "analysis/read/kind_name.h"
#include "analysis/read/payload_name.h"
#include "analysis/read/result_name.h"
#include "analysis/read/symbolizer.h"
#include "tools/answer.h"
#include "tools/command.h"
#include "tools/frame_line.h"
#include "tools/json_text.h"
#include "tools/words.h"
#include "tools/words_terminal.h"

namespace fragscope::tools {

namespace {

using analysis::Event;
using analysis::Trace;

constexpr std::size_t kWriteBytes = 64 * 1024;  // lines gather up to here, then they are written

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
        if (analysis::payload_names(event.kind).address.form != analysis::PayloadForm::kAddress) return false;
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
        {wire::kSample, "sample"},
        {wire::kDuringCapture, "during_capture"},
        {wire::kDurationFull, "duration_at_least"},
    };
    std::vector<std::string> out;
    for (const auto& [flag, name] : kNames)
        if ((flags & flag) != 0) out.emplace_back(name);
    return out;
}

// "name":value of one payload field.
std::string json_payload(const analysis::PayloadField& field, std::uint64_t value) {
    if (field.form == analysis::PayloadForm::kTotal && value == wire::kTotalNotTold)
        return fmt::format(R"("{}":null)", field.name);
    return field.form == analysis::PayloadForm::kAddress ? fmt::format(R"("{}":"{:#x}")", field.name, value)
                                                         : fmt::format(R"("{}":{})", field.name, value);
}

// The event's call stack as far as the trace has it; null: it has none, or its record was lost.
const trace::Stack* stack_of(const Trace& trace, const Event& event) {
    const auto& stacks = trace.names[event.process.value].stacks;
    const auto found = event.stack != 0 ? stacks.find(event.stack) : stacks.end();
    return found != stacks.end() ? &found->second : nullptr;
}

// The function of the runtime interface that the program called; empty: none, or not known.
std::string origin_of(const Trace& trace, const Event& event) {
    const trace::Stack* stack = stack_of(trace, event);
    if (stack == nullptr || stack->origin() == 0) return "";
    const auto& texts = trace.names[event.process.value].texts;
    const auto found = texts.find(stack->origin());
    return found != texts.end() ? found->second : "";
}

std::string json_frame(const analysis::FrameName& frame) {
    using analysis::NameForm;
    static constexpr const char* kForms[] = {"source", "symbol", "module", "address", "python"};
    std::string out = fmt::format(R"({{"form":"{}")", kForms[static_cast<std::size_t>(frame.form)]);
    const auto text = [&](const char* name, const std::string& value) {
        if (!value.empty()) out += fmt::format(R"(,"{}":{})", name, quoted(value));
    };
    text("function", frame.function);
    text("file", frame.file);
    if (frame.line != 0) out += fmt::format(R"(,"line":{})", frame.line);
    if (frame.inlined) out += R"(,"inlined":true)";
    text("module", frame.module);
    if (frame.form != NameForm::kPython) out += fmt::format(R"(,"offset":"{:#x}")", frame.offset);
    if (frame.form == NameForm::kSymbol) out += fmt::format(R"(,"into":{})", frame.into);
    text("why", frame.why);
    return out + "}";
}

// Behind an event's fields: who called, and with `symbolizer` from where.
std::string json_stack(const Trace& trace, const Event& event, analysis::Symbolizer* symbolizer) {
    const trace::Stack* stack = stack_of(trace, event);
    const std::string origin = origin_of(trace, event);
    std::string out = origin.empty() ? "" : R"(,"origin":)" + quoted(origin);
    if (event.stack != 0 && stack == nullptr) out += R"(,"stack_lost":true)";
    if (symbolizer == nullptr || stack == nullptr) return out;
    std::string frames;
    for (const analysis::FrameName& frame : symbolizer->frames(trace.names[event.process.value], *stack))
        frames += (frames.empty() ? "" : ",") + json_frame(frame);
    out += fmt::format(R"(,"frames":[{}])", frames);
    if (stack->cut()) out += R"(,"frames_cut":true)";
    if (stack->lost()) out += R"(,"frames_lost":true)";
    if (stack->no_lines()) out += R"(,"lines_unread":true)";
    return out;
}

std::string json_event(const Trace& trace, const Event& event, analysis::Symbolizer* symbolizer) {
    const trace::Process& process = trace.processes[event.process.value];
    const analysis::PayloadNames names = analysis::payload_names(event.kind, event.flags);
    std::string flags;
    for (const std::string& name : flag_names(event.flags))
        flags += (flags.empty() ? "" : ",") + quoted(name);
    return fmt::format(
        R"({{"time_ns":{},"process":{},"pid":{},"thread":{},"sequence":{},"function":{},"kind":{},)"
        R"({},{},{},{},"device":{},"result":{},"result_name":{},"duration_ns":{},"stack":{},"flags":[{}]{}}})",
        static_cast<std::int64_t>(event.start.value - trace.session.start_ns()), event.process.value,
        process.pid() == 0 ? "null" : std::to_string(process.pid()), event.thread, event.sequence.value,
        quoted(trace.functions[event.function.value]),
        quoted(std::string(analysis::kind_name(event.kind).id)),
        json_payload(names.address, event.address.value), json_payload(names.bytes, event.bytes.value),
        json_payload(names.object, event.object.value), json_payload(names.extra, event.extra),
        event.device == analysis::kNoDevice ? "null" : std::to_string(event.device), event.result,
        quoted(analysis::result_name(event.result)), event.duration_ns, event.stack, flags,
        json_stack(trace, event, symbolizer));
}

// "512 KiB", or every byte where no unit is exact.
std::string amount(std::uint64_t bytes) {
    if (bytes == std::numeric_limits<std::uint64_t>::max()) return "no limit";
    const std::string rounded = human_bytes(bytes);
    return both_bytes(bytes) == rounded ? rounded : fmt::format("{} B", bytes);
}

std::string short_result(std::uint16_t result) {
    if (result == 0) return "ok";
    const std::string name = analysis::result_name(result);
    constexpr std::string_view kPrefix = "CUDA_ERROR_";
    return name.rfind(kPrefix, 0) == 0 ? name.substr(kPrefix.size()) : name;
}

constexpr int kFunctionColumn = 25;
constexpr int kOriginColumn = 45;  // for "cudaMallocFromPoolAsync → cuMemAllocFromPoolAsync"

// One line of the listing; the header goes through it too.
std::string columns(const std::array<std::string, 13>& cell, int function_column) {
    std::string line =
        fmt::format("{:>11} {:>3} {:>7} {:>6}  {:<{}} {:<18} {:>14} {:>12} {:>14} {:>3}  {:<14} {:>8}",
                    cell[0], cell[1], cell[2], cell[3], cell[4], function_column, cell[5], cell[6], cell[7],
                    cell[8], cell[9], cell[10], cell[11]);
    if (!cell[12].empty()) line += "  " + cell[12];
    return line;
}

std::string header(int function_column) {
    return columns({"#  time (s)", "prc", "thread", "number", "function", "kind", "address", "bytes",
                    "object", "dev", "result", "took", "flags and further values"},
                   function_column);
}

int function_column(const Trace& trace) {
    for (const analysis::ProcessNames& names : trace.names)
        for (const auto& [id, stack] : names.stacks)
            if (stack.origin() != 0) return kOriginColumn;
    return kFunctionColumn;
}

std::string text_event(const Trace& trace, const Event& event, const Style& style, int function_column) {
    const analysis::PayloadNames names = analysis::payload_names(event.kind, event.flags);
    const analysis::PayloadNames plain;
    std::vector<std::string> further = flag_names(event.flags);
    const auto named = [](const analysis::PayloadField& field, const analysis::PayloadField& usual) {
        return field.name != usual.name;
    };
    // What is not what its column says goes to the end of the line, with its name.
    const auto cell = [&](const analysis::PayloadField& field, const analysis::PayloadField& usual,
                          std::uint64_t value) -> std::string {
        if (field.form == analysis::PayloadForm::kTotal && value == wire::kTotalNotTold) return "-";
        if (named(field, usual)) {
            further.push_back(fmt::format(
                "{}={}", field.name,
                field.form == analysis::PayloadForm::kNumber ? std::to_string(value) : amount(value)));
            return "-";
        }
        if (value == 0) return "-";
        return field.form == analysis::PayloadForm::kBytes ? amount(value) : fmt::format("{:#x}", value);
    };
    const std::string address = cell(names.address, plain.address, event.address.value);
    const std::string bytes = cell(names.bytes, plain.bytes, event.bytes.value);
    // Of these two, zero means that nothing of the kind was asked for or is the case.
    const std::string object = named(names.object, plain.object) && event.object.value == 0
                                   ? "-"
                                   : cell(names.object, plain.object, event.object.value);
    if (named(names.extra, plain.extra) && event.extra != 0) cell(names.extra, plain.extra, event.extra);
    const std::string origin = origin_of(trace, event);
    const std::string function = (origin.empty() ? "" : origin + (style.utf8 ? " \u2192 " : " -> ")) +
                                 trace.functions[event.function.value];
    return columns(
        {fmt::format("{:.6f}", seconds(trace, event)), std::to_string(event.process.value),
         std::to_string(event.thread), std::to_string(event.sequence.value), printable(function, style.utf8),
         std::string(analysis::kind_name(event.kind).id), address, bytes, object,
         event.device == analysis::kNoDevice ? "-" : std::to_string(event.device), short_result(event.result),
         human_duration(event.duration_ns), fmt::format("{}", fmt::join(further, " "))},
        function_column);
}

// The lines below an event.
std::string text_stack(const Trace& trace, const Event& event, analysis::Symbolizer& symbolizer,
                       const Style& style) {
    if (event.stack == 0) return "";
    const trace::Stack* stack = stack_of(trace, event);
    if (stack == nullptr) return "    call stack lost\n";
    std::string out;
    std::size_t number = 0;
    for (const analysis::FrameName& frame : symbolizer.frames(trace.names[event.process.value], *stack))
        out += printable(fmt::format("    #{:<2} {}", number++, frame_line(frame)), style.utf8) + "\n";
    if (stack->cut()) out += "    (and further callers, which were not recorded)\n";
    if (stack->lost()) out += "    (who called this could not be found out)\n";
    if (stack->no_lines()) out += "    (Python was running; its lines could not be read)\n";
    return out;
}

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
    if (trace.end.processes_refused() != 0)
        out.push_back(fmt::format("{} found no room in the recording and left nothing here",
                                  counted(trace.end.processes_refused(), "process", "processes")));
    for (const std::string& warning : trace.end.warnings()) out.push_back(warning);
    return out;
}

// False: it could not be written, as was said already.
bool print_environment(const Trace& trace, bool as_json) {
    if (as_json) {
        if (!write_json(trace.session)) return false;
        for (const trace::Process& process : trace.processes)
            if (!write_json(process)) return false;
        return trace.file.cut_off || write_json(trace.end);
    }
    // Protobuf's text form escapes what could disturb a terminal.
    std::string text = "# session\n" + trace.session.DebugString();
    for (std::size_t i = 0; i < trace.processes.size(); ++i) {
        text += fmt::format("\n# process {}\n{}", i, trace.processes[i].DebugString());
        text += fmt::format("\n# losses of process {}\n{}", i, trace.losses[i].DebugString());
    }
    if (!trace.file.cut_off) text += "\n# end of the session\n" + trace.end.DebugString();
    return write_answer(text);
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
        "Times are seconds since the recording began; `number` is the record's number in its\n"
        "process, which tells the order of its calls.\n\n"
        "Exit status: 0 done; 1 the trace cannot be read, or the answer not written;\n"
        "2 wrong usage; 3 printed, but the trace is cut off or damaged (said at the top).");
    std::string path;
    Filter filter;
    std::string kind;
    std::string address;
    std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
    bool stacks = false;
    bool json = false;
    bool environment = false;
    app.add_option("TRACE", path, "the trace file")->required()->type_name("");
    app.add_option("--process", filter.process, "only this process, by its index in the trace")
        ->type_name("N");
    app.add_option("--function", filter.function,
                   "only functions that match this pattern, e.g. 'cuMem*Async*'")
        ->type_name("PATTERN");
    app.add_option("--kind", kind, "only this kind, e.g. mapped")->type_name("KIND");
    app.add_flag("--failed", filter.failed, "only calls that failed");
    app.add_option("--from", filter.from_s, "only from this time on")->type_name("SECONDS");
    app.add_option("--to", filter.to_s, "only up to this time")->type_name("SECONDS");
    app.add_option("--address", address, "only events whose address range holds this address")
        ->type_name("ADDRESS");
    app.add_option("--limit", limit, "at most so many events")->type_name("N");
    app.add_flag("--stacks", stacks,
                 "print the call stacks too, with functions and lines as far as\nthe programs' files here "
                 "still tell them");
    app.add_flag("--json", json, "one JSON object a line");
    app.add_flag("--env", environment, "print what is known of the session and its processes instead");
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;
    if (!kind.empty()) {
        filter.kind = analysis::kind_from_id(kind);
        if (!filter.kind) {
            complain(
                fmt::format("--kind {}: there is no such kind; see the column `kind` of the listing", kind));
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

    const std::optional<Trace> read = read_or_complain(path);
    if (!read) return kCannot;
    const Trace& trace = *read;
    const Style style = style_of_stdout();
    std::string text;
    for (const std::string& warning : warnings(trace)) {
        if (json || environment)
            complain(printable(warning, style.utf8));
        else
            text += fmt::format("# {}\n", printable(warning, style.utf8));
    }
    if (environment) {
        if (!print_environment(trace, json)) return kCannot;
    } else {
        const int column = function_column(trace);
        std::optional<analysis::Symbolizer> symbolizer;
        if (stacks) symbolizer.emplace();
        if (!json) text += header(column) + "\n";
        bool written = true;
        std::uint64_t printed = 0;
        in_order(trace, [&](const Event& event) {
            if (printed >= limit) return false;
            if (!passes(filter, trace, event)) return true;
            text += (json ? json_event(trace, event, symbolizer ? &*symbolizer : nullptr)
                          : text_event(trace, event, style, column)) +
                    "\n";
            if (symbolizer && !json) text += text_stack(trace, event, *symbolizer, style);
            ++printed;
            if (text.size() < kWriteBytes) return true;
            written = write_answer(text);
            text.clear();
            return written;
        });
        if (!written || !write_answer(text)) return kCannot;
    }
    return trace.file.problem.empty() && !trace.file.cut_off ? kDone : kIncompleteTrace;
}

}  // namespace fragscope::tools
