#include "tools/torch_export.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/session.h"

namespace fragscope::tools {

namespace {

using analysis::Event;
using analysis::FrameworkBlock;
using analysis::Range;
using analysis::SegmentFacts;
using wire::Kind;

constexpr std::uint64_t kNsPerUs = 1000;

// "(0, 1)", as an imported snapshot's pools are called.
std::optional<std::pair<std::uint64_t, std::uint64_t>> pool_named(const std::string& name) {
    std::uint64_t first = 0, second = 0;
    if (std::sscanf(name.c_str(), "(%" SCNu64 ", %" SCNu64 ")", &first, &second) != 2) return std::nullopt;
    return std::pair{first, second};
}

class Export {
  public:
    Export(const analysis::Trace& trace, analysis::ProcessIndex process, analysis::Symbolizer& symbolizer,
           PickleWriter& to)
        : trace_(trace), process_(process), symbolizer_(symbolizer), to_(to) {}

    ExportedSnapshot write() {
        analysis::SessionWalk walk(trace_);
        walk.at_the_end(process_);
        const analysis::FrameworkState& books = walk.framework(process_);
        if (!books.used()) {
            out_.problem = "no framework's allocator told of its blocks in this trace, and the format holds nothing else";
            return out_;
        }
        to_.begin_dict();
        to_.text("segments");
        put_segments(books);
        to_.text("device_traces");
        put_traces(books);
        to_.text("allocator_settings");
        to_.begin_dict();
        to_.end_dict();
        to_.text("external_annotations");
        to_.begin_list();
        to_.end_list();
        to_.end_dict();
        for (const auto& [address, block] : books.blocks()) out_.outside += block.home ? 0 : 1;
        return out_;
    }

  private:
    // ------------------------------------------------------------------------------------------------ the end

    void put_segments(const analysis::FrameworkState& books) {
        to_.begin_list();
        books.for_each_segment([&](const Range& range, const SegmentFacts& facts) { put_segment(books, range, facts); });
        to_.end_list();
    }

    void put_segment(const analysis::FrameworkState& books, const Range& range, const SegmentFacts& facts) {
        ++out_.segments;
        std::uint64_t allocated = 0, active = 0, requested = 0;
        books.for_each_piece(range, [&](const Range& piece, const FrameworkBlock* block) {
            if (block == nullptr) return;
            active += piece.size();
            if (block->waits_for == 0) allocated += piece.size();
            requested += block->requested.value_or(piece.size());
        });
        to_.begin_dict();
        to_.entry("device", static_cast<std::uint64_t>(std::max(facts.device, 0)));
        to_.entry("address", range.begin);
        to_.entry("total_size", range.size());
        to_.entry("allocated_size", allocated);
        to_.entry("active_size", active);
        to_.entry("requested_size", requested);
        to_.entry("stream", facts.stream ? facts.stream->value : 0);
        to_.entry("segment_type", facts.large ? "large" : "small");
        const auto pool = pool_of(facts.pool);
        to_.text("segment_pool_id");
        to_.pair(pool.first, pool.second);
        to_.text("is_expandable");
        to_.truth(facts.kind == analysis::SegmentKind::kExpandable);
        to_.text("frames");
        put_frames(0);
        to_.text("blocks");
        to_.begin_list();
        books.for_each_piece(range, [&](const Range& piece, const FrameworkBlock* block) {
            if (block != nullptr) ++out_.blocks;
            to_.begin_dict();
            to_.entry("address", piece.begin);
            to_.entry("size", piece.size());
            to_.entry("requested_size", block == nullptr ? 0 : block->requested.value_or(piece.size()));
            to_.entry("state", block == nullptr        ? "inactive"
                               : block->waits_for == 0 ? "active_allocated"
                                                       : "active_pending_free");
            to_.text("frames");
            put_frames(block == nullptr ? 0 : block->stack);
            to_.end_dict();
        });
        to_.end_list();
        to_.end_dict();
    }

    std::pair<std::uint64_t, std::uint64_t> pool_of(std::uint32_t pool) const {
        if (pool == 0 || pool == wire::kPoolNotTold) return {0, 0};
        const auto& texts = trace_.names[process_.value].texts;
        const auto name = texts.find(pool);
        return (name == texts.end() ? std::nullopt : pool_named(name->second)).value_or(std::pair<std::uint64_t, std::uint64_t>{0, 0});
    }

    // A list of frames is written once and named from then on.
    void put_frames(std::uint32_t stack) {
        const auto written = stacks_.find(stack);
        if (written != stacks_.end()) return to_.shared(written->second);
        stacks_[stack] = to_.begin_shared_list();
        const auto& names = trace_.names;
        if (stack != 0 && process_.value < names.size()) {
            const auto known = names[process_.value].stacks.find(stack);
            if (known != names[process_.value].stacks.end()) {
                for (const analysis::FrameName& frame : symbolizer_.frames(names[process_.value], known->second))
                    put_frame(frame);
            }
        }
        to_.end_list();
    }

    void put_frame(const analysis::FrameName& frame) {
        to_.begin_dict();
        to_.entry("filename", !frame.file.empty() ? frame.file : !frame.module.empty() ? frame.module : "??");
        to_.entry("line", frame.line);
        to_.entry("name", frame.function.empty() ? "??" : frame.function);
        to_.end_dict();
    }

    // ------------------------------------------------------------------------------------------------ before

    struct Block {
        std::uint64_t requested = 0;
        std::uint64_t stream = 0;
    };
    // What the process took of the driver.
    struct Extent {
        Range range;
        std::uint32_t stack = 0;
        bool told = false;      // an entry says that the allocator took it
        bool mapped = false;    // in a reservation
        std::uint64_t stream = 0;  // of the request that it was taken for
        std::int16_t device = 0;
    };

    struct Pending {
        std::string action;
        Event at;
        Range range;
        std::uint32_t stack = 0;
        std::uint64_t stream = 0;
    };
    struct Reservation {
        Range range;
        bool used = false;  // by the allocator
        std::optional<std::uint64_t> stream;  // where the allocator told it
    };

    // Events are the process's, the lists are the devices': one pass for each.
    void put_traces(const analysis::FrameworkState& books) {
        int devices = 1;
        for (const auto& [ordinal, device] : books.devices()) devices = std::max(devices, ordinal + 1);
        to_.begin_list();
        for (device_ = 0; device_ < devices; ++device_) {
            extents_.clear();
            reservations_.clear();
            blocks_.clear();
            waits_.clear();
            waiting_.clear();
            open_waits_.clear();
            streams_.clear();
            free_.reset();
            to_.begin_list();
            trace_.events[process_.value].for_each(0, trace_.events[process_.value].size(),
                                                   [&](std::size_t, const Event& event) { put_event(event); });
            flush();
            to_.end_list();
        }
        to_.end_list();
    }

    bool held_before(const Event& event) const {
        return trace_.session.has_provenance() && event.function.value < trace_.functions.size() &&
               trace_.functions[event.function.value] == "held before the first entry";
    }

    void put_event(const Event& event) {
        if (event.has(wire::kByShim) || (event.failed() && event.kind != Kind::kBlockRefused)) return;
        switch (event.kind) {
            case Kind::kBlockStream:
                if (event.device == device_) streams_[event.thread] = event.object.value;
                return;
            case Kind::kBlockWaits:
                waits_[event.thread].push_back(event.object.value);
                return;
            case Kind::kLinearAcquired:
            case Kind::kManagedAcquired:
            case Kind::kPoolAcquired:
            case Kind::kMapped:
                extents_[event.address.value] = {analysis::range_of(event.address.value, event.bytes.value), event.stack,
                                                 held_before(event), event.kind == Kind::kMapped, 0, event.device};
                if (event.kind == Kind::kMapped) mapped(event);
                return;
            case Kind::kReserved:
                reservations_[event.address.value] = {analysis::range_of(event.address.value, event.bytes.value), false, std::nullopt};
                return;
            case Kind::kBlockSegment:
                return segment_told(event);
            case Kind::kLinearReleased:
            case Kind::kPoolReleased:
            case Kind::kUnmapped:
                return gave_back(event);
            case Kind::kBlockAcquired:
                return acquired(event);
            case Kind::kBlockReleased:
                return released(event);
            case Kind::kBlockWaitOver:
                return wait_over(event);
            case Kind::kDeviceMemory:
                if (event.device == device_) free_ = event.address.value;
                return;
            case Kind::kBlockRefused:
                if (event.device == device_) refused(event);
                return;
            case Kind::kMark:
                return mark(event);
            default:
                return;
        }
    }

    // Pieces that come or go side by side and at one time are one entry.
    void put_range(const char* action, const Event& at, const Extent& extent) {
        if (pending_ && pending_->action == action && pending_->at.start == at.start &&
            pending_->range.end == extent.range.begin && pending_->stream == extent.stream) {
            pending_->range.end = extent.range.end;
            return;
        }
        flush();
        pending_ = {action, at, extent.range, extent.stack, extent.stream};
    }
    void flush() {
        if (!pending_) return;
        const Pending entry = *pending_;
        pending_.reset();
        put_entry(entry.action.c_str(), entry.at, entry.range.begin, entry.range.size(), entry.stack, entry.stream);
    }

    void begin_entry(const char* action) {
        flush();
        ++out_.entries;
        to_.begin_dict();
        to_.entry("action", action);
    }
    // That the thread's blocks are for now.
    std::uint64_t stream_of(const Event& at) const {
        const auto stream = streams_.find(at.thread);
        return stream == streams_.end() || stream->second == wire::kStreamNotTold ? 0 : stream->second;
    }
    void end_entry(const Event& at, std::uint64_t bytes, std::uint32_t stack, std::uint64_t stream) {
        to_.entry("size", bytes);
        to_.entry("stream", stream);
        const std::uint64_t since = at.start.value - std::min(at.start.value, trace_.session.start_ns());
        to_.entry("time_us", (trace_.session.start_unix_ns() + since) / kNsPerUs);
        to_.text("frames");
        put_frames(stack);
        to_.end_dict();
    }
    void put_entry(const char* action, const Event& at, std::uint64_t address, std::uint64_t bytes, std::uint32_t stack,
                   std::uint64_t stream) {
        begin_entry(action);
        to_.entry("addr", address);
        end_entry(at, bytes, stack, stream);
    }
    void put_freed(const char* action, const Event& at, std::uint64_t address, const Block& block) {
        put_entry(action, at, address, block.requested, at.stack, block.stream);
    }

    void announce(Extent& extent, const Event& at) {
        if (extent.told) return;
        extent.told = true;
        const Reservation* reservation = extent.mapped ? reservation_of(extent.range.begin) : nullptr;
        extent.stream = reservation != nullptr && reservation->stream ? *reservation->stream : stream_of(at);
        put_range(extent.mapped ? "segment_map" : "segment_alloc", at, extent);
    }
    void announce_in(const Range& range, const Event& at) {
        for (auto each = extents_.lower_bound(range.begin); each != extents_.end() && each->first < range.end; ++each)
            announce(each->second, at);
    }
    Reservation* reservation_of(std::uint64_t address) {
        auto found = reservations_.upper_bound(address);
        if (found == reservations_.begin()) return nullptr;
        --found;
        return address < found->second.range.end ? &found->second : nullptr;
    }
    void mapped(const Event& event) {
        const Reservation* reservation = reservation_of(event.address.value);
        if (reservation == nullptr || !reservation->used) return;
        if (reservation->stream) extents_[event.address.value].stream = *reservation->stream;
        announce_in(reservation->range, event);
    }

    void segment_told(const Event& event) {
        if (event.device != device_) return;
        const Range range = analysis::range_of(event.address.value, event.bytes.value);
        if (wire::segment_expandable(event.extra)) {
            reservations_[range.begin] = {range, true, event.object.value};
            return;
        }
        if (!held_before(event)) {
            streams_[event.thread] = event.object.value;
            announce_in(range, event);
        }
    }

    static Extent unmapped(Extent extent, const Event& event) {
        extent.stack = event.stack;
        return extent;
    }

    void gave_back(const Event& event) {
        auto extent = extents_.find(event.address.value);
        if (extent == extents_.end()) return;
        if (extent->second.told && extent->second.device == device_)
            put_range(extent->second.mapped ? "segment_unmap" : "segment_free", event, unmapped(extent->second, event));
        extents_.erase(extent);
    }

    void acquired(const Event& event) {
        waits_.erase(event.thread);
        if (event.device != device_) return;
        const std::uint64_t asked = event.has(wire::kRequestTold) ? event.extra : event.bytes.value;
        blocks_[event.address.value] = {asked, stream_of(event)};
        if (held_before(event)) return;
        if (Reservation* reservation = reservation_of(event.address.value)) {
            if (!reservation->used) announce_in(reservation->range, event);
            reservation->used = true;
        } else if (auto extent = extents_.upper_bound(event.address.value); extent != extents_.begin()) {
            --extent;
            if (event.address.value < extent->second.range.end) announce(extent->second, event);
        }
        put_entry("alloc", event, event.address.value, asked, event.stack, stream_of(event));
    }

    void released(const Event& event) {
        std::vector<std::uint64_t> waits;
        waits.swap(waits_[event.thread]);
        const auto block = blocks_.find(event.address.value);
        if (block == blocks_.end()) return;
        if (!held_before(event)) put_freed("free_requested", event, block->first, block->second);
        if (!waits.empty()) {
            for (const std::uint64_t wait : waits) waiting_[wait] = block->first;
            open_waits_[block->first] = waits.size();
            return;
        }
        put_freed("free_completed", event, block->first, block->second);
        blocks_.erase(block);
    }

    void wait_over(const Event& event) {
        const auto waiting = waiting_.find(event.object.value);
        if (waiting == waiting_.end()) return;
        const std::uint64_t address = waiting->second;
        waiting_.erase(waiting);
        if (--open_waits_[address] != 0) return;
        open_waits_.erase(address);
        const auto block = blocks_.find(address);
        if (block == blocks_.end()) return;
        put_freed("free_completed", event, address, block->second);
        blocks_.erase(block);
    }

    void refused(const Event& event) {
        begin_entry("oom");
        to_.entry("device_free", free_.value_or(0));
        end_entry(event, event.bytes.value, event.stack, stream_of(event));
    }

    // Only a snapshot's own: other marks have no place in the format.
    void mark(const Event& event) {
        if (!trace_.session.has_provenance() || event.device != device_ ||
            event.function.value >= trace_.functions.size() ||
            trace_.functions[event.function.value] != "PyTorch: snapshot")
            return;
        put_entry("snapshot", event, 0, event.bytes.value, 0, 0);
    }

    const analysis::Trace& trace_;
    analysis::ProcessIndex process_;
    analysis::Symbolizer& symbolizer_;
    PickleWriter& to_;
    ExportedSnapshot out_;
    std::map<std::uint32_t, std::uint32_t> stacks_;  // the number of the list that a stack was written as

    int device_ = 0;
    std::map<std::uint64_t, Extent> extents_;
    std::map<std::uint64_t, Reservation> reservations_;
    std::map<std::uint64_t, Block> blocks_;
    std::map<std::int32_t, std::vector<std::uint64_t>> waits_;
    std::map<std::uint64_t, std::uint64_t> waiting_;  // address, by what it waits for
    std::map<std::uint64_t, std::size_t> open_waits_;
    std::map<std::int32_t, std::uint64_t> streams_;
    std::optional<std::uint64_t> free_;
    std::optional<Pending> pending_;
};

}  // namespace

ExportedSnapshot write_snapshot(const analysis::Trace& trace, analysis::ProcessIndex process,
                                analysis::Symbolizer& symbolizer, PickleWriter& to) {
    return Export(trace, process, symbolizer, to).write();
}

}  // namespace fragscope::tools
