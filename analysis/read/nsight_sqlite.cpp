// Reads Nsight Systems' SQLite export into a trace: each row of the memory and pool events becomes an event
// of its process, in the order of their times, with the function, the thread, the duration and the call chain
// of the call that it belongs to; calls that failed become failures without a size.
//
// What the driver's own interposer tells apart and this export does not: whether a size is what was asked for
// or what was taken, on which device a call failed, when a stream-ordered release takes effect. See
// add_unknown.
#include "analysis/read/nsight_sqlite.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "analysis/failures.h"
#include "analysis/read/nsight_calls.h"
#include "analysis/read/nsight_events.h"
#include "analysis/read/nsight_stacks.h"
#include "analysis/read/nsight_tables.h"
#include "analysis/read/sqlite_file.h"

namespace fragscope::analysis {

namespace {

using wire::Kind;

struct Draft {
    Event event;
    std::uint64_t at = 0;  // orders events: of a call the moment of the allocation inside of it
    std::optional<std::uint64_t> correlation;
};

struct Recorded {
    NsightProcess id = 0;
    std::vector<Draft> drafts;
    std::set<std::int16_t> devices;
    bool frees_in_stream_order = false;
};

struct FailedCall {
    std::uint32_t process = 0;
    NsightCallRow call;
};

// An event whose call is looked for.
struct Link {
    std::uint32_t process = 0;
    std::uint64_t correlation = 0;
    std::size_t draft = 0;
    auto key() const { return std::pair(process, correlation); }
};

std::string seconds(std::uint64_t ns) { return fmt::format("{:.6f} s", static_cast<double>(ns) / 1e9); }

class Export {
  public:
    Export(SqliteFile& file, Trace& trace) : file_(file), tables_(file), trace_(trace) {}

    std::string read() {
        find_taking_functions();
        if (!file_.has_table(kNsightMemory)) return without_memory();
        trace_.functions = kNsightFunctions;
        devices_ = tables_.devices();
        said_ = tables_.processes();
        tables_.for_each_memory([&](const NsightMemoryRow& row) { return take_memory(row); });
        tables_.for_each_pool([&](const NsightPoolRow& row) { return take_pool(row); });
        tables_.for_each_synchronization(
            [&](const NsightSynchronizationRow& row) { return take_synchronization(row); });
        if (refused_.empty() && file_.problem().empty()) read_calls();
        if (refused_.empty() && file_.problem().empty()) finish();
        if (refused_.empty() && file_.problem().empty() && rows_ == 0 && tables_.bad().count != 0)
            refused_ = fmt::format("none of its memory events can be read: {}", tables_.bad().first);
        if (!file_.problem().empty()) return file_.problem();
        return refused_.empty()
                   ? ""
                   : fmt::format("cannot read {} as an export of Nsight Systems: {}", file_.path(), refused_);
    }

  private:
    // The table is there only if the option was given.
    std::string without_memory() {
        std::uint64_t failed = 0;
        NsightCallRow first;
        tables_.for_each_call([&](const NsightCallRow& call) {
            if (call.result == kOutOfMemory && taking_.contains(call.name) && failed++ == 0) first = call;
            return true;
        });
        if (!file_.problem().empty()) return file_.problem();
        std::string out = fmt::format(
            "{} holds no memory events (no table {}): they are recorded with `nsys profile "
            "--cuda-memory-usage=true`",
            file_.path(), kNsightMemory);
        if (failed != 0)
            out += fmt::format("; of its calls {} failed for want of memory, the first at {}", failed,
                               seconds(first.from));
        return out;
    }

    // By their numbers in StringIds.
    void find_taking_functions() {
        tables_.for_each_text([&](std::int64_t id, std::string_view text) {
            if (text.size() > 64 || !text.starts_with("cu")) return true;
            const Kind kind = taken_by(nsight_function(text));
            if (kind != Kind::kNone) taking_.emplace(id, kind);
            return true;
        });
    }

    std::uint32_t process_of(NsightProcess id) {
        const auto [found, added] = index_.try_emplace(id, static_cast<std::uint32_t>(processes_.size()));
        if (added) processes_.emplace_back().id = id;
        return found->second;
    }

    bool has_room() {
        if (++drafts_ <= kMaxNsightEvents) return true;
        refused_ = fmt::format("it holds more than {} events, expected fewer", kMaxNsightEvents);
        return false;
    }

    bool add(std::uint32_t process, const Draft& draft) {
        if (!has_room()) return false;
        Recorded& recorded = processes_[process];
        if (draft.correlation) links_.push_back({process, *draft.correlation, recorded.drafts.size()});
        if (draft.event.device != kNoDevice) recorded.devices.insert(draft.event.device);
        recorded.drafts.push_back(draft);
        return true;
    }

    bool add(std::uint32_t process, const Event& event, std::uint64_t at,
             std::optional<std::uint64_t> correlation, const NsightPool& pool) {
        if (!add(process, {event, at, correlation})) return false;
        const auto said = pool_state_at(event, pool);
        return !said || add(process, {*said, at, std::nullopt});
    }

    bool take_memory(const NsightMemoryRow& row) {
        ++rows_;
        if (row.kind == NsightMemoryKind::kUnknown) {
            ++unknown_kind_;
            if (!row.released) unknown_bytes_ += row.bytes;
        }
        const std::optional<Event> event = event_of(row);
        if (!event) return true;
        const std::uint32_t process = process_of(row.process);
        if (event->kind == Kind::kPoolReleased) processes_[process].frees_in_stream_order = true;
        return add(process, *event, row.at, row.correlation, row.pool);
    }

    bool take_pool(const NsightPoolRow& row) {
        const bool gone = row.operation == NsightPoolOperation::kDestroyed;
        return add(process_of(row.process), event_of(row), row.at, row.correlation,
                   gone ? NsightPool{} : row.pool);
    }

    // Only where frees wait for their stream.
    bool take_synchronization(const NsightSynchronizationRow& row) {
        const auto found = index_.find(row.process);
        if (found == index_.end() || !processes_[found->second].frees_in_stream_order) return true;
        return add(found->second, {event_of(row), row.to, std::nullopt});
    }

    void read_calls() {
        std::sort(links_.begin(), links_.end(),
                  [](const Link& a, const Link& b) { return a.key() < b.key(); });
        tables_.for_each_call([&](const NsightCallRow& call) { return take_call(call); });
        take_failures();
    }

    bool take_call(const NsightCallRow& call) {
        const auto taking = taking_.find(call.name);
        if (call.result == kOutOfMemory || (call.result != 0 && taking != taking_.end())) {
            if (!has_room()) return false;
            failed_.push_back({process_of(call.process), call});
            return true;
        }
        const auto process = index_.find(call.process);
        bool linked = false;
        if (process != index_.end() && call.correlation) {
            const auto key = std::pair(process->second, *call.correlation);
            auto at =
                std::lower_bound(links_.begin(), links_.end(), key,
                                 [](const Link& link, const auto& wanted) { return link.key() < wanted; });
            for (; at != links_.end() && at->key() == key; ++at) {
                join(processes_[at->process].drafts[at->draft], at->process, call);
                linked = true;
            }
        }
        if (!linked && taking != taking_.end() && taking->second == Kind::kHandleCreated) ++handles_unseen_;
        return true;
    }

    void join(Draft& draft, std::uint32_t process, const NsightCallRow& call) {
        Event& event = draft.event;
        if (event.function.value >= kNsightFunctions.size()) return;  // an earlier row of the same number
        event.function = {stacks_.function(call.name, kNsightFunctions.size())};
        event.thread = call.thread;
        if (call.from <= draft.at) {
            event.start = {call.from};
            event.duration_ns = call.to - call.from;
        }
        if (call.chain) event.stack = stacks_.stack(process, *call.chain);
    }

    // A call of the runtime and the driver's call inside of it fail together: the outer one stands for both.
    void take_failures() {
        std::sort(failed_.begin(), failed_.end(), [](const FailedCall& a, const FailedCall& b) {
            return std::tuple(a.process, a.call.thread, a.call.from, b.call.to) <
                   std::tuple(b.process, b.call.thread, b.call.from, a.call.to);
        });
        const FailedCall* outer = nullptr;
        for (const FailedCall& failed : failed_) {
            const NsightCallRow& call = failed.call;
            if (outer != nullptr && outer->process == failed.process && outer->call.thread == call.thread &&
                call.to <= outer->call.to && call.result == outer->call.result)
                continue;
            outer = &failed;
            add_failure(failed.process, call);
        }
    }

    void add_failure(std::uint32_t process, const NsightCallRow& call) {
        const auto taking = taking_.find(call.name);
        Event event = event_of_failed(call, taking == taking_.end() ? Kind::kCalled : taking->second,
                                      only_device(process));
        event.function = {stacks_.function(call.name, kNsightFunctions.size())};
        if (call.chain) event.stack = stacks_.stack(process, *call.chain);
        ++failures_;
        processes_[process].drafts.push_back({event, call.to, std::nullopt});  // there is room: see take_call
    }

    // The device that a process's calls are for where it can be only one; calls do not name it.
    std::int16_t only_device(std::uint32_t process) const {
        const auto* const known = devices_.of(pid_of(process));
        if (known != nullptr && known->size() == 1 &&
            (devices_.gpus == 1 || devices_.by_pid.contains(pid_of(process))))
            return static_cast<std::int16_t>(known->begin()->first);
        return kNoDevice;
    }

    std::int64_t pid_of(std::uint32_t process) const {
        const auto said = said_.find(processes_[process].id);
        return said != said_.end() && said->second.pid ? *said->second.pid
                                                       : nsight_pid(processes_[process].id);
    }

    void finish() {
        trace_.names.resize(processes_.size());
        const std::uint64_t chains_missing = stacks_.finish(tables_, trace_);
        std::uint64_t earliest = std::numeric_limits<std::uint64_t>::max();
        std::uint64_t latest = 0;
        std::uint64_t events = 0;
        for (std::uint32_t process = 0; process < processes_.size(); ++process) {
            std::vector<Draft>& drafts = processes_[process].drafts;
            std::stable_sort(drafts.begin(), drafts.end(),
                             [](const Draft& a, const Draft& b) { return a.at < b.at; });
            std::vector<Event> sorted;
            sorted.reserve(drafts.size());
            for (const Draft& draft : drafts) {
                Event& event = sorted.emplace_back(draft.event);
                event.process = {process};
                event.sequence = {sorted.size()};
                earliest = std::min(earliest, event.start.value);
                latest = std::max(latest, event.start.value + event.duration_ns);
            }
            events += sorted.size();
            trace_.events.emplace_back(std::move(sorted));
            drafts = {};
            add_process(process);
        }
        trace_.session.set_start_ns(events == 0 ? 0 : earliest);
        if (const auto unix_ns = tables_.start_unix_ns())
            trace_.session.set_start_unix_ns(*unix_ns + trace_.session.start_ns());
        trace_.session.set_host_name(tables_.host_name());
        trace_.session.set_collector_version(version());
        trace_.end.set_end_ns(std::max(latest, trace_.session.start_ns()));
        trace_.end.set_reason("imported");
        trace_.end.set_events(events);
        trace_.end.set_failures(failures_);
        trace_.end.set_processes(static_cast<std::uint32_t>(processes_.size()));
        add_warnings(chains_missing);
        add_unknown();
    }

    std::string version() {
        const std::string product = tables_.meta("EXPORT_PRODUCT_VERSION");
        const std::string schema = tables_.meta("EXPORT_SCHEMA_VERSION");
        std::string out = "Nsight Systems";
        if (!product.empty()) out += " " + product;
        if (!schema.empty()) out += fmt::format(" (schema {})", schema);
        return out;
    }

    void add_process(std::uint32_t process) {
        trace::Process& out = trace_.processes.emplace_back();
        out.set_index(process);
        out.set_pid(pid_of(process));
        const auto said = said_.find(processes_[process].id);
        if (said != said_.end()) out.set_executable(said->second.name);
        const auto* const known = devices_.of(out.pid());
        for (const std::int16_t ordinal : processes_[process].devices) {
            trace::Device& device = *out.add_devices();
            device.set_ordinal(static_cast<std::uint32_t>(ordinal));
            const auto found =
                known == nullptr ? std::map<std::int64_t, NsightGpu>::const_iterator{} : known->find(ordinal);
            if (known == nullptr || found == known->end()) {
                ++devices_unknown_;
                continue;
            }
            device.set_name(found->second.name);
            device.set_uuid(uuid_bytes(found->second.uuid));
            if (found->second.total_bytes) device.set_capacity_bytes(*found->second.total_bytes);
            if (!found->second.total_bytes) ++devices_unknown_;
        }
        trace::Loss& loss = trace_.losses.emplace_back();
        loss.set_process(process);
        loss.set_acquisitions(0);
        loss.set_releases(0);
        loss.set_others(0);
        // Of which process a row was that cannot be read is not known.
        loss.set_records_refused(process == 0 ? tables_.bad().count : 0);
    }

    void add_warnings(std::uint64_t chains_missing) {
        const auto warn = [&](std::string text) { trace_.end.add_warnings(std::move(text)); };
        if (!file_.unfinished().empty()) warn(file_.unfinished());
        if (tables_.bad().count != 0)
            warn(fmt::format("{} of the export's rows could not be read. The first: {}.", tables_.bad().count,
                             tables_.bad().first));
        if (unknown_kind_ != 0)
            warn(
                fmt::format("Of {} rows the profiler did not know what kind of memory they are about ({} "
                            "bytes of allocations): "
                            "they are in no sum.",
                            unknown_kind_, unknown_bytes_));
        if (handles_unseen_ != 0)
            warn(fmt::format(
                "{} successful calls of cuMemCreate have no memory event: what they took is in no sum.",
                handles_unseen_));
        if (chains_missing != 0)
            warn(fmt::format("{} call chains that calls name are not in the export.", chains_missing));
        if (rows_ == 0) warn(fmt::format("Table {} holds no rows.", kNsightMemory));
    }

    void add_unknown() {
        trace::Provenance& provenance = *trace_.session.mutable_provenance();
        const auto say = [&](const char* text) { provenance.add_unknown(text); };
        say("Whether a size is what was asked for or what was taken: there is one number.");
        if (tables_.results_told())
            say("What a call that failed asked for: only that it failed, and with which error.");
        else
            say("Whether calls failed: the export does not hold how they ended.");
        say("On which device a call failed, where the process sees several.");
        say("Memory that was taken before the collection began, and what contexts, code and graphs take "
            "without "
            "an allocation.");
        say("What was free on the devices, and what other processes held there.");
        say("Reservations of address space, physical allocations and their mappings, unless they are among "
            "the "
            "memory events.");
        say("When a stream-ordered release took effect, unless a synchronisation followed.");
        say("Which settings pools were made with, except the release threshold.");
        if (devices_unknown_ != 0) say("The capacity of every device.");
        if (!stacks_.any())
            say("From where the calls were made (recorded with `nsys profile --cudabacktrace=memory`).");
        if (!file_.has_table(kNsightCalls) && !file_.has_table(kNsightDriverCalls))
            say("The functions, threads and durations of the calls.");
        say("The versions of the driver and of the runtime.");
    }

    SqliteFile& file_;
    NsightTables tables_;
    Trace& trace_;
    NsightStacks stacks_;
    NsightTables::Devices devices_;
    std::map<NsightProcess, NsightTables::Process> said_;
    std::unordered_map<std::int64_t, Kind> taking_;  // by number in StringIds
    std::vector<Recorded> processes_;
    std::unordered_map<NsightProcess, std::uint32_t> index_;
    std::vector<Link> links_;
    std::vector<FailedCall> failed_;
    std::string refused_;
    std::size_t drafts_ = 0;
    std::uint64_t rows_ = 0;
    std::uint64_t failures_ = 0;
    std::uint64_t unknown_kind_ = 0;
    std::uint64_t unknown_bytes_ = 0;
    std::uint64_t handles_unseen_ = 0;
    std::uint64_t devices_unknown_ = 0;
};

bool is_nsight(const SqliteFile& file) {
    for (const char* table :
         {kNsightMemory, kNsightPools, kNsightCalls, "META_DATA_EXPORT", "TARGET_INFO_GPU"})
        if (file.has_table(table)) return true;
    return false;
}

std::string read(ImportSource& source, Trace& trace) {
    SqliteFile file;
    if (std::string error = file.open(source); !error.empty()) return error;
    if (!is_nsight(file))
        return fmt::format(
            "{} is an SQLite file without the tables of Nsight Systems, expected one that `nsys export "
            "--type "
            "sqlite` made",
            source.path());
    return Export(file, trace).read();
}

}  // namespace

const Importer kNsightSqlite{"nsight-sqlite", "Nsight Systems' SQLite export", is_sqlite, read};

}  // namespace fragscope::analysis
