// `fragscope run`: options to a recording, and what came of it in one line.
//
// Exit status: the program's own (128 + N when signal N ended it); 127 and 126 when it cannot be found or
// executed; 125 for trouble of Fragscope's before it was started; 2 for wrong usage.
#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "collector/clock.h"
#include "collector/record.h"
#include "tools/command.h"
#include "tools/shim_path.h"
#include "tools/size_text.h"
#include "tools/words.h"

namespace fragscope::tools {

namespace {

constexpr int kOwnTrouble = 125;
constexpr std::uint64_t kMaxWaitNs = 10'000'000'000;
constexpr int kMaxLingerS = 1'000'000;
constexpr std::uint64_t kMinSampleNs = 1'000'000;
constexpr std::uint64_t kDefaultProbeNs = 200'000'000;
// A capture or the end of a context waits for trials of another thread, and for no longer than two seconds.
constexpr std::uint64_t kMaxProbeNs = 1'000'000'000;
constexpr std::uint64_t kDefaultProbeBytes = std::uint64_t{64} << 30;
constexpr char kDefaultStacks[] = "1MiB";
constexpr char kDefaultSample[] = "every:100ms,bytes:64MiB";

// "5ms", "200us", "1s" or plain nanoseconds; nothing for anything else.
std::optional<std::uint64_t> parse_duration(const std::string& text) {
    std::size_t digits = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
    if (digits == 0 || digits > 12) return std::nullopt;
    const std::uint64_t number = std::stoull(text.substr(0, digits));
    const std::string unit = text.substr(digits);
    const std::uint64_t scale = unit == "s"                    ? 1'000'000'000
                                : unit == "ms"                 ? 1'000'000
                                : unit == "us"                 ? 1'000
                                : unit == "ns" || unit.empty() ? 1
                                                               : 0;
    if (scale == 0 || number > kMaxWaitNs / scale) return std::nullopt;
    return number * scale;
}

// "wait:5ms" or "drop" to how long a full ring may hold the program up.
std::optional<std::uint64_t> parse_on_full(const std::string& text) {
    if (text == "drop") return 0;
    if (text.rfind("wait:", 0) != 0) return std::nullopt;
    return parse_duration(text.substr(5));
}

// "off", "failures", "all" or a size. False: it is none of them.
bool parse_stacks(const std::string& text, collector::SessionOptions& session) {
    session.stack_bytes = UINT64_MAX;
    session.stack_failures = text != "off";
    if (text == "off" || text == "failures") return true;
    const std::optional<std::uint64_t> bytes = text == "all" ? 0 : parse_size(text);
    if (!bytes || *bytes == UINT64_MAX) return false;
    session.stack_bytes = *bytes;
    return true;
}

// "off", or "every:TIME" and "bytes:SIZE", one of them or both with a comma between. False: it is not that.
bool parse_sample(const std::string& text, collector::SessionOptions& session) {
    session.sample_ns = session.sample_bytes = UINT64_MAX;
    if (text == "off") return true;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        const std::size_t colon = std::min(part.find(':'), part.size());
        const std::string value = part.substr(std::min(colon + 1, part.size()));
        begin = end + 1;
        if (part.substr(0, colon) == "every" && session.sample_ns == UINT64_MAX) {
            const std::optional<std::uint64_t> ns = parse_duration(value);
            if (!ns || *ns < kMinSampleNs) return false;
            session.sample_ns = *ns;
        } else if (part.substr(0, colon) == "bytes" && session.sample_bytes == UINT64_MAX) {
            const std::optional<std::uint64_t> bytes = parse_size(value);
            if (!bytes || *bytes == 0 || *bytes == UINT64_MAX) return false;
            session.sample_bytes = *bytes;
        } else {
            return false;
        }
    }
    return true;
}

// "", "TIME" or "TIME,SIZE" behind --probe-on-oom. False: it is none of them.
bool parse_probe(const std::string& text, collector::SessionOptions& session) {
    session.probe_on_oom = true;
    session.probe_ns = kDefaultProbeNs;
    session.probe_bytes = kDefaultProbeBytes;
    if (text.empty()) return true;
    const std::size_t comma = text.find(',');
    const std::optional<std::uint64_t> ns = parse_duration(text.substr(0, comma));
    const std::optional<std::uint64_t> bytes =
        comma == std::string::npos ? kDefaultProbeBytes : parse_size(text.substr(comma + 1));
    if (!ns || *ns == 0 || *ns > kMaxProbeNs || !bytes || *bytes == 0) return false;
    session.probe_ns = *ns;
    session.probe_bytes = *bytes;
    return true;
}

// False: it is neither of the three.
bool parse_cupti(const std::string& text, collector::SessionOptions& session) {
    session.cupti = text == "on"     ? wire::CuptiMode::kOn
                    : text == "auto" ? wire::CuptiMode::kAuto
                                     : wire::CuptiMode::kOff;
    return text == "on" || text == "auto" || text == "off";
}

// One line, where no process attached: why, as far as is known, and where that stands.
std::string nothing_recorded(const collector::RecordOutcome& o) {
    std::string line = o.warnings.empty() ? "Nothing was recorded." : o.warnings.front();
    return fmt::format("{} {} ({}) says no more than this.", line, o.file, human_bytes(o.file_bytes));
}

// One line: what is in the file, what is missing, what to do next.
std::string summary(const collector::RecordOutcome& o) {
    std::string line = fmt::format("recorded {}, {}, {}", counted(o.processes, "process", "processes"),
                                   counted(o.events, "event"), counted(o.failures, "failed call"));
    std::vector<std::string> missing;
    if (o.records_lost != 0) missing.push_back(counted(o.records_lost, "record") + " lost");
    if (o.events_not_written != 0) missing.push_back(counted(o.events_not_written, "event") + " not written");
    if (o.records_refused != 0)
        missing.push_back(counted(o.records_refused, "record") + " refused as senseless");
    if (o.rings_damaged != 0)
        missing.push_back(counted(o.rings_damaged, "buffer") + " damaged by the program");
    if (o.processes_refused != 0)
        missing.push_back(counted(o.processes_refused, "process", "processes") + " not seen");
    if (o.still_running != 0)
        missing.push_back(counted(o.still_running, "process", "processes") + " still running");
    if (missing.empty())
        line += ", nothing known to be lost";
    else
        line += fmt::format(" (missing: {})", fmt::join(missing, ", "));
    line += fmt::format(", in {} ({})", o.file, human_bytes(o.file_bytes));
    if (!o.write_problem.empty()) line += "; the file is not complete: " + o.write_problem;
    if (o.events != 0)
        line += fmt::format("; next: fragscope {} {}", o.failures != 0 ? "explain" : "report", o.file);
    return line;
}

}  // namespace

int cmd_run(int argc, char** argv) {
    CLI::App app(
        "Starts a program as it is and records the GPU memory of it and of all processes\n"
        "that it starts:\n"
        "  fragscope run [OPTIONS] -- PROGRAM [ITS ARGUMENTS]",
        "fragscope run");
    app.footer(
        "Example:\n"
        "  fragscope run -o train.fst -- python train.py --epochs 1\n\n"
        "The program's input, output and signals are passed on as they are.\n\n"
        "Exit status: the program's own, or 128 + N where signal N ended it; 127 there is\n"
        "no such program; 126 it cannot be executed; 125 the recording could not begin, and\n"
        "the program was not started; 2 wrong usage.");
    collector::RecordOptions options;
    std::string buffer;
    std::string on_full = "wait:5ms";
    double linger_s = 1.0;
    std::string stacks = kDefaultStacks;
    std::string sample = kDefaultSample;
    std::string probe;
    std::string cupti = "off";
    std::string nvml;
    bool no_nvtx = false;
    bool no_touches = false;
    bool quiet = false;
    app.add_option("-o,--output", options.output,
                   "the trace file (default: fragscope-PROGRAM-PID.fst in this\n"
                   "folder, with PROGRAM's PID; numbered if that exists)")
        ->type_name("FILE");
    app.add_flag("--force", options.replace_output, "replace the trace file if it exists");
    app.add_option("--buffer", buffer,
                   "shared memory for events on their way to the file, such as\n"
                   "256MiB (default 128MiB); each thread's part of it is a power\n"
                   "of two, so less than this may be taken")
        ->type_name("SIZE");
    app.add_option("--on-full", on_full,
                   "when a thread's part of it is full: wait:TIME, such as\n"
                   "wait:5ms, holds that thread up once and at most so long;\n"
                   "drop loses events at once (default wait:5ms)")
        ->type_name("WHAT");
    app.add_option("--linger", linger_s,
                   "how long to go on recording processes that outlive the\n"
                   "program (default 1)")
        ->type_name("SECONDS");
    app.add_option("--stacks", stacks,
                   "call stacks of which allocations: SIZE, those of at least\n"
                   "SIZE and those that fail; failures; all; off (default 1MiB)")
        ->type_name("WHICH");
    app.add_option("--sample", sample,
                   "ask the driver for its device-free memory: every:TIME, at\n"
                   "most so often; bytes:SIZE, when so much was allocated or\n"
                   "freed since; both with a comma between; off (default\n"
                   "every:100ms,bytes:64MiB). It is asked inside calls of the\n"
                   "program, never while one of its streams is captured")
        ->type_name("WHEN");
    app.add_option("--nvml", nvml,
                   "ask the driver's management library too, how much each device\n"
                   "and each process on it holds: at the start and the end, after\n"
                   "a refused allocation, and at least every TIME; off (default\n"
                   "1s). Fragscope asks, not the program; without the library it\n"
                   "goes on without")
        ->type_name("TIME");
    CLI::Option* probe_option =
        app.add_flag("--probe-on-oom", probe,
                     "--probe-on-oom[=TIME[,SIZE]]: when an allocation failed, try\n"
                     "how much each mechanism would still have given. The program\n"
                     "waits for TIME at most at each such failure, and up to SIZE is\n"
                     "held meanwhile, so that other threads and processes may be\n"
                     "refused (200ms and 64GiB if not said; default: not tried)");
    app.add_flag("--calls", options.session.record_calls,
                 "record launches, copies, memsets and questions as calls too");
    app.add_option("--cupti", cupti,
                   "also record what NVIDIA's profiling library CUPTI says of memory:\n"
                   "auto, where the program has it loaded and nobody may use it;\n"
                   "on, where nobody uses it, and it is loaded if need be (its\n"
                   "buffers take memory; a profiler that comes later takes it over);\n"
                   "off (default off)")
        ->type_name("WHEN");
    app.add_flag("--no-nvtx", no_nvtx, "do not record the program's NVTX ranges and marks");
    app.add_flag("--no-touches", no_touches, "do not record which memory copies and memsets write");
    app.add_option("--shim", options.shim,
                   "the recorder to preload (default: the libfragscope.so that\n"
                   "came along)")
        ->type_name("FILE");
    app.add_flag("-q,--quiet", quiet, "say nothing but errors");
    app.prefix_command();
    if (const std::optional<int> status = parse(app, argc, argv)) return *status;

    options.program = app.remaining();
    if (!options.program.empty() && options.program.front() == "--")
        options.program.erase(options.program.begin());
    if (options.program.empty()) {
        complain("which program? As in: fragscope run -- ./program its-arguments");
        return kWrongUsage;
    }
    if (options.program.front().rfind('-', 0) == 0) {
        complain(
            fmt::format("there is no option {}; `fragscope run --help` lists them", options.program.front()));
        return kWrongUsage;
    }
    if (!buffer.empty()) {
        const std::optional<std::uint64_t> bytes = parse_size(buffer);
        if (!bytes || *bytes < collector::min_session_bytes() || *bytes > collector::max_session_bytes()) {
            complain(fmt::format("--buffer {}: expected a size such as 256MiB, from {} to {}", buffer,
                                 human_bytes(collector::min_session_bytes()),
                                 human_bytes(collector::max_session_bytes())));
            return kWrongUsage;
        }
        options.session.bytes = *bytes;
    }
    if (!(linger_s >= 0.0 && linger_s <= kMaxLingerS)) {
        complain(fmt::format("--linger {}: expected 0 to {} seconds", linger_s, kMaxLingerS));
        return kWrongUsage;
    }
    const std::optional<std::uint64_t> wait_ns = parse_on_full(on_full);
    if (!wait_ns) {
        complain(
            fmt::format("--on-full {}: expected drop or wait:TIME, such as wait:5ms, at most 10s", on_full));
        return kWrongUsage;
    }
    if (!parse_stacks(stacks, options.session)) {
        complain(fmt::format("--stacks {}: expected off, failures, all or a size such as 1MiB", stacks));
        return kWrongUsage;
    }
    if (!parse_sample(sample, options.session)) {
        complain(
            fmt::format("--sample {}: expected off, every:TIME from 1ms on, bytes:SIZE, or both with a comma "
                        "between, such as {}",
                        sample, kDefaultSample));
        return kWrongUsage;
    }
    if (nvml == "off") {
        options.nvml_ns = 0;
    } else if (!nvml.empty()) {
        const std::optional<std::uint64_t> period = parse_duration(nvml);
        if (!period || *period < collector::kLeastNvmlNs) {
            complain(fmt::format("--nvml {}: expected off or a time from 10ms to 10s, such as 1s", nvml));
            return kWrongUsage;
        }
        options.nvml_ns = *period;
    }
    // CLI11 calls a flag without a value "true".
    if (probe_option->count() != 0 && !parse_probe(probe == "true" ? "" : probe, options.session)) {
        complain(fmt::format(
            "--probe-on-oom={}: expected TIME or TIME,SIZE, such as 200ms,64GiB, at most 1s", probe));
        return kWrongUsage;
    }
    if (!parse_cupti(cupti, options.session)) {
        complain(fmt::format("--cupti {}: expected auto, on or off", cupti));
        return kWrongUsage;
    }
    options.nvtx = !no_nvtx;
    options.session.wait_ns = *wait_ns;
    options.session.record_touches = !no_touches;
    options.session.clock = collector::best_clock();
    options.linger_ns = static_cast<std::uint64_t>(linger_s * 1e9);
    if (options.shim.empty()) {
        options.shim = find_shim();
        if (options.shim.empty()) {
            complain("cannot find libfragscope.so beside this program; say where it is with --shim");
            return kOwnTrouble;
        }
    } else if (char* whole = ::realpath(options.shim.c_str(), nullptr); whole != nullptr) {
        options.shim = whole;  // the program may change its folder
        std::free(whole);
    }

    const collector::RecordOutcome outcome = collector::record(options, [&](const std::string& sentence) {
        if (!quiet) complain(sentence);
    });
    if (!outcome.error.empty()) complain(outcome.error);
    if (outcome.started && !quiet) {
        if (outcome.processes == 0 && outcome.processes_refused == 0)
            complain(nothing_recorded(outcome));
        else
            complain(summary(outcome));
    }
    return outcome.status;
}

}  // namespace fragscope::tools
