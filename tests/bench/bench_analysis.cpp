// How fast events become answers: replay into the memory state, the largest free extent after every event,
// and `fragscope explain` on a large recording from file to words.
//   bench_analysis FRAGSCOPE [EVENTS] [ROUNDS] [EXPLAINED_EVENTS]
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/extent_map.h"
#include "analysis/seeker.h"
#include "analysis/state.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"

using namespace fragscope;
using namespace fragscope::bench;

namespace {

// Aims of the project, on one core.
constexpr const char* kAimPool = ">= 17";
constexpr const char* kAimVirtual = ">= 20";
constexpr const char* kAimExplain = "about 1";
// The same aim on any machine: where it was set, std::map + multiset reached 4.2 M/s.
constexpr const char* kAimExplainRatio = ">= 2.4";

double millions_per_second(std::size_t events, std::uint64_t ns) {
    return static_cast<double>(events) * 1e3 / static_cast<double>(ns);
}

std::vector<analysis::Event> events_of(const Rows& rows) {
    std::vector<analysis::Event> events;
    events.reserve(rows.size());
    for (const collector::EventRow& row : rows) {
        analysis::Event event;
        event.function.value = row.function;
        event.sequence.value = row.sequence;
        event.start.value = row.start_ns;
        event.duration_ns = row.duration_ns;
        event.kind = row.kind;
        event.result = row.result;
        event.flags = row.flags;
        event.device = row.device == wire::kDeviceUnknown ? analysis::kNoDevice : row.device;
        event.thread = row.thread;
        event.stack = row.stack;
        event.address.value = row.address;
        event.bytes.value = row.bytes;
        event.object.value = row.object;
        event.extra = row.extra;
        events.push_back(event);
    }
    return events;
}

double replay_speed(const std::vector<analysis::Event>& events) {
    analysis::ProcessState state;
    const std::uint64_t begin = monotonic_ns();
    for (const analysis::Event& event : events) state.apply(event);
    const std::uint64_t spent = monotonic_ns() - begin;
    keep(state.totals(0).linear_requested);
    return millions_per_second(events.size(), spent);
}

// States at random moments of the log, asked for in no order: how often a second that can be answered.
double seek_speed(const analysis::Trace& trace, std::size_t copies) {
    analysis::StateSeeker seeker(trace, {0}, nullptr, copies);
    seeker.move_to(trace.events[0].size());
    constexpr std::uint64_t kMoments = 20;
    std::uint64_t moment = 1;
    std::uint64_t sum = 0;
    const std::uint64_t begin = monotonic_ns();
    for (std::uint64_t i = 0; i < kMoments; ++i) {
        moment = moment * 6364136223846793005 + 1442695040888963407;
        seeker.move_to((moment >> 33) % trace.events[0].size());
        sum += seeker.state().totals(0).linear_requested;
    }
    const std::uint64_t spent = monotonic_ns() - begin;
    keep(sum);
    return static_cast<double>(kMoments) * 1e9 / static_cast<double>(spent);
}

// One acquisition (true) or release of a range, as the extent structures see it.
struct Step {
    analysis::Range range;
    bool acquire;
};

std::vector<Step> steps_of(const std::vector<analysis::Event>& events) {
    std::map<std::uint64_t, std::uint64_t> sizes;
    std::vector<Step> steps;
    for (const analysis::Event& event : events) {
        const std::uint64_t address = event.address.value;
        if (event.kind == wire::Kind::kLinearAcquired || event.kind == wire::Kind::kMapped) {
            sizes[address] = event.bytes.value;
            steps.push_back({analysis::range_of(address, event.bytes.value), true});
        } else if (event.kind == wire::Kind::kLinearReleased || event.kind == wire::Kind::kUnmapped) {
            steps.push_back({analysis::range_of(address, sizes[address]), false});
        }
    }
    return steps;
}

// Everything between the lowest and the highest address: what is unused at the start.
analysis::Range span_of(const std::vector<Step>& steps) {
    analysis::Range span{UINT64_MAX, 0};
    for (const Step& step : steps) {
        span = {std::min(span.begin, step.range.begin), std::max(span.end, step.range.end)};
    }
    return span;
}

double extent_set_speed(const std::vector<Step>& steps) {
    analysis::ExtentSet unused;
    unused.add(span_of(steps));
    std::uint64_t sum = 0;
    const std::uint64_t begin = monotonic_ns();
    for (const Step& step : steps) {
        if (step.acquire) {
            unused.remove(step.range);
        } else {
            unused.add(step.range);
        }
        sum += unused.largest();
    }
    const std::uint64_t spent = monotonic_ns() - begin;
    keep(sum);
    return millions_per_second(steps.size(), spent);
}

// The textbook answer: unused ranges by address in a map, their sizes in a multiset.
double map_and_multiset_speed(const std::vector<Step>& steps) {
    std::map<std::uint64_t, std::uint64_t> unused;
    std::multiset<std::uint64_t> sizes;
    const analysis::Range span = span_of(steps);
    unused.emplace(span.begin, span.end);
    sizes.insert(span.size());
    const auto put = [&](std::uint64_t from, std::uint64_t to) {
        unused.emplace(from, to);
        sizes.insert(to - from);
    };
    const auto take = [&](std::map<std::uint64_t, std::uint64_t>::iterator at) {
        sizes.erase(sizes.find(at->second - at->first));
        return unused.erase(at);
    };
    std::uint64_t sum = 0;
    const std::uint64_t begin = monotonic_ns();
    for (const Step& step : steps) {
        std::uint64_t from = step.range.begin;
        std::uint64_t to = step.range.end;
        auto after = unused.upper_bound(from);
        if (step.acquire) {  // the range lies inside one unused range
            const auto whole = std::prev(after);
            const std::uint64_t left = whole->first;
            const std::uint64_t right = whole->second;
            take(whole);
            if (left < from) put(left, from);
            if (to < right) put(to, right);
        } else {
            if (after != unused.begin() && std::prev(after)->second == from) {
                const auto before = std::prev(after);
                from = before->first;
                after = take(before);
            }
            if (after != unused.end() && after->first == to) {
                to = after->second;
                take(after);
            }
            put(from, to);
        }
        sum += sizes.empty() ? 0 : *sizes.rbegin();
    }
    const std::uint64_t spent = monotonic_ns() - begin;
    keep(sum);
    return millions_per_second(steps.size(), spent);
}

struct Explained {
    double seconds = 0;
    double peak_mib = 0;
    int status = -1;
};

// Runs `fragscope explain` with its output thrown away.
Explained explain(const char* fragscope, const std::string& path) {
    Explained out;
    const std::uint64_t begin = monotonic_ns();
    const pid_t child = fork();
    if (child < 0) return out;
    if (child == 0) {
        const int nothing = open("/dev/null", O_WRONLY);
        if (nothing >= 0) dup2(nothing, STDOUT_FILENO);
        execl(fragscope, fragscope, "explain", path.c_str(), static_cast<char*>(nullptr));
        _exit(127);
    }
    int status = 0;
    rusage usage{};
    if (wait4(child, &status, 0, &usage) != child) return out;
    out.seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
    out.peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
    out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return out;
}

// In a child, so that this process stays small: a child's peak memory as the kernel counts it includes what
// its parent held when it was started. Returns what was wrong, or nothing.
std::string write_recording(const std::string& path, std::size_t events) {
    const pid_t child = fork();
    if (child < 0) return "no process could be started";
    if (child == 0) {
        Rows rows = random_pool(events, 3);
        add_failure(rows);
        auto opened = collector::FileSink::open(path, collector::Existing::kRefuse);
        if (opened.sink == nullptr) _exit(1);
        write_trace(rows, *opened.sink);
        opened.sink->finish();
        _exit(opened.sink->problem().empty() ? 0 : 1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return "the recording could not be written to " + path;
}

// Call it before anything large is held.
// The median time in seconds; 0 where nothing was measured.
double measure_explain(const char* fragscope, std::size_t events, int rounds, std::vector<Line>& lines) {
    const std::string what = fmt::format("explain, {} events", events);
    const char* folder = getenv("TMPDIR");
    const std::string path =
        fmt::format("{}/fragscope-bench-{}.fst", folder == nullptr ? "/tmp" : folder, getpid());
    if (const std::string problem = write_recording(path, events); !problem.empty()) {
        lines.push_back({what, std::nullopt, "s", kAimExplain, problem});
        unlink(path.c_str());
        return 0;
    }
    std::vector<double> seconds;
    std::vector<double> peaks;
    int status = 0;
    for (int i = 0; i < rounds && status == 0; ++i) {
        const Explained one = explain(fragscope, path);
        status = one.status;
        seconds.push_back(one.seconds);
        peaks.push_back(one.peak_mib);
    }
    unlink(path.c_str());
    if (status != 0) {
        lines.push_back(
            {what, std::nullopt, "s", kAimExplain, fmt::format("it ended with status {}", status)});
        return 0;
    }
    lines.push_back({what + ": time", median(seconds), "s", kAimExplain, "file to words, a new process, with threads of its own"});
    lines.push_back(
        {what + ": peak memory", median(peaks), "MiB", "", "aim: grows with what is live, not with events"});
    return median(seconds);
}

}  // namespace

int main(int argc, char** argv) {
    const std::size_t events = argc > 2 ? strtoull(argv[2], nullptr, 10) : 2'000'000;
    const int rounds = argc > 3 ? atoi(argv[3]) : 5;
    const std::size_t explained = argc > 4 ? strtoull(argv[4], nullptr, 10) : 10'000'000;
    if (argc < 2 || events < 1000 || rounds < 1 || explained < 1000) {
        fmt::print(stderr, "usage: bench_analysis FRAGSCOPE [EVENTS] [ROUNDS] [EXPLAINED_EVENTS]\n");
        return 2;
    }
    std::vector<Line> explain_lines;
    const double explain_seconds = measure_explain(argv[1], explained, std::min(rounds, 3), explain_lines);
    std::vector<Line> lines;
    const std::vector<analysis::Event> pool = events_of(random_pool(events, 1));
    const std::vector<analysis::Event> repeating = events_of(repeating_iterations(events, 2));
    const std::vector<analysis::Event> pages = events_of(virtual_pages(events, 3));
    const std::vector<Step> pool_steps = steps_of(pool);
    const std::vector<Step> page_steps = steps_of(pages);
    analysis::Trace sought;
    sought.processes.emplace_back();
    sought.events.emplace_back(pool);
    const std::vector<double> speeds =
        interleaved_medians({{"", [&] { return replay_speed(pool); }},
                             {"", [&] { return replay_speed(repeating); }},
                             {"", [&] { return replay_speed(pages); }},
                             {"", [&] { return extent_set_speed(pool_steps); }},
                             {"", [&] { return map_and_multiset_speed(pool_steps); }},
                             {"", [&] { return extent_set_speed(page_steps); }},
                             {"", [&] { return map_and_multiset_speed(page_steps); }},
                             {"", [&] { return seek_speed(sought, analysis::StateSeeker::kCopies); }},
                             {"", [&] { return seek_speed(sought, 1); }}},
                            rounds);
    lines.push_back(
        {"replay, random pool", speeds[0], "M/s", kAimPool, "whole memory state after every event"});
    lines.push_back({"replay, repeating iterations", speeds[1], "M/s", kAimPool, ""});
    lines.push_back({"replay, virtual pages", speeds[2], "M/s", kAimVirtual, ""});
    lines.push_back(
        {"largest unused extent, random pool", speeds[3], "M/s", kAimPool, "analysis/extent_map.h"});
    lines.push_back({"  std::map + multiset", speeds[4], "M/s", "", "for comparison"});
    lines.push_back(
        {"largest unused extent, virtual pages", speeds[5], "M/s", kAimVirtual, "analysis/extent_map.h"});
    lines.push_back({"  std::map + multiset", speeds[6], "M/s", "", "for comparison"});
    lines.push_back({"states at random moments", speeds[7], "1/s", "", "analysis/seeker.h"});
    lines.push_back({"  replayed from the beginning", speeds[8], "1/s", "", "for comparison"});
    lines.insert(lines.end(), explain_lines.begin(), explain_lines.end());
    if (explain_seconds != 0) {
        lines.push_back({"  events per second, to std::map + multiset's",
                         static_cast<double>(explained) / 1e6 / explain_seconds / speeds[4], "x",
                         kAimExplainRatio, "file to words, against the largest extent of the pool alone"});
    }
    print("bench_analysis",
          fmt::format("{} events, median of {} interleaved rounds, one core but for explain", events, rounds), lines);
    return 0;
}
