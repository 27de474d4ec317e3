#include "collector/record.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "collector/drain.h"
#include "collector/management.h"
#include "collector/program_file.h"
#include "collector/trace_writer.h"
#include "collector/utf8.h"

namespace fragscope::collector {

namespace {

// Exit statuses of programs that run other programs, as env(1) and nohup(1) have them.
constexpr int kOwnTrouble = 125;

// The wait between two rounds doubles while nothing comes. It bounds what a ring must hold and what idling
// costs.
constexpr std::uint64_t kMinWaitNs = 100'000;
constexpr std::uint64_t kMaxWaitNs = 500'000;
// How long the end of a recording waits for the management library's last answer, which takes milliseconds.
constexpr std::uint64_t kManagementWaitNs = 500'000'000;

void wait(std::uint64_t ns) {
    struct timespec time {
        static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)
    };
    ::nanosleep(&time, nullptr);  // a signal ends it early, and that is wanted
}

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

trace::Recording recording_of(const SessionOptions& session) {
    trace::Recording recording;
    recording.set_touches(session.record_touches);
    recording.set_calls(session.record_calls);
    if (session.stack_bytes != UINT64_MAX) recording.set_stack_bytes(session.stack_bytes);
    recording.set_stack_failures(session.stack_failures);
    recording.set_probe_on_oom(session.probe_on_oom);
    if (session.probe_on_oom) {
        recording.set_probe_ns(session.probe_ns);
        recording.set_probe_bytes(session.probe_bytes);
    }
    if (session.sample_ns != UINT64_MAX) recording.set_sample_ns(session.sample_ns);
    if (session.sample_bytes != UINT64_MAX) recording.set_sample_bytes(session.sample_bytes);
    recording.set_cupti(session.cupti == wire::CuptiMode::kOn     ? "on"
                        : session.cupti == wire::CuptiMode::kAuto ? "auto"
                                                                  : "off");
    return recording;
}

trace::Session describe(const RecordOptions& options, const ClockPair& start, wire::Clock clock,
                        const std::string& management) {
    trace::Session session;
    session.set_collector_version(FRAGSCOPE_VERSION);
    struct utsname system {};
    if (::uname(&system) == 0) {
        session.set_host_name(system.nodename);
        session.set_kernel(fmt::format("{} {} {}", system.sysname, system.release, system.machine));
    }
    session.set_start_ns(start.ns);
    const std::uint64_t since = monotonic_ns() - start.ns;
    session.set_start_unix_ns(unix_ns() - since);
    for (const std::string& word : options.program) session.add_command_line(to_utf8(word));
    *session.mutable_recording() = recording_of(options.session);
    session.mutable_recording()->set_nvml(to_utf8(management));
    if (options.nvml_ns != 0) session.mutable_recording()->set_nvml_ns(options.nvml_ns);
    session.set_clock(clock == wire::Clock::kTsc ? "tsc" : "monotonic");
    return session;
}

std::string reason(const RecordOutcome& outcome, int signal_received) {
    if (!outcome.write_problem.empty()) return "out of space: " + outcome.write_problem;
    if (signal_received != 0)
        return fmt::format("interrupted by signal {} ({})", signal_received, ::strsignal(signal_received));
    if (outcome.program && outcome.program->signal)
        return fmt::format("the program was ended by signal {} ({})", *outcome.program->signal,
                           ::strsignal(*outcome.program->signal));
    return "finished";
}

// What the management library told, with the processes that are recorded here named: those that `drain` found since.
void write_readings(std::vector<Management::Taken> told, const Drain& drain, TraceWriter& writer) {
    for (Management::Taken& taken : told) {
        std::size_t next = 0;
        for (trace::DeviceReading& device : *taken.readings.mutable_devices()) {
            for (trace::ProcessReading& process : *device.mutable_processes()) {
                const std::uint64_t start_time = taken.start_times[next++];
                if (!process.has_pid_here()) continue;
                const std::optional<std::uint32_t> index = drain.process_called(process.pid_here(), start_time);
                if (index) process.set_process(*index);
            }
        }
        writer.readings(taken.readings);
    }
}

// Why nothing, or not all, is in the trace, beside the losses that are numbers of their own there.
std::vector<std::string> warnings_of(const RecordOutcome& outcome, const ProgramFile& program) {
    std::vector<std::string> out;
    if (!program.warning.empty())
        out.push_back(program.warning + ".");
    else if (outcome.processes == 0 && outcome.processes_refused == 0)
        out.push_back(fmt::format(
            "No process used the CUDA driver, as far as could be seen: {} and what it started never called "
            "it, or the recorder could not be loaded into them (statically linked or setuid programs), or "
            "the driver was reached past it; so nothing was recorded.",
            program.path));
    if (!outcome.write_problem.empty())
        out.push_back(fmt::format("The trace file is not complete: {}.", outcome.write_problem));
    return out;
}

}  // namespace

RecordOutcome record(const RecordOptions& options, const std::function<void(const std::string&)>& say) {
    RecordOutcome outcome;
    const auto refuse = [&](int status, std::string error) {
        outcome.status = status;
        outcome.error = std::move(error);
        return outcome;
    };
    occupy_standard_descriptors();

    const char* search_path = std::getenv("PATH");
    const ProgramFile program =
        examine_program(options.program.front(), search_path != nullptr ? search_path : "/bin:/usr/bin");
    if (program.path.empty()) return refuse(program.error_status, program.error);
    if (!program.warning.empty()) say(program.warning);
    if (::access(options.shim.c_str(), R_OK) != 0)
        return refuse(kOwnTrouble, fmt::format("cannot find the recorder {}: {}; say where it is with --shim",
                                               options.shim, std::strerror(errno)));
    if (!is_library(options.shim))
        return refuse(kOwnTrouble,
                      fmt::format("cannot use {} as the recorder: it is not a 64-bit shared library; say where it is with --shim",
                                  options.shim));
    if (options.shim.find_first_of(": ") != std::string::npos)
        return refuse(kOwnTrouble,
                      fmt::format("the recorder's path {} holds a space or colon, at which the loader would "
                                  "cut it; copy it elsewhere and use --shim",
                                  options.shim));

    remove_stale_sessions();
    Management management(options.nvml_ns);
    Launcher launcher;  // from here on signals are ours, and a full disk does not kill us
    RingHost::Created session = RingHost::create(options.session);
    if (session.host == nullptr) return refuse(kOwnTrouble, session.problem);
    if (!session.problem.empty()) say(session.problem);

    // The program's process is there before the file, whose name has its number; the program is not: where
    // the file cannot be, it never runs.
    if (const int error =
            launcher.prepare(program.path, options.program,
                             traced_environment(options.shim, session.host->name(), options.nvtx));
        error != 0)
        return refuse(kOwnTrouble, fmt::format("cannot make a process: {}", std::strerror(error)));
    const bool named = !options.output.empty();
    const std::string output =
        named ? options.output
              : fmt::format("fragscope-{}-{}.fst", file_name(options.program.front()), launcher.pid());
    FileSink::Opened opened = FileSink::open(output, !named                   ? Existing::kNumber
                                                     : options.replace_output ? Existing::kReplace
                                                                              : Existing::kRefuse);
    if (opened.sink == nullptr) return refuse(kOwnTrouble, opened.error);
    FileSink& sink = *opened.sink;
    const ClockPair start = read_clock_pair(session.host->clock());
    TraceWriter writer(sink);
    if (!writer.begin(describe(options, start, session.host->clock(), management.state()))) {
        sink.discard();
        return refuse(kOwnTrouble, sink.problem());
    }
    Drain drain(*session.host, writer, start);
    management.start();

    if (const int error = launcher.go(); error != 0) {
        sink.discard();
        // The file is there, as was seen before: what is missing is what it needs to be started.
        return refuse(126,
                      error == ENOENT
                          ? fmt::format("cannot start {}: the interpreter or loader that it names is missing",
                                        program.path)
                          : fmt::format("cannot start {}: {}", program.path, std::strerror(error)));
    }
    outcome.started = true;

    std::uint64_t wait_ns = kMinWaitNs;
    std::uint64_t linger_until = 0;
    int signals_before_end = 0;
    std::uint64_t refusals = 0;
    for (;;) {
        if (!outcome.program) {
            const pid_t pid = launcher.pid();
            outcome.program = launcher.ended();
            if (outcome.program) {
                drain.poll();  // whatever it recorded before it ended was attached by now
                drain.note_end(pid, outcome.program->how());
                linger_until = monotonic_ns() + options.linger_ns;
                signals_before_end = launcher.last_signal();
                launcher.forget_signals();
            }
        }
        // Where the disk does not keep up, the rings fill up, and what then happens is what --on-full says.
        std::vector<Management::Taken> told = management.take();
        const std::size_t taken = writer.backlogged() ? 0 : drain.poll();
        write_readings(std::move(told), drain, writer);
        // What the devices held is best known soon after a request was refused.
        if (std::exchange(refusals, writer.out_of_memory_seen()) != writer.out_of_memory_seen()) management.ask();
        if (outcome.program && (drain.processes_attached() == 0 || monotonic_ns() >= linger_until ||
                                launcher.last_signal() != 0))
            break;
        wait_ns = taken != 0 ? kMinWaitNs : std::min(wait_ns * 2, kMaxWaitNs);
        wait(wait_ns);
    }
    session.host->close();
    drain.finish();
    management.finish(kManagementWaitNs);
    write_readings(management.take(), drain, writer);
    writer.settle();

    outcome.still_running = drain.processes_attached();
    outcome.processes = drain.processes_seen();
    outcome.processes_refused = drain.processes_refused();
    outcome.records_lost = drain.records_lost();
    outcome.records_refused = drain.records_refused();
    outcome.rings_damaged = drain.rings_damaged();
    if (writer.stopped()) outcome.write_problem = sink.problem();
    trace::SessionEnd end;
    end.set_end_ns(monotonic_ns());
    end.set_reason(to_utf8(reason(outcome, signals_before_end)));
    end.set_processes(outcome.processes);
    end.set_processes_refused(outcome.processes_refused);
    end.set_clock_ticks_per_ns(drain.ticks_per_ns());
    if (outcome.program->exit_status) end.set_exit_status(*outcome.program->exit_status);
    if (outcome.program->signal) end.set_exit_signal(*outcome.program->signal);
    outcome.warnings = warnings_of(outcome, program);
    for (const std::string& warning : outcome.warnings) end.add_warnings(to_utf8(warning));
    writer.end(end);
    if (writer.stopped()) outcome.write_problem = sink.problem();

    outcome.status = outcome.program->status();
    outcome.file = sink.path();
    outcome.file_bytes = sink.size();
    outcome.events = writer.events_written();
    outcome.failures = writer.failures_seen();
    outcome.events_not_written = writer.events_not_written();
    return outcome;
}

}  // namespace fragscope::collector
