// Reads the allocations that failed out of Ingero's database. Ingero watches some of CUDA's functions from
// outside of the process (uprobes) and keeps, of an allocation, its size, its result and its duration, but
// not the address that it got, and no releases through the driver: of what succeeded no books can be made, so
// it is counted only. Tables and columns as in Ingero's public sources of 2026 (internal/store); columns that
// later versions added are not needed.
#include "analysis/read/ingero_sqlite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "analysis/read/clean_text.h"
#include "analysis/read/nsight_calls.h"
#include "analysis/read/sqlite_file.h"

namespace fragscope::analysis {

namespace {

// Allocations by Ingero's numbers of sources (1: the runtime's functions, 4: the driver's) and operations.
struct Operation {
    std::int64_t source;
    std::int64_t op;
    const char* function;
};
constexpr std::array kAllocations{
    Operation{1, 1, "cudaMalloc"},
    Operation{1, 8, "cudaMallocManaged"},
    Operation{4, 5, "cuMemAlloc"},
    Operation{4, 6, "cuMemAllocManaged"},
};

struct Failed {
    std::int64_t pid = 0;
    std::int64_t thread = 0;
    std::uint64_t at = 0;
    std::uint64_t duration = 0;
    std::uint64_t bytes = 0;
    std::uint16_t result = 0;
    std::uint32_t function = 0;
};

// Whether the driver's call is the one inside of the runtime's. The database gives one time of each call,
// whether its beginning or its end.
bool inside(const Failed& inner, const Failed& outer) {
    if (inner.pid != outer.pid || inner.thread != outer.thread || inner.bytes != outer.bytes ||
        inner.result != outer.result)
        return false;
    const bool from_beginnings =
        inner.at >= outer.at && inner.at + inner.duration <= outer.at + outer.duration;
    const bool from_ends = inner.at <= outer.at && inner.at + outer.duration >= outer.at + inner.duration;
    return from_beginnings || from_ends;
}

class Database {
  public:
    Database(SqliteFile& file, Trace& trace) : file_(file), trace_(trace) {}

    std::string read() {
        read_events();
        read_names();
        if (!file_.problem().empty()) return file_.problem();
        if (failed_.size() > kMaxIngeroFailures)
            return fmt::format("cannot read {}: more than {} allocations failed, expected fewer",
                               file_.path(), kMaxIngeroFailures);
        if (rows_ == 0 && bad_ != 0)
            return fmt::format("cannot read {} as Ingero's database: {}", file_.path(), first_bad_);
        finish();
        return "";
    }

  private:
    void read_events() {
        enum : std::size_t { kTime, kPid, kThread, kSource, kOperation, kDuration, kBytes, kResult };
        constexpr std::array<const char*, 8> kColumns{"timestamp", "pid",      "tid",  "source",
                                                      "op",        "duration", "arg0", "ret_code"};
        SqliteRows rows(file_, "events", kColumns);
        while (rows.next() && failed_.size() <= kMaxIngeroFailures) {
            const auto source = rows.integer(kSource);
            const auto operation = rows.integer(kOperation);
            const auto* const found =
                std::find_if(kAllocations.begin(), kAllocations.end(), [&](const Operation& allocation) {
                    return source == allocation.source && operation == allocation.op;
                });
            if (rows.wrong().empty() && found == kAllocations.end()) continue;
            std::array<std::int64_t, kColumns.size()> cells{};
            std::string wrong;
            for (std::size_t column = 0; column < cells.size(); ++column) {
                const auto cell = rows.integer(column);
                if ((!cell || *cell < 0) && wrong.empty())
                    wrong = fmt::format("row {}: column {} holds {}, expected a number from 0 on", rows.row(),
                                        kColumns.at(column), cell ? std::to_string(*cell) : "none");
                cells.at(column) = cell.value_or(0);
            }
            if (!rows.wrong().empty() || !wrong.empty()) {
                if (bad_++ == 0) first_bad_ = rows.wrong().empty() ? wrong : rows.wrong();
                continue;
            }
            ++rows_;
            if (cells[kResult] == 0) {
                ++succeeded_;
                continue;
            }
            Failed failed;
            failed.pid = cells[kPid];
            failed.thread = cells[kThread];
            failed.at = static_cast<std::uint64_t>(cells[kTime]);
            failed.duration = static_cast<std::uint64_t>(cells[kDuration]);
            failed.bytes = static_cast<std::uint64_t>(cells[kBytes]);
            failed.result = static_cast<std::uint16_t>(
                std::min<std::int64_t>(cells[kResult], std::numeric_limits<std::uint16_t>::max()));
            failed.function = static_cast<std::uint32_t>(found - kAllocations.begin());
            failed_.push_back(failed);
        }
    }

    void read_names() {
        constexpr std::array<const char*, 2> kColumns{"pid", "name"};
        SqliteRows rows(file_, "process_names", kColumns);
        while (rows.next()) {
            const auto pid = rows.integer(0);
            const auto name = rows.text(1);
            if (pid && name) names_.emplace(*pid, clean_text(*name));
        }
    }

    void finish() {
        for (const Operation& allocation : kAllocations) trace_.functions.emplace_back(allocation.function);
        std::stable_sort(failed_.begin(), failed_.end(), [](const Failed& a, const Failed& b) {
            return std::tuple(a.pid, a.thread, a.at) < std::tuple(b.pid, b.thread, b.at);
        });
        std::vector<Failed> once;
        for (const Failed& failed : failed_) {
            if (!once.empty() && inside(failed, once.back())) continue;
            if (!once.empty() && inside(once.back(), failed)) once.pop_back();
            once.push_back(failed);
        }
        std::stable_sort(once.begin(), once.end(),
                         [](const Failed& a, const Failed& b) { return a.at < b.at; });
        const std::uint64_t start = once.empty() ? 0 : once.front().at;
        std::map<std::int64_t, std::uint32_t> processes;
        std::uint64_t end = 0;
        for (const Failed& failed : once) {
            const auto index = static_cast<std::uint32_t>(processes.size());
            const auto [process, added] = processes.try_emplace(failed.pid, index);
            if (added) add_process(index, failed.pid);
            EventLog& log = trace_.events[process->second];
            Event event;
            event.process = {process->second};
            event.function = {failed.function};
            event.sequence = {log.size() + 1};
            event.start = {failed.at - start};
            event.duration_ns = failed.duration;
            event.kind = taken_by(trace_.functions[failed.function]);
            event.result = failed.result;
            event.flags = wire::kUnknownDevice;
            event.thread = static_cast<std::int32_t>(
                std::min<std::int64_t>(failed.thread, std::numeric_limits<std::int32_t>::max()));
            event.bytes = {failed.bytes};
            log.push_back(event);
            end = std::max(end, event.start.value);
        }
        trace_.session.set_start_unix_ns(start);
        trace_.session.set_collector_version("Ingero");
        trace_.end.set_end_ns(end);
        trace_.end.set_reason("imported");
        trace_.end.set_events(once.size());
        trace_.end.set_failures(once.size());
        trace_.end.set_processes(static_cast<std::uint32_t>(processes.size()));
        if (!file_.unfinished().empty()) trace_.end.add_warnings(file_.unfinished());
        if (bad_ != 0)
            trace_.end.add_warnings(fmt::format(
                "{} of the rows of allocations could not be read. The first: {}.", bad_, first_bad_));
        if (once.empty())
            trace_.end.add_warnings(
                fmt::format("None of the {} allocations that it tells of failed.", rows_));
        trace::Provenance& provenance = *trace_.session.mutable_provenance();
        provenance.add_unknown(
            fmt::format("What was held: {} allocations succeeded, but neither their addresses nor all "
                        "releases are recorded.",
                        succeeded_));
        for (const char* text :
             {"Allocations by other functions: from pools, of virtual memory, of arrays, of page-locked "
              "memory.",
              "Allocations that Ingero counted without keeping each, and what it did not see.",
              "The devices: their capacity, what was free on them, and on which one a call failed.",
              "Whether the time of a call is that of its beginning or of its end.",
              "From where the calls were made: the database may hold stacks, which are not read."})
            provenance.add_unknown(text);
    }

    void add_process(std::uint32_t index, std::int64_t pid) {
        trace::Process& process = trace_.processes.emplace_back();
        process.set_index(index);
        process.set_pid(pid);
        if (const auto name = names_.find(pid); name != names_.end()) process.set_executable(name->second);
        trace::Loss& loss = trace_.losses.emplace_back();
        loss.set_process(index);
        loss.set_acquisitions(0);
        loss.set_releases(0);
        loss.set_others(0);
        loss.set_records_refused(index == 0 ? bad_ : 0);
        trace_.events.emplace_back();
        trace_.names.emplace_back();
    }

    SqliteFile& file_;
    Trace& trace_;
    std::vector<Failed> failed_;
    std::map<std::int64_t, std::string> names_;
    std::uint64_t rows_ = 0;
    std::uint64_t succeeded_ = 0;
    std::uint64_t bad_ = 0;
    std::string first_bad_;
};

// Its tables are made when the file is, so they are described in its first pages.
bool recognizes(std::string_view head) {
    return is_sqlite(head) && head.find("ret_code") != std::string_view::npos &&
           head.find("stack_hash") != std::string_view::npos;
}

std::string read(ImportSource& source, Trace& trace) {
    SqliteFile file;
    if (std::string error = file.open(source); !error.empty()) return error;
    if (!file.has_table("events"))
        return fmt::format("{} is an SQLite file without the table events, expected one that Ingero made",
                           source.path());
    return Database(file, trace).read();
}

}  // namespace

const Importer kIngeroSqlite{"ingero-sqlite", "Ingero's database (allocations that failed)", recognizes,
                             read};

}  // namespace fragscope::analysis
