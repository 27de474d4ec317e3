// Forwards: the list of a device's trace as events, each with what it does to what is held then.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/failures.h"
#include "analysis/read/torch_history.h"

namespace fragscope::analysis {

using wire::Kind;

namespace {

// PyTorch's public rules.
constexpr std::uint64_t kTorchBlockUnit = 512;
constexpr std::uint64_t kSmallRequest = std::uint64_t{1} << 20;  // up to here a block is of a small segment
constexpr std::uint64_t kSmallSegment = std::uint64_t{2} << 20;

constexpr std::uint64_t kNsPerUs = 1000;

std::uint64_t as_block(std::uint64_t requested) {
    return std::max(kTorchBlockUnit, (requested + kTorchBlockUnit - 1) / kTorchBlockUnit * kTorchBlockUnit);
}

}  // namespace

Event DeviceHistory::event_of(SnapshotFunction function, Kind kind) const {
    Event event;
    event.kind = kind;
    event.function = {static_cast<std::uint32_t>(function)};
    event.device = static_cast<std::int16_t>(device_);
    event.thread = device_;
    event.start = {last_time_};
    return event;
}

Event DeviceHistory::event_of(const SnapshotEntry& entry, Kind kind) const {
    Event event = event_of(static_cast<SnapshotFunction>(
                               static_cast<std::uint32_t>(SnapshotFunction::kAction) +
                               static_cast<std::uint32_t>(entry.action)),
                           kind);
    event.stack = entry.stack;
    return event;
}

void DeviceHistory::emit(const Event& event) { sink_(event); }

void DeviceHistory::emit_stream(const Event& like, std::uint64_t stream) {
    if (stream_ == stream) return;
    stream_ = stream;
    Event event = like;
    event.kind = Kind::kBlockStream;
    event.flags = 0;
    event.stack = 0;
    event.address = {0};
    event.bytes = {0};
    event.object = {stream};
    event.extra = 0;
    emit(event);
}

void DeviceHistory::emit_block(Event like, std::uint64_t address, const Block& block, std::uint64_t stream) {
    emit_stream(like, stream);
    like.kind = Kind::kBlockAcquired;
    like.address = {address};
    like.bytes = {block.bytes};
    like.object = {wire::kTotalNotTold};
    like.extra = wire::kTotalNotTold;
    if (block.requested) {
        like.flags = wire::kRequestTold;
        like.extra = *block.requested;
    }
    emit(like);
}

void DeviceHistory::emit_segment(Event like, std::uint64_t address, const Extent& extent) {
    like.address = {address};
    like.bytes = {extent.bytes};
    if (like.kind == Kind::kLinearAcquired) emit(like);
    const std::uint32_t pool =
        extent.pool == SnapshotEntry::kPoolNotTold ? wire::kPoolNotTold : pool_texts_[extent.pool];
    like.stack = 0;
    like.object = {extent.stream};
    like.extra = wire::pack_segment(pool, extent.large, like.kind != Kind::kLinearAcquired);
    like.kind = Kind::kBlockSegment;
    emit(like);
}

std::optional<DeviceHistory::Place> DeviceHistory::place_of(std::uint64_t address) const {
    if (auto extent = extents_.upper_bound(address); extent != extents_.begin()) {
        --extent;
        const std::uint64_t end = extent->first + extent->second.bytes;
        if (address < end) return Place{end, extent->second.stream, extent->second.large, false};
    }
    auto arena = arenas_.upper_bound(address);
    if (arena == arenas_.begin()) return std::nullopt;
    --arena;
    const std::uint64_t last = arena->first + arena->second.bytes;
    std::uint64_t end = address;
    mapped_.for_each_in({address, last}, [&](const Range& part) {
        if (part.begin == address) end = part.end;
    });
    if (end == address) return std::nullopt;
    return Place{end, arena->second.stream, arena->second.large, true};
}

// A block is the front of a gap. What of the gap it leaves over becomes a gap of its own where that is large enough:
// 512 bytes in small and in expandable segments, more than 1 MiB in large ones; otherwise it keeps the whole gap.
std::uint64_t DeviceHistory::block_bytes(std::uint64_t address, std::uint64_t requested) {
    const std::uint64_t rounded = as_block(requested);
    const auto place = place_of(address);
    if (!place) return rounded;
    std::uint64_t end = place->end;
    const auto next = blocks_.upper_bound(address);
    if (next != blocks_.end()) end = std::min(end, next->first);
    const std::uint64_t gap = end - address;
    if (gap <= rounded) return rounded;
    const std::uint64_t left = gap - rounded;
    const bool split = !place->large || place->expandable ? left >= kTorchBlockUnit
                                                          : rounded < rules_.max_split_bytes && left > kSmallRequest;
    return split ? rounded : gap;
}

// Of a block that was handed out before the first entry and is freed in the list. In a large segment that does not grow
// nothing is smaller than 1 MiB, so a smaller gap behind it is its own; behind a larger one its end is left open, unless
// a later block showed where it was.
void DeviceHistory::size_of_held(Blocks::iterator block) {
    Block& held = block->second;
    const std::uint64_t rounded = as_block(held.requested.value_or(0));
    const auto place = place_of(block->first);
    std::uint64_t room = place ? place->end - block->first : rounded;
    const auto next = std::next(block);
    if (next != blocks_.end()) room = std::min(room, next->first - block->first);
    if (held.bytes != 0) {
        held.bytes = std::min(held.bytes, room);
        return;
    }
    held.bytes = std::min(rounded, room);
    if (!place) return;
    const bool whole = place->large && !place->expandable;
    if (whole && room - held.bytes <= kSmallRequest)
        held.bytes = room;
    else if (whole || rules_.rounds_otherwise)
        ++findings_.sizes_at_least;
}

void DeviceHistory::map_pieces(const Range& range, const Event& like) {
    mapped_.add(range);
    auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), range.begin);
    for (; bound != bounds_.end() && *bound < range.end && std::next(bound) != bounds_.end(); ++bound) {
        const std::uint64_t begin = *bound;
        const std::uint64_t bytes = *std::next(bound) - begin;
        if (handles_.contains(begin)) continue;
        handles_[begin] = next_handle_;
        Event created = like;
        created.kind = Kind::kHandleCreated;
        created.address = {0};
        created.bytes = {bytes};
        created.object = {next_handle_++};
        created.extra = wire::pack_location(1, device_, 0);
        emit(created);
        Event mapped = like;
        mapped.kind = Kind::kMapped;
        mapped.address = {begin};
        mapped.bytes = {bytes};
        mapped.object = created.object;
        mapped.extra = 0;
        emit(mapped);
    }
}

void DeviceHistory::unmap_pieces(const Range& range, const Event& like) {
    mapped_.remove(range);
    auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), range.begin);
    for (; bound != bounds_.end() && *bound < range.end && std::next(bound) != bounds_.end(); ++bound) {
        const auto handle = handles_.find(*bound);
        if (handle == handles_.end()) continue;
        Event unmapped = like;
        unmapped.kind = Kind::kUnmapped;
        unmapped.address = {*bound};
        unmapped.bytes = {*std::next(bound) - *bound};
        emit(unmapped);
        Event released = like;
        released.kind = Kind::kHandleReleased;
        released.object = {handle->second};
        emit(released);
        handles_.erase(handle);
    }
}

void DeviceHistory::tell_beginning() {
    last_time_ = 0;
    for (const SnapshotEntry& entry : *entries_) {
        if (entry.time_us == 0) continue;
        last_time_ = entry.time_us * kNsPerUs;
        break;
    }
    const Event taken = event_of(SnapshotFunction::kHeldBefore, Kind::kLinearAcquired);
    for (const auto& [address, extent] : extents_) {
        Event like = taken;
        like.stack = extent.stack;
        emit_segment(like, address, extent);
    }
    const Event declared = event_of(SnapshotFunction::kHeldBefore, Kind::kBlockSegment);
    for (const auto& [address, arena] : arenas_) emit_segment(declared, address, arena);
    std::vector<Range> mapped;
    mapped_.for_each([&](const Range& range) { mapped.push_back(range); });
    for (const Range& range : mapped) map_pieces(range, declared);
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
        Block& held = block->second;
        ++findings_.held_before;
        if (held.at_end == kNotAtEnd) {
            size_of_held(block);
        }
        active_ += held.bytes;
        const auto place = place_of(block->first);
        if (!place) ++findings_.outside;
        Event like = event_of(SnapshotFunction::kHeldBefore, Kind::kBlockAcquired);
        like.stack = held.stack;
        emit_block(like, block->first, held, place ? place->stream : 0);
        if (!held.pending) continue;
        held.wait = next_wait_++;
        Event waits = event_of(SnapshotFunction::kHeldBefore, Kind::kBlockWaits);
        waits.object = {held.wait};
        waits.extra = place ? place->stream : 0;
        emit(waits);
        Event released = event_of(SnapshotFunction::kHeldBefore, Kind::kBlockReleased);
        released.address = {block->first};
        released.bytes = {held.bytes};
        released.object = {wire::kTotalNotTold};
        released.extra = wire::kTotalNotTold;
        emit(released);
    }
}

void DeviceHistory::redo(std::size_t index, const SnapshotEntry& entry) {
    if (entry.time_us != 0) last_time_ = std::max(last_time_, entry.time_us * kNsPerUs);
    switch (entry.action) {
        case SnapshotAction::kAlloc:
            return alloc(index, entry);
        case SnapshotAction::kFreeRequested:
            return free_requested(index, entry);
        case SnapshotAction::kFreeCompleted:
            return free_completed(entry);
        case SnapshotAction::kSegmentAlloc:
            return take_segment(entry);
        case SnapshotAction::kSegmentFree:
            return give_segment(entry);
        case SnapshotAction::kSegmentMap:
            return map_pieces(range_of(entry.address, entry.bytes), event_of(entry, Kind::kMapped));
        case SnapshotAction::kSegmentUnmap:
            drop_overlapping(entry.address, entry.address + entry.bytes);
            return unmap_pieces(range_of(entry.address, entry.bytes), event_of(entry, Kind::kUnmapped));
        case SnapshotAction::kSnapshot: {
            check_total(entry);
            Event mark = event_of(entry, Kind::kMark);
            mark.object = {snapshot_text_};
            mark.bytes = {entry.bytes};
            return emit(mark);
        }
        case SnapshotAction::kAnnotate:
        case SnapshotAction::kUserDefined:
        case SnapshotAction::kOther: {
            if (entry.text == 0) return;
            Event mark = event_of(entry, Kind::kMark);
            mark.object = {entry.text};
            return emit(mark);
        }
        case SnapshotAction::kOom: {
            ++findings_.ooms;
            Event said = event_of(entry, Kind::kDeviceMemory);
            said.stack = 0;
            said.address = {entry.address};
            emit(said);
            Event refused = event_of(entry, Kind::kBlockRefused);
            emit_stream(refused, entry.stream);
            refused.bytes = {entry.bytes};
            refused.result = kOutOfMemory;
            refused.object = {wire::kTotalNotTold};
            refused.flags = wire::kRequestTold;
            refused.extra = wire::pack_segment(
                entry.pool == SnapshotEntry::kPoolNotTold ? wire::kPoolNotTold : pool_texts_[entry.pool],
                entry.bytes > kSmallRequest, false);
            return emit(refused);
        }
    }
}

// What lies there must have gone: the list says nothing of it.
void DeviceHistory::drop_overlapping(std::uint64_t begin, std::uint64_t end) {
    auto block = blocks_.lower_bound(begin);
    if (block != blocks_.begin()) {
        const auto before = std::prev(block);
        if (before->first + before->second.bytes > begin) block = before;
    }
    while (block != blocks_.end() && block->first < end) {
        active_ -= block->second.bytes;
        Event gone = event_of(SnapshotFunction::kGone, Kind::kBlockReleased);
        gone.address = {block->first};
        gone.bytes = {block->second.bytes};
        gone.object = {wire::kTotalNotTold};
        gone.extra = wire::kTotalNotTold;
        if (block->second.wait != 0) {
            gone.kind = Kind::kBlockWaitOver;
            gone.address = {0};
            gone.bytes = {0};
            gone.object = {block->second.wait};
            gone.extra = 0;
        }
        emit(gone);
        block = blocks_.erase(block);
    }
}

void DeviceHistory::alloc(std::size_t index, const SnapshotEntry& entry) {
    Block block;
    block.requested = entry.bytes;
    block.stack = entry.stack;
    const auto survivor = survivors_.find(static_cast<std::uint32_t>(index));
    if (survivor != survivors_.end()) {
        const SnapshotBlock& end = end_blocks_[survivor->second].second;
        block.bytes = end.bytes;
        block.at_end = survivor->second;
        if (block.stack == 0) block.stack = end.stack;
    } else {
        ++findings_.sizes_by_rule;
        block.bytes = block_bytes(entry.address, entry.bytes);
    }
    const std::size_t before = blocks_.size();
    drop_overlapping(entry.address, entry.address + block.bytes);
    findings_.overlapped += before - blocks_.size();
    const auto place = place_of(entry.address);
    if (!place) ++findings_.outside;
    active_ += block.bytes;
    Event like = event_of(entry, Kind::kBlockAcquired);
    like.stack = block.stack;
    emit_block(like, entry.address, block, entry.stream);
    blocks_[entry.address] = block;
}

void DeviceHistory::free_requested(std::size_t index, const SnapshotEntry& entry) {
    const auto block = blocks_.find(entry.address);
    if (block == blocks_.end() || block->second.wait != 0) return;
    // Most are done at once, which is the next entry.
    const bool at_once = never_completed_[index] ||
                         (index + 1 < entries_->size() &&
                          (*entries_)[index + 1].action == SnapshotAction::kFreeCompleted &&
                          (*entries_)[index + 1].address == entry.address);
    if (!at_once) {
        block->second.wait = next_wait_++;
        Event waits = event_of(entry, Kind::kBlockWaits);
        waits.stack = 0;
        waits.object = {block->second.wait};
        waits.extra = entry.stream;
        emit(waits);
    }
    Event released = event_of(entry, Kind::kBlockReleased);
    released.address = {entry.address};
    released.bytes = {block->second.bytes};
    released.object = {wire::kTotalNotTold};
    released.extra = wire::kTotalNotTold;
    emit(released);
    if (!at_once) return;
    active_ -= block->second.bytes;
    blocks_.erase(block);
}

void DeviceHistory::free_completed(const SnapshotEntry& entry) {
    const auto block = blocks_.find(entry.address);
    if (block == blocks_.end()) return;
    Event event = event_of(entry, Kind::kBlockReleased);
    event.address = {entry.address};
    event.bytes = {block->second.bytes};
    event.object = {wire::kTotalNotTold};
    event.extra = wire::kTotalNotTold;
    if (block->second.wait != 0) {
        event.kind = Kind::kBlockWaitOver;
        event.address = {0};
        event.bytes = {0};
        event.object = {block->second.wait};
        event.extra = 0;
    }
    emit(event);
    active_ -= block->second.bytes;
    blocks_.erase(block);
}

void DeviceHistory::take_segment(const SnapshotEntry& entry) {
    auto end = std::lower_bound(
        file_.segments.begin(), file_.segments.end(), entry.address,
        [](const SnapshotSegment& each, std::uint64_t address) { return each.address < address; });
    if (end != file_.segments.end() && (end->address != entry.address || end->bytes != entry.bytes))
        end = file_.segments.end();
    Extent extent{entry.bytes, entry.stream, entry.pool, entry.stack, entry.bytes > kSmallSegment};
    if (end != file_.segments.end() && !end->expandable && std::max(end->device, 0) == device_) {
        extent.large = end->large;
        if (extent.pool == SnapshotEntry::kPoolNotTold && file_.pools_told) extent.pool = end->pool;
    }
    extents_[entry.address] = extent;
    emit_segment(event_of(entry, Kind::kLinearAcquired), entry.address, extent);
}

void DeviceHistory::give_segment(const SnapshotEntry& entry) {
    if (extents_.erase(entry.address) == 0) return;
    drop_overlapping(entry.address, entry.address + entry.bytes);
    Event released = event_of(entry, Kind::kLinearReleased);
    released.address = {entry.address};
    emit(released);
}

// A snapshot says how many bytes were active when it was taken; one of a single pool says that of the pool.
void DeviceHistory::check_total(const SnapshotEntry& entry) {
    if (entry.pool != SnapshotEntry::kPoolNotTold && entry.pool != 0) return;
    ++findings_.totals;
    if (entry.bytes == active_) return;
    findings_.totals_above = findings_.totals_above || active_ > entry.bytes;
    if (findings_.totals_differ++ == 0)
        findings_.first_total = fmt::format("{} bytes by the entry, {} by the walk", entry.bytes, active_);
}

void DeviceHistory::compare_with_end() {
    Blocks end;
    for (const auto& [address, block] : end_blocks_) {
        end[address].bytes = block.bytes;
        end[address].pending = block.state == SnapshotBlockState::kPendingFree;
    }
    std::vector<std::pair<std::uint64_t, std::uint64_t>> gone;
    for (const auto& [address, block] : blocks_) {
        const auto same = end.find(address);
        if (same == end.end() || same->second.bytes != block.bytes) gone.emplace_back(address, block.bytes);
    }
    findings_.end_differs += gone.size();
    for (const auto& [address, bytes] : gone) drop_overlapping(address, address + bytes);
    for (const auto& [address, block] : end)
        if (!blocks_.contains(address)) ++findings_.end_differs;
}

}  // namespace fragscope::analysis
