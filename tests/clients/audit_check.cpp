// Holds the audit of a recording of several processes against the simulated driver's ledger of the same run,
// at every sample of every process.
//   audit_check TRACE LEDGER DRIVER_RESERVE
// At each sample: what the process itself held, column by column; what each other process held; what the
// device had free; and what no record explains, which is the driver's reserve and the processes' contexts and
// code. An exact quantity must be equal, an interval must hold the true value, and have both ends but where
// `Ends` says why not. Samples count up to the last mark "mixture:end": until then all processes live.
//
// Prints one JSON object with the numbers; complains on stderr and returns 1 where the two do not agree.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "analysis/balance.h"
#include "analysis/read/trace_reader.h"
#include "analysis/samples.h"
#include "analysis/session.h"
#include "tests/clients/truth.h"

using namespace fragscope;
using namespace fragscope::clients;
using analysis::Balance;
using analysis::Event;
using analysis::Interval;
using analysis::ProcessIndex;
using analysis::ProcessState;

namespace {

constexpr std::size_t kMostProblems = 20;

// Of the process's books, what is no part of a balance.
struct Books {
    std::uint64_t reserved = 0, mapped = 0, requested = 0, pool_live = 0;
};

// How often a column was compared, and how.
struct Tally {
    std::uint64_t exact = 0;    // one true value and one of ours: they are equal
    std::uint64_t bounded = 0;  // the true value lies in our interval
    // Another process was at work while the driver was asked. The true value may have changed meanwhile, or
    // its call counts or does not: the two intervals have a value in common.
    std::uint64_t moving = 0;
};

// The ends that our interval must have. The calls tell an array's texels only, which is a lower end; a process
// asks for its own pools and graphs at its own samples, so of another's there is a lower end too. What is left
// has an upper end therefore, and a lower one where nothing of that kind is among the parts.
enum class Ends : std::uint8_t { kBoth, kLow, kHigh };

struct Check {
    const analysis::Trace& trace;
    const Truth& truth;
    std::uint64_t driver_reserve;
    std::map<std::string, Tally> columns;
    std::vector<std::string> problems;
    std::uint64_t samples = 0, problem_count = 0;

    void problem(const Balance& balance, const std::string& what) {
        if (++problem_count <= kMostProblems)
            problems.push_back(fmt::format("process {}, device {}, record {}: {}", balance.process.value,
                                           balance.device, balance.scope.snapshot.value_or(0), what));
    }
    // `at_work`: another process was, of those that this amount depends on.
    void compare(const Balance& balance, const std::string& column, const Interval& ours,
                 const Range& true_bytes, bool at_work = false, Ends ends = Ends::kBoth) {
        const std::int64_t low = ours.low ? static_cast<std::int64_t>(*ours.low) : INT64_MIN;
        const std::int64_t high = ours.high ? static_cast<std::int64_t>(*ours.high) : INT64_MAX;
        compare_signed(balance, column, low, high, true_bytes, at_work, ends);
    }
    void compare_signed(const Balance& balance, const std::string& column, std::int64_t low,
                        std::int64_t high, const Range& true_bytes, bool at_work, Ends ends) {
        if (ends != Ends::kHigh && low == INT64_MIN) problem(balance, column + " has no lower end");
        if (ends != Ends::kLow && high == INT64_MAX) problem(balance, column + " has no upper end");
        if (true_bytes.high < low || true_bytes.low > high) {
            return problem(balance, fmt::format("{} is {} to {}, and in truth {} to {}", column, low, high,
                                                true_bytes.low, true_bytes.high));
        }
        Tally& tally = columns[column];
        ++(!true_bytes.single() || (at_work && low != high) ? tally.moving
           : low == high                                    ? tally.exact
                                                            : tally.bounded);
    }

    void at(const Balance& balance, const Books& books);
    bool at_work(std::int32_t pid, std::uint64_t from_ns, std::uint64_t to_ns) const;
};

// An end that one of both lacks is open.
Interval sum_of(const Interval& a, const Interval& b) {
    const Interval sum = a + b;
    return {a.low && b.low ? sum.low : std::nullopt, a.high && b.high ? sum.high : std::nullopt};
}

std::int32_t pid_of(const analysis::Trace& trace, ProcessIndex process) {
    return static_cast<std::int32_t>(trace.processes[process.value].pid());
}

// Whether a call of that process overlaps with these times.
bool Check::at_work(std::int32_t pid, std::uint64_t from_ns, std::uint64_t to_ns) const {
    for (std::uint32_t p = 0; p < trace.events.size(); ++p) {
        if (pid_of(trace, ProcessIndex{p}) != pid) continue;
        for (const Event& event : trace.events[p]) {
            if (event.start.value <= to_ns && event.start.value + event.duration_ns >= from_ns) return true;
        }
    }
    return false;
}

void Check::at(const Balance& b, const Books& books) {
    ++samples;
    const std::int32_t own = pid_of(trace, b.process);
    const Held held = truth.held(own, b.device, b.from_ns, b.to_ns);
    const Held space = truth.held(own, -1, b.from_ns, b.to_ns);
    const auto column = [&](Column which) { return held.charged[static_cast<std::size_t>(which)]; };
    const auto count = [&](const Held& of, Count which) {
        return of.counts[static_cast<std::size_t>(which)];
    };

    compare(b, "address_reserved", Interval::exactly(books.reserved), count(space, Count::kReserved));
    compare(b, "mapped", Interval::exactly(books.mapped), count(held, Count::kMapped));
    compare(b, "linear_requested", Interval::exactly(books.requested), count(held, Count::kRequested));
    compare(b, "pools_used", Interval::exactly(books.pool_live), count(held, Count::kPoolLive));

    static const std::map<std::string, Column> kParts = {{"handles", Column::kHandles},
                                                         {"linear", Column::kLinear},
                                                         {"arrays", Column::kArrays},
                                                         {"pools", Column::kPools},
                                                         {"graphs", Column::kGraphs}};
    // Calls of the process's other threads, of any column: they may count more than its part says.
    Interval under_way = Interval::exactly(0);
    for (const analysis::Part& part : b.parts) {
        if (part.id == "under_way") under_way = part.bytes.interval();
    }
    Interval attributed = under_way;
    std::size_t own_parts = 0, others = 0;
    for (const analysis::Part& part : b.parts) {
        const auto known = kParts.find(part.id);
        if (known != kParts.end()) {
            ++own_parts;
            const bool of_arrays = known->second == Column::kArrays && truth.uses(own, Column::kArrays);
            compare(b, part.id, sum_of(part.bytes.interval(), under_way), column(known->second), false,
                    of_arrays ? Ends::kLow : Ends::kBoth);
            attributed = sum_of(attributed, part.bytes.interval());
        } else if (part.id == "process") {
            ++others;
        } else if (part.id != "under_way") {
            // CUPTI alone tells of other parts, and is not listened to.
            problem(b, "a part is not expected: " + part.id);
        }
    }
    if (own_parts != kParts.size()) problem(b, fmt::format("{} own parts", own_parts));
    bool open = truth.uses(own, Column::kArrays);
    compare(b, "attributed", attributed, held.attributed, false, open ? Ends::kLow : Ends::kBoth);

    // The others: each that holds anything there has its part.
    const auto reserve = static_cast<std::int64_t>(driver_reserve);
    Range taken = held.all + Range{reserve, reserve};
    Range overhead = column(Column::kOverhead) + Range{reserve, reserve};
    const std::vector<analysis::Part>& parts = b.parts;
    std::map<std::int32_t, Interval> said;
    for (const analysis::Part& part : parts) {
        if (part.id != "process") continue;
        for (std::uint32_t i = 0; i < trace.processes.size(); ++i) {
            if (part.words == analysis::process_in_words(trace, ProcessIndex{i}))
                said[pid_of(trace, ProcessIndex{i})] = part.bytes.interval();
        }
    }
    if (said.size() != others) problem(b, "a part is of a process that the trace does not know");
    bool any_at_work = false;
    for (const std::int32_t pid : truth.pids()) {
        if (pid == own) continue;
        const Held other = truth.held(pid, b.device, b.from_ns, b.to_ns);
        taken = taken + other.all;
        overhead = overhead + other.charged[static_cast<std::size_t>(Column::kOverhead)];
        const auto found = said.find(pid);
        const Interval ours = found == said.end() ? Interval::exactly(0) : found->second;
        const bool works = !ours.exact() && at_work(pid, b.from_ns, b.to_ns);
        any_at_work = any_at_work || works;
        bool theirs_open = false;
        for (const Column which : {Column::kArrays, Column::kPools, Column::kGraphs})
            theirs_open = theirs_open || truth.uses(pid, which);
        open = open || theirs_open;
        compare(b, theirs_open ? "other_processes_with_pools_or_arrays" : "other_processes", ours,
                other.attributed, works, theirs_open ? Ends::kLow : Ends::kBoth);
    }
    compare(b, "taken", Interval::exactly(b.taken()), taken);
    const analysis::Margin rest = analysis::rest_of(b);
    compare_signed(b, "unattributed", rest.low.value_or(INT64_MIN), rest.high.value_or(INT64_MAX), overhead,
                   any_at_work, open ? Ends::kHigh : Ends::kBoth);
}

// Sums up to the last mark by which a process says that its work is done.
std::uint64_t end_of_work(const analysis::Trace& trace) {
    std::uint64_t end = 0;
    for (std::size_t p = 0; p < trace.events.size(); ++p) {
        for (const Event& event : trace.events[p]) {
            if (event.kind != wire::Kind::kMark) continue;
            const auto text = trace.names[p].texts.find(static_cast<std::uint32_t>(event.object.value));
            if (text != trace.names[p].texts.end() && text->second == "mixture:end")
                end = std::max(end, event.start.value);
        }
    }
    return end;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        fmt::print(stderr, "usage: audit_check TRACE LEDGER DRIVER_RESERVE\n");
        return 2;
    }
    const analysis::ReadResult read = analysis::read_trace(argv[1]);
    std::vector<soak::Line> lines;
    std::string wrong = read.trace ? soak::read_ledger(argv[2], lines) : read.error;
    Truth truth;
    if (wrong.empty()) wrong = truth.build(lines);
    if (!wrong.empty()) {
        fmt::print(stderr, "{}\n", wrong);
        return 1;
    }
    const analysis::Trace& trace = *read.trace;
    const std::uint64_t end = end_of_work(trace);

    std::vector<Balance> balances;
    std::map<std::pair<std::uint32_t, std::size_t>, Books> books;  // by process and the event's place in it
    for (std::uint32_t p = 0; p < trace.events.size(); ++p) {
        ProcessState state = analysis::state_of(trace, ProcessIndex{p});
        const analysis::Activity activity = analysis::activity_of(trace, ProcessIndex{p});
        analysis::SampleRecorder recorder(trace, ProcessIndex{p}, activity, SIZE_MAX);
        std::size_t index = 0;
        for (const Event& event : trace.events[p]) {
            state.apply(event);
            recorder.add(state, event);
            if (event.kind == wire::Kind::kDeviceMemory && event.has(wire::kSample)) {
                const analysis::DeviceTotals& totals = state.totals(event.device);
                Books now{0, totals.mapped, totals.linear_requested, totals.pool_live};
                state.reservations().for_each(
                    [&](const analysis::Range& range, const analysis::Reservation&) {
                        now.reserved += range.size();
                    });
                books[{p, index}] = now;
            }
            ++index;
        }
        for (Balance& balance : recorder.take()) balances.push_back(std::move(balance));
    }
    analysis::add_neighbours(trace, balances);

    Check check{trace, truth, std::strtoull(argv[3], nullptr, 10), {}, {}};
    for (const Balance& balance : balances) {
        if (balance.from_ns < end) check.at(balance, books[{balance.process.value, balance.index}]);
    }
    std::string columns;
    for (const auto& [name, tally] : check.columns)
        columns += fmt::format(R"({}"{}": {{"exact": {}, "bounded": {}, "moving": {}}})",
                               columns.empty() ? "" : ", ", name, tally.exact, tally.bounded, tally.moving);
    fmt::print(R"({{"samples": {}, "processes": {}, "ledger_lines": {}, "columns": {{{}}}, "problems": {}}})"
               "\n",
               check.samples, trace.processes.size(), lines.size(), columns, check.problem_count);
    for (const std::string& problem : check.problems) fmt::print(stderr, "{}\n", problem);
    return check.problem_count == 0 ? 0 : 1;
}
