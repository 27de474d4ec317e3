// A memory snapshot of PyTorch as a trace of one process: what its allocator held in front of the first entry of its
// lists, what it did since, and what it holds at the end. Segments are the driver's linear allocations, and ranges that
// are mapped in expandable segments physical memory of unknown granularity: no entry names a handle.
#include "analysis/read/torch_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "analysis/quantity.h"
#include "analysis/read/packed_events.h"
#include "analysis/read/torch_history.h"
#include "analysis/read/torch_names.h"

namespace fragscope::analysis {

namespace {

constexpr std::uint64_t kNsPerUs = 1000;

std::string blocks_in_words(std::uint64_t count) {
    return count == 1 ? "1 block" : fmt::format("{} blocks", count);
}

class Snapshot {
  public:
    Snapshot(ImportSource& source, Trace& trace) : source_(source), trace_(trace) {}

    std::string read() {
        if (std::string refused = read_snapshot_file(source_, file_); !refused.empty()) return refused;
        trace_.functions = snapshot_functions();
        trace_.processes.emplace_back().set_index(0);
        trace_.losses.emplace_back().set_process(0);
        trace_.events.emplace_back();
        put_names();
        totals_ = totals_of(file_);
        // What one device did needs no sorting.
        const bool alone = totals_.size() == 1 && file_.annotations.empty();
        std::vector<EventLog> parts;
        for (const snapshot::DeviceTotals& totals : totals_) {
            DeviceHistory history(file_, static_cast<int>(totals.ordinal()), pool_texts_, snapshot_text_);
            auto part = std::make_shared<PackedEvents>();
            const std::string refused = history.run([&](const Event& event) {
                if (alone)
                    add(event);
                else
                    part->add(event);
            });
            if (!refused.empty())
                return fmt::format("cannot read {} as a snapshot of PyTorch's: {}", source_.path(), refused);
            part->finish();
            parts.emplace_back(std::move(part));
            add_findings(static_cast<int>(totals.ordinal()), history.findings());
        }
        if (!file_.annotations.empty()) parts.push_back(annotations());
        if (!alone) merge(parts);
        packed_->finish();
        trace_.events[0] = EventLog(packed_);
        finish();
        return "";
    }

  private:
    void put_names() {
        SnapshotNames names(file_, trace_.names.emplace_back());
        names.add_stacks();
        snapshot_text_ = names.text("snapshot");
        pool_texts_.push_back(0);
        for (std::size_t i = 1; i < file_.pools.size(); ++i) {
            const auto& [first, second] = file_.pools[i];
            pool_texts_.push_back(names.text(fmt::format("({}, {})", first, second)));
        }
        // From here on entries, segments and annotations name what the trace has.
        for (auto& entries : file_.traces) {
            for (SnapshotEntry& entry : entries) {
                entry.text = names.text(entry.text);
                entry.stack = names.stack(entry.stack);
            }
        }
        for (SnapshotSegment& segment : file_.segments) {
            segment.stack = names.stack(segment.stack);
            for (SnapshotBlock& block : segment.blocks) block.stack = names.stack(block.stack);
        }
        for (SnapshotAnnotation& annotation : file_.annotations) {
            ends_.push_back(file_.texts[annotation.stage] == "END");
            annotation.name = names.text(annotation.name);
        }
        if (!names.complete())
            trace_.end.add_warnings(
                "The file has more call stacks or names than a trace can hold: some are left out.");
    }

    // Ranges that the program named: of one name the one begun last ends first.
    EventLog annotations() {
        std::vector<Event> events;
        std::map<std::uint32_t, std::vector<std::uint64_t>> open;
        std::uint64_t number = 0;
        for (std::size_t i = 0; i < file_.annotations.size(); ++i) {
            const SnapshotAnnotation& annotation = file_.annotations[i];
            Event event;
            event.function = {static_cast<std::uint32_t>(SnapshotFunction::kAnnotation)};
            event.kind = wire::Kind::kRangeBegun;
            event.thread = annotation.device;
            event.start = {annotation.time_us * kNsPerUs};
            event.object = {annotation.name};
            std::vector<std::uint64_t>& same = open[annotation.name];
            if (!ends_[i]) {
                event.extra = ++number;
                same.push_back(number);
            } else {
                if (same.empty()) continue;  // begun before the list
                event.kind = wire::Kind::kRangeEnded;
                event.object = {0};
                event.extra = same.back();
                same.pop_back();
            }
            events.push_back(event);
        }
        std::stable_sort(events.begin(), events.end(),
                         [](const Event& a, const Event& b) { return a.start < b.start; });
        return EventLog(std::move(events));
    }

    void add(Event event) {
        event.sequence = {packed_->size() + 1};
        start_ = event.start.value != 0 ? std::min(start_, event.start.value) : start_;
        end_ = std::max(end_, event.start.value);
        failures_ += event.failed() ? 1 : 0;
        packed_->add(event);
    }

    // By time; of one time in the order of the parts.
    void merge(const std::vector<EventLog>& parts) {
        std::vector<std::size_t> at(parts.size());
        for (;;) {
            std::size_t next = parts.size();
            for (std::size_t p = 0; p < parts.size(); ++p) {
                if (at[p] == parts[p].size()) continue;
                if (next == parts.size() || parts[p][at[p]].start < parts[next][at[next]].start) next = p;
            }
            if (next == parts.size()) return;
            add(parts[next][at[next]++]);
        }
    }

    void add_findings(int device, const HistoryFindings& found) {
        const auto say = [&](std::uint64_t count, const std::string& what) {
            if (count != 0) trace_.end.add_warnings(fmt::format("Device {}: {}", device, what));
        };
        say(found.vanished_blocks,
            fmt::format("handed out, and gone without an entry that says so: {}.",
                        blocks_in_words(found.vanished_blocks)));
        say(found.doubled_blocks,
            fmt::format("freed, and in use later without an entry that hands them out again: {}.",
                        blocks_in_words(found.doubled_blocks)));
        say(found.vanished_segments,
            fmt::format("segments taken, and gone without an entry that says so: {}.", found.vanished_segments));
        say(found.doubled_segments,
            fmt::format("segments given back, and there later without an entry that takes them again: {}.", found.doubled_segments));
        say(found.outside, fmt::format("in no segment that the file tells of: {}.", blocks_in_words(found.outside)));
        say(found.overlapped,
            fmt::format("still in use, by the list, where another was handed out: {}.",
                        blocks_in_words(found.overlapped)));
        say(found.end_differs, fmt::format("at the end the list comes to other blocks than the snapshot has: {} differ.",
                                           found.end_differs));
        // Sizes that are left open make such sums too small: no contradiction.
        say(found.sizes_at_least == 0 || found.totals_above ? found.totals_differ : 0,
            fmt::format("{} of the {} sums of active blocks that the list itself states are not those that it comes "
                        "to; the first: {}.",
                        found.totals_differ, found.totals, found.first_total));
        lost_releases_ += found.vanished_blocks + found.vanished_segments;
        lost_acquisitions_ += found.doubled_blocks + found.doubled_segments;
        if (found.held_before != 0 && device < static_cast<int>(file_.traces.size()) &&
            !file_.traces[static_cast<std::size_t>(device)].empty()) {
            std::string late = fmt::format(
                "What device {}'s allocator did before the first entry of its list, a ring buffer that keeps the "
                "latest: {} in use then.",
                device, blocks_in_words(found.held_before));
            if (found.sizes_at_least != 0)
                late += fmt::format(
                    " The sizes of {} of them are left open, only what was asked for is told: each is taken for the "
                    "least that holds it, and may have been up to 1 MiB larger.",
                    found.sizes_at_least);
            provenance().add_unknown(late);
        }
        totals_checked_ += found.totals - found.totals_differ;
        ooms_ += found.ooms;
        sizes_by_rule_ += found.sizes_by_rule;
    }

    trace::Provenance& provenance() { return *trace_.session.mutable_provenance(); }

    void finish() {
        const EventLog& events = trace_.events[0];
        trace::Loss& loss = trace_.losses[0];
        loss.set_acquisitions(lost_acquisitions_);
        loss.set_releases(lost_releases_);
        loss.set_others(0);
        const std::uint64_t start = start_ == UINT64_MAX ? 0 : start_;
        trace_.session.set_start_ns(start);
        trace_.session.set_start_unix_ns(start);
        trace_.end.set_end_ns(end_);
        trace_.end.set_reason("imported");
        trace_.end.set_events(events.size());
        trace_.end.set_failures(failures_);
        trace_.end.set_processes(1);
        for (const snapshot::DeviceTotals& totals : totals_) {
            trace_.processes[0].add_devices()->set_ordinal(totals.ordinal());
            *provenance().add_snapshot() = totals;
        }
        for (const std::string& contradiction : file_.contradictions) trace_.end.add_warnings(contradiction);
        for (const auto& [name, count] : file_.other_actions)
            trace_.end.add_warnings(fmt::format(
                "{} of the list are by the action '{}', which is not known here: what it did to memory is not told.",
                count == 1 ? std::string("1 entry") : fmt::format("{} entries", count), name));
        add_unknown();
    }

    void add_unknown() {
        trace::Provenance& out = provenance();
        const bool entries = std::any_of(totals_.begin(), totals_.end(),
                                         [](const auto& totals) { return totals.trace_entries() != 0; });
        out.add_unknown(
            "Memory that PyTorch's allocator did not take, such as the context's, a library's or another process's, and "
            "the capacity of the device.");
        out.add_unknown(ooms_ == 0 ? "What was device-free on the device."
                                   : "What was device-free on the device, but for the moments at which the allocator gave up.");
        if (!entries)
            out.add_unknown(
                "What happened before the snapshot: no history was recorded, so only its moment is shown.");
        else if (sizes_by_rule_ != 0)
            out.add_unknown(fmt::format(
                "The sizes of {} handed out and freed again: entries tell what was asked for, and the sizes follow from "
                "the allocator's public rules and the gap that each was cut from.",
                blocks_in_words(sizes_by_rule_)));
        if (!file_.times_told && entries) out.add_unknown("The times of some or all entries.");
        if (!file_.pools_told && !file_.segments.empty())
            out.add_unknown("Which private pool (a CUDA graph's, a MemPool) a segment belongs to.");
        if (!file_.devices_told && !file_.segments.empty())
            out.add_unknown("The device of some or all segments: they are taken for device 0's.");
        if (!file_.requested_told) out.add_unknown("What was asked for of some or all blocks.");
        const bool expandable = std::any_of(file_.segments.begin(), file_.segments.end(),
                                            [](const SnapshotSegment& each) { return each.expandable; });
        if (expandable)
            out.add_unknown(
                "How much address space the expandable segments have reserved, and the handles that are mapped in them: "
                "each range that came and went as one is shown as one.");
        if (!file_.host_segments.empty()) {
            std::uint64_t bytes = 0;
            for (const SnapshotSegment& segment : file_.host_segments) bytes += segment.bytes;
            out.add_unknown(fmt::format(
                "Page-locked host memory: the snapshot tells of {} in {} segments, which are not part of this trace.",
                in_words(bytes), file_.host_segments.size()));
        }
        out.add_unknown("The program, its process and its threads, and how long a call took.");
    }

    ImportSource& source_;
    Trace& trace_;
    SnapshotFile file_;
    std::vector<snapshot::DeviceTotals> totals_;
    std::vector<std::uint32_t> pool_texts_;
    std::vector<bool> ends_;  // of annotations: END
    std::uint32_t snapshot_text_ = 0;
    std::shared_ptr<PackedEvents> packed_ = std::make_shared<PackedEvents>();
    std::uint64_t start_ = UINT64_MAX;
    std::uint64_t end_ = 0;
    std::uint64_t failures_ = 0;
    std::uint64_t lost_acquisitions_ = 0;
    std::uint64_t lost_releases_ = 0;
    std::uint64_t totals_checked_ = 0;
    std::uint64_t ooms_ = 0;
    std::uint64_t sizes_by_rule_ = 0;
};

std::string read_snapshot(ImportSource& source, Trace& trace) { return Snapshot(source, trace).read(); }

}  // namespace

std::vector<snapshot::DeviceTotals> totals_of(const SnapshotFile& file) {
    std::map<int, snapshot::DeviceTotals> by_device;
    for (const SnapshotSegment& segment : file.segments) {
        snapshot::DeviceTotals& totals = by_device[std::max(segment.device, 0)];
        totals.set_segments(totals.segments() + 1);
        totals.set_reserved_bytes(totals.reserved_bytes() + segment.bytes);
        totals.set_blocks(totals.blocks() + segment.blocks.size());
        bool active = false;
        for (const SnapshotBlock& block : segment.blocks) {
            if (block.state == SnapshotBlockState::kInactive) {
                totals.set_inactive_bytes(totals.inactive_bytes() + block.bytes);
                totals.set_largest_inactive_bytes(std::max(totals.largest_inactive_bytes(), block.bytes));
                continue;
            }
            active = true;
            totals.set_active_bytes(totals.active_bytes() + block.bytes);
            if (block.state == SnapshotBlockState::kAllocated)
                totals.set_allocated_bytes(totals.allocated_bytes() + block.bytes);
        }
        if (!active) totals.set_wholly_free_segment_bytes(totals.wholly_free_segment_bytes() + segment.bytes);
    }
    for (std::size_t device = 0; device < file.traces.size(); ++device) {
        if (file.traces[device].empty()) continue;
        by_device[static_cast<int>(device)].set_trace_entries(file.traces[device].size());
    }
    std::vector<snapshot::DeviceTotals> out;
    for (auto& [device, totals] : by_device) {
        totals.set_ordinal(static_cast<std::uint32_t>(device));
        out.push_back(std::move(totals));
    }
    return out;
}

const Importer kTorchSnapshot{"torch-snapshot", "PyTorch's memory snapshot, as _dump_snapshot() writes it",
                              looks_like_snapshot, read_snapshot};

}  // namespace fragscope::analysis
