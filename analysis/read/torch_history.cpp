// Backwards: from what the snapshot holds to what was there in front of its first entry.
#include "analysis/read/torch_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace fragscope::analysis {

namespace {

// PyTorch's public rules, as its allocator has had them since 2018.
constexpr std::uint64_t kSmallSegment = std::uint64_t{2} << 20;
constexpr std::uint64_t kLargePage = std::uint64_t{20} << 20;
constexpr std::uint64_t kSmallRequest = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlockUnit = 512;

std::uint64_t as_block(std::uint64_t requested) {
    return std::max(kBlockUnit, (requested + kBlockUnit - 1) / kBlockUnit * kBlockUnit);
}

}  // namespace

std::vector<std::string> snapshot_functions() {
    return {"held before the first entry",
            "PyTorch: alloc",
            "PyTorch: free_requested",
            "PyTorch: free_completed",
            "PyTorch: segment_alloc",
            "PyTorch: segment_free",
            "PyTorch: segment_map",
            "PyTorch: segment_unmap",
            "PyTorch: snapshot",
            "PyTorch: oom",
            "PyTorch: annotate",
            "PyTorch: user_defined",
            "PyTorch: another action",
            "gone without an entry",
            "PyTorch: annotation"};
}

AllocatorRules rules_of(const SnapshotFile& file) {
    AllocatorRules rules;
    for (const auto& [name, value] : file.settings) {
        if (name == "roundup_power2_divisions") rules.rounds_otherwise = value != "0";
        if (name != "max_split_size") continue;
        std::uint64_t bytes = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
        // -1: no limit.
        if (error == std::errc() && end == value.data() + value.size() && bytes != 0) rules.max_split_bytes = bytes;
    }
    return rules;
}

DeviceHistory::DeviceHistory(const SnapshotFile& file, int device, const std::vector<std::uint32_t>& pool_texts,
                             std::uint32_t snapshot_text)
    : file_(file),
      device_(device),
      pool_texts_(pool_texts),
      snapshot_text_(snapshot_text),
      rules_(rules_of(file)) {
    static const std::vector<SnapshotEntry> kNothing;
    const auto number = static_cast<std::size_t>(device);
    entries_ = number < file.traces.size() ? &file.traces[number] : &kNothing;
}

std::string DeviceHistory::run(Sink sink) {
    sink_ = std::move(sink);
    take_end();
    walk_back();
    if (std::string refused = find_arenas(); !refused.empty()) return refused;
    tell_beginning();
    for (std::size_t i = 0; i < entries_->size(); ++i) redo(i, (*entries_)[i]);
    compare_with_end();
    return "";
}

void DeviceHistory::take_end() {
    for (const SnapshotSegment& segment : file_.segments) {
        if (std::max(segment.device, 0) != device_) continue;
        if (segment.expandable) {
            mapped_.add(range_of(segment.address, segment.bytes));
        } else {
            const std::uint32_t pool = file_.pools_told ? segment.pool : SnapshotEntry::kPoolNotTold;
            extents_[segment.address] = {segment.bytes, segment.stream, pool, segment.stack, segment.large};
        }
        for (const SnapshotBlock& each : segment.blocks) {
            if (each.state == SnapshotBlockState::kInactive || each.bytes == 0) continue;
            Block block;
            block.bytes = each.bytes;
            block.requested = each.requested;
            block.stack = each.stack;
            block.pending = each.state == SnapshotBlockState::kPendingFree;
            block.at_end = static_cast<std::uint32_t>(end_blocks_.size());
            end_blocks_.emplace_back(each.address, each);
            blocks_[each.address] = block;
        }
    }
}

void DeviceHistory::walk_back() {
    never_completed_.assign(entries_->size(), false);
    for (std::size_t i = entries_->size(); i-- > 0;) undo(i, (*entries_)[i]);
}

void DeviceHistory::undo(std::size_t index, const SnapshotEntry& entry) {
    switch (entry.action) {
        case SnapshotAction::kAlloc: {
            const auto block = blocks_.find(entry.address);
            if (block == blocks_.end()) {
                ++findings_.vanished_blocks;
                return;
            }
            if (block->second.at_end != kNotAtEnd)
                survivors_[static_cast<std::uint32_t>(index)] = block->second.at_end;
            const auto next = blocks_.erase(block);
            if (next == blocks_.begin()) return;
            // A block is the front of a gap, and a gap begins where the block in front of it ends.
            const auto before = std::prev(next);
            Block& front = before->second;
            const std::uint64_t least = before->first + as_block(front.requested.value_or(0));
            if (front.bytes == 0 && entry.address >= least && entry.address - least <= kSmallRequest)
                front.bytes = entry.address - before->first;
            return;
        }
        case SnapshotAction::kFreeCompleted:
        case SnapshotAction::kFreeRequested: {
            const bool completed = entry.action == SnapshotAction::kFreeCompleted;
            const auto [block, added] = blocks_.try_emplace(entry.address);
            Block& there = block->second;
            if (!added && there.pending && !completed) {
                there.pending = false;
                // The block's own stack is the one it was handed out with, which the list has not got.
                if (there.at_end == kNotAtEnd) there.requested = entry.bytes;
                return;
            }
            if (!added) {
                ++findings_.doubled_blocks;
                there = {};
            }
            there.requested = entry.bytes;
            there.pending = completed;
            if (!completed) never_completed_[index] = true;
            return;
        }
        case SnapshotAction::kSegmentAlloc:
            if (extents_.erase(entry.address) == 0) ++findings_.vanished_segments;
            return;
        case SnapshotAction::kSegmentFree:
            return undo_segment_free(entry);
        case SnapshotAction::kSegmentMap:
            mapped_.remove(range_of(entry.address, entry.bytes));
            return;
        case SnapshotAction::kSegmentUnmap:
            mapped_.add(range_of(entry.address, entry.bytes));
            return;
        default:
            return;
    }
}

void DeviceHistory::undo_segment_free(const SnapshotEntry& entry) {
    const auto [extent, added] = extents_.try_emplace(entry.address);
    if (!added) ++findings_.doubled_segments;
    extent->second = {entry.bytes, entry.stream, entry.pool, 0, entry.bytes > kSmallSegment};
}

// Every range that was ever mapped, joined where they touch, is one arena for one stream; its blocks' class and its
// pool are those of a segment that is in it at the end, else what an entry and the rules give. The ends of what is
// mapped and unmapped cut it into pieces that come and go as one.
std::string DeviceHistory::find_arenas() {
    std::map<std::uint64_t, ExtentSet> by_stream;
    std::size_t mappings = 0;
    const auto add = [&](std::uint64_t stream, std::uint64_t address, std::uint64_t bytes) {
        const Range range = range_of(address, bytes);
        by_stream[stream].add(range);
        bounds_.push_back(range.begin);
        bounds_.push_back(range.end);
        ++mappings;
    };
    for (const SnapshotSegment& segment : file_.segments)
        if (segment.expandable && std::max(segment.device, 0) == device_)
            add(segment.stream, segment.address, segment.bytes);
    for (const SnapshotEntry& entry : *entries_) {
        if (entry.action == SnapshotAction::kSegmentMap || entry.action == SnapshotAction::kSegmentUnmap)
            add(entry.stream, entry.address, entry.bytes);
    }
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    // An allocator maps pages; one that maps ever other ranges over each other is none.
    constexpr std::uint64_t kPiecesPerMapping = 4096;
    std::uint64_t pieces = 0;
    const auto count = [&](std::uint64_t address, std::uint64_t bytes) {
        const Range range = range_of(address, bytes);
        pieces += static_cast<std::uint64_t>(std::lower_bound(bounds_.begin(), bounds_.end(), range.end) -
                                             std::lower_bound(bounds_.begin(), bounds_.end(), range.begin));
    };
    mapped_.for_each([&](const Range& range) { count(range.begin, range.size()); });
    for (const SnapshotEntry& entry : *entries_) {
        if (entry.action == SnapshotAction::kSegmentMap || entry.action == SnapshotAction::kSegmentUnmap)
            count(entry.address, entry.bytes);
    }
    if (pieces > (mappings + 16) * kPiecesPerMapping / 16)
        return fmt::format("device {}: its {} mapped ranges overlap in {} pieces: expected pages of one allocator",
                           device_, mappings, pieces);
    for (const auto& [stream, ranges] : by_stream) {
        ranges.for_each([&](const Range& range) {
            Extent arena;
            arena.bytes = range.size();
            arena.stream = stream;
            arena.large = range.size() % kLargePage == 0;
            arenas_[range.begin] = arena;
        });
    }
    for (const SnapshotSegment& segment : file_.segments) {
        if (!segment.expandable || std::max(segment.device, 0) != device_) continue;
        auto arena = arenas_.upper_bound(segment.address);
        if (arena == arenas_.begin()) continue;
        --arena;
        if (arena->second.stream != segment.stream) continue;
        arena->second.large = segment.large;
        arena->second.pool = file_.pools_told ? segment.pool : SnapshotEntry::kPoolNotTold;
        arena->second.stack = segment.stack;
    }
    for (const SnapshotEntry& entry : *entries_) {
        if (entry.action != SnapshotAction::kSegmentMap || entry.pool == SnapshotEntry::kPoolNotTold) continue;
        auto arena = arenas_.upper_bound(entry.address);
        if (arena == arenas_.begin()) continue;
        --arena;
        if (arena->second.stream == entry.stream && arena->second.pool == SnapshotEntry::kPoolNotTold)
            arena->second.pool = entry.pool;
    }
    return "";
}

}  // namespace fragscope::analysis
