// Segments, the blocks in them, and the statistics that both change.
#include <algorithm>
#include <utility>

#include "analysis/framework.h"

namespace fragscope::analysis {

std::optional<std::uint64_t> FrameworkState::home_of(const Range& block, const FrameworkBlock& facts,
                                                     const ProcessState& state) {
    const auto inside = [&](const Range& range) {
        return range.begin <= block.begin && block.end <= range.end;
    };
    if (auto segment = segments_.upper_bound(block.begin); segment != segments_.begin()) {
        --segment;
        if (inside(segment->second.range)) return segment->first;
    }
    if (auto arena = arenas_.upper_bound(block.begin); arena != arenas_.begin()) {
        --arena;
        if (inside(arena->second.range)) return arena->first;
    }
    SegmentFacts made;
    made.device = facts.device;
    made.stream = facts.stream;
    made.large = facts.bytes > kSmallBlock;
    if (const auto linear = state.linear().find(block.begin); linear && inside(linear->range)) {
        made.kind =
            linear->value.kind == wire::Kind::kManagedAcquired ? SegmentKind::kManaged : SegmentKind::kLinear;
        add_segment(linear->range, made);
        return linear->range.begin;
    }
    if (const auto pooled = state.pool_blocks().find(block.begin); pooled && inside(pooled->range)) {
        made.kind = SegmentKind::kPool;
        add_segment(pooled->range, made);
        return pooled->range.begin;
    }
    const auto reservation = state.reservations().find(block.begin);
    if (reservation && inside(reservation->range)) {
        made.kind = SegmentKind::kExpandable;
        add_arena(reservation->range, made, state);
        return reservation->range.begin;
    }
    return std::nullopt;
}

void FrameworkState::segment_told(const Event& event, const ProcessState& state) {
    const Range range = range_of(event.address.value, event.bytes.value);
    if (range.size() == 0) return;
    SegmentFacts facts;
    facts.device = event.device;
    if (event.object != ObjectId{wire::kStreamNotTold}) facts.stream = event.object;
    facts.large = wire::segment_large(event.extra);
    facts.told = true;
    facts.pool = wire::segment_pool(event.extra);
    end_overlapping(range);
    devices_[event.device];
    if (!wire::segment_expandable(event.extra)) return add_segment(range, facts);
    facts.kind = SegmentKind::kExpandable;
    add_arena(range, facts, state);
}

void FrameworkState::add_segment(const Range& range, SegmentFacts facts) {
    segments_[range.begin] = {range, facts};
    change_stats(facts.device, facts.large, [&](FrameworkStats& stats) {
        stats.segment.add(1);
        stats.reserved_bytes.add(range.size());
    });
}

void FrameworkState::add_arena(const Range& range, SegmentFacts facts, const ProcessState& state) {
    Arena& arena = arenas_[range.begin];
    arena.range = range;
    arena.facts = facts;
    state.mappings().for_each_in(range,
                                 [&](const Range& mapped, const Mapping&) { map_in_arena(arena, mapped); });
}

// PyTorch counts an expandable segment's bytes, and not the segment.
void FrameworkState::map_in_arena(Arena& arena, const Range& range) {
    const Range part{std::max(range.begin, arena.range.begin), std::min(range.end, arena.range.end)};
    if (part.begin >= part.end) return;
    const std::uint64_t before = arena.mapped.sum();
    arena.mapped.add(part);
    const std::uint64_t more = arena.mapped.sum() - before;
    change_stats(arena.facts.device, arena.facts.large,
                 [&](FrameworkStats& stats) { stats.reserved_bytes.add(more); });
}

void FrameworkState::unmap(const Range& range) {
    auto arena = arenas_.upper_bound(range.begin);
    if (arena != arenas_.begin()) --arena;
    for (; arena != arenas_.end() && arena->first < range.end; ++arena) {
        const Range part{std::max(range.begin, arena->second.range.begin),
                         std::min(range.end, arena->second.range.end)};
        if (part.begin >= part.end) continue;
        const std::uint64_t less = arena->second.mapped.remove(part);
        if (less == 0) continue;
        drop_blocks(part, false);
        change_stats(arena->second.facts.device, arena->second.facts.large,
                     [&](FrameworkStats& stats) { stats.reserved_bytes.subtract(less); });
    }
}

void FrameworkState::driver_freed(std::uint64_t address, const ProcessState& state) {
    const auto segment = segments_.find(address);
    if (segment == segments_.end()) return;
    // A release that was captured into a graph frees nothing now.
    if (segment->second.facts.kind == SegmentKind::kPool && state.pool_blocks().find(address)) return;
    end_segment(segment);
}

void FrameworkState::end_segment(std::map<std::uint64_t, Segment>::iterator at) {
    const Segment segment = at->second;
    drop_blocks(segment.range, false);
    segments_.erase(at);
    change_stats(segment.facts.device, segment.facts.large, [&](FrameworkStats& stats) {
        stats.segment.subtract(1);
        stats.reserved_bytes.subtract(segment.range.size());
    });
}

void FrameworkState::end_arena(std::map<std::uint64_t, Arena>::iterator at) {
    const Arena arena = std::move(at->second);
    drop_blocks(arena.range, false);
    arenas_.erase(at);
    change_stats(arena.facts.device, arena.facts.large,
                 [&](FrameworkStats& stats) { stats.reserved_bytes.subtract(arena.mapped.sum()); });
}

void FrameworkState::end_overlapping(const Range& range) {
    {
        auto segment = segments_.lower_bound(range.begin);
        if (segment != segments_.begin() && std::prev(segment)->second.range.end > range.begin) --segment;
        while (segment != segments_.end() && segment->first < range.end) {
            const auto next = std::next(segment);
            end_segment(segment);
            segment = next;
        }
    }
    auto arena = arenas_.lower_bound(range.begin);
    if (arena != arenas_.begin() && std::prev(arena)->second.range.end > range.begin) --arena;
    while (arena != arenas_.end() && arena->first < range.end) {
        const auto next = std::next(arena);
        end_arena(arena);
        arena = next;
    }
}

// Segments that the driver does not hold any more: contexts take theirs with them.
void FrameworkState::end_missing(const ProcessState& state) {
    for (auto segment = segments_.begin(); segment != segments_.end();) {
        const auto next = std::next(segment);
        const bool held = segment->second.facts.kind == SegmentKind::kPool
                              ? state.pool_blocks().find(segment->first).has_value()
                              : state.linear().find(segment->first).has_value();
        if (!held) end_segment(segment);
        segment = next;
    }
}

void FrameworkState::add_block(std::uint64_t address, const FrameworkBlock& block) {
    const Range range = range_of(address, block.bytes);
    const auto segment = block.home ? segments_.find(*block.home) : segments_.end();
    if (segment == segments_.end()) {
        blocks_[address] = block;
    } else {
        const SplitGaps before = split_gaps(segment->second.range, range);
        blocks_[address] = block;
        change_split_gaps(segment->second, before, split_gaps(segment->second.range, range));
    }
    if (!block.home) {
        devices_[block.device].outside_bytes += block.bytes;
        devices_[block.device].segments_unseen = true;
    }
    change_stats(block.device, block.bytes > kSmallBlock, [&](FrameworkStats& stats) {
        stats.allocation.add(1);
        stats.allocated_bytes.add(block.bytes);
        stats.active.add(1);
        stats.active_bytes.add(block.bytes);
    });
}

void FrameworkState::no_more_live(const FrameworkBlock& block) {
    change_stats(block.device, block.bytes > kSmallBlock, [&](FrameworkStats& stats) {
        stats.allocation.subtract(1);
        stats.allocated_bytes.subtract(block.bytes);
    });
}

// It becomes a gap, or part of one.
FrameworkState::Blocks::iterator FrameworkState::erase_block(Blocks::iterator at) {
    const Range range = range_of(at->first, at->second.bytes);
    const FrameworkBlock block = at->second;
    if (block.waits_for == 0) no_more_live(block);
    change_stats(block.device, block.bytes > kSmallBlock, [&](FrameworkStats& stats) {
        stats.active.subtract(1);
        stats.active_bytes.subtract(block.bytes);
    });
    if (!block.home) devices_[block.device].outside_bytes -= block.bytes;
    const auto segment = block.home ? segments_.find(*block.home) : segments_.end();
    if (segment == segments_.end()) return blocks_.erase(at);
    const SplitGaps before = split_gaps(segment->second.range, range);
    const auto next = blocks_.erase(at);
    change_split_gaps(segment->second, before, split_gaps(segment->second.range, range));
    return next;
}

// Everything that touches the range. `unexpected`: it should have been released before.
void FrameworkState::drop_blocks(const Range& range, bool unexpected) {
    auto block = blocks_.lower_bound(range.begin);
    if (block != blocks_.begin()) {
        const auto before = std::prev(block);
        if (before->first + before->second.bytes > range.begin) block = before;
    }
    while (block != blocks_.end() && block->first < range.end) {
        if (unexpected) ++contradictions_.overlapping_acquisitions;
        block = erase_block(block);
    }
}

FrameworkState::SplitGaps FrameworkState::split_gaps(const Range& segment, const Range& around) const {
    Range window = segment;
    auto after = blocks_.lower_bound(around.end);
    if (after != blocks_.end()) window.end = std::min(window.end, after->first);
    const auto first = blocks_.lower_bound(around.begin);
    if (first != blocks_.begin()) {
        const auto before = std::prev(first);
        window.begin = std::max(window.begin, before->first + before->second.bytes);
    }
    SplitGaps out;
    for_each_piece(window, [&](const Range& piece, const FrameworkBlock* block) {
        if (block != nullptr || piece.size() == segment.size()) return;
        ++out.count;
        out.bytes += piece.size();
    });
    return out;
}

void FrameworkState::change_split_gaps(const Segment& segment, const SplitGaps& before,
                                       const SplitGaps& after) {
    const auto change = [](FrameworkStat& stat, std::uint64_t was, std::uint64_t is) {
        if (is > was)
            stat.add(is - was);
        else
            stat.subtract(was - is);
    };
    change_stats(segment.facts.device, segment.facts.large, [&](FrameworkStats& stats) {
        change(stats.inactive_split, before.count, after.count);
        change(stats.inactive_split_bytes, before.bytes, after.bytes);
    });
}

}  // namespace fragscope::analysis
