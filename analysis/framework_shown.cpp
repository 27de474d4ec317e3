#include "analysis/framework_shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "analysis/callers.h"
#include "analysis/quantity.h"
#include "analysis/session.h"

namespace fragscope::analysis {
namespace {

const char* kind_in_words(SegmentKind kind) {
    switch (kind) {
        case SegmentKind::kLinear:
            return "linear";
        case SegmentKind::kManaged:
            return "managed";
        case SegmentKind::kPool:
            return "pool";
        case SegmentKind::kExpandable:
            return "expandable";
    }
    return "";
}

void set_block(report::FrameworkBlock& out, const Range& range, const FrameworkBlock* block) {
    out.set_address(range.begin);
    out.set_bytes(range.size());
    if (block == nullptr) {
        out.set_state(report::FrameworkBlock::unused);
        return;
    }
    out.set_state(block->waits_for == 0 ? report::FrameworkBlock::live : report::FrameworkBlock::waiting);
    if (block->stream) out.set_stream(block->stream->value);
    if (block->requested) out.set_requested_bytes(*block->requested);
}

void set_counted(report::Counted& out, const FrameworkStat& stat) {
    out.set_current(stat.current);
    out.set_peak(stat.peak);
}

void set_statistics(report::FrameworkStatistics& out, const char* pool, const FrameworkStats& stats,
                    bool segments_known) {
    out.set_pool(pool);
    set_counted(*out.mutable_allocation(), stats.allocation);
    set_counted(*out.mutable_active(), stats.active);
    set_counted(*out.mutable_allocated_bytes(), stats.allocated_bytes);
    set_counted(*out.mutable_active_bytes(), stats.active_bytes);
    if (!segments_known) return;
    set_counted(*out.mutable_segment(), stats.segment);
    set_counted(*out.mutable_inactive_split(), stats.inactive_split);
    set_counted(*out.mutable_reserved_bytes(), stats.reserved_bytes);
    set_counted(*out.mutable_inactive_split_bytes(), stats.inactive_split_bytes);
}

// Whether it is known of every block that the program has what was asked for.
bool sizes_told(const FrameworkState& books, int device) {
    return std::all_of(books.blocks().begin(), books.blocks().end(), [&](const auto& each) {
        return each.second.device != device || each.second.requested || each.second.waits_for != 0;
    });
}

bool pools_told(const FrameworkState& books, int device) {
    bool all = true;
    books.for_each_segment([&](const Range&, const SegmentFacts& facts) {
        if (facts.device == device) all = all && facts.told && facts.pool != wire::kPoolNotTold;
    });
    return all;
}

std::string disagreement_in_words(const FrameworkWord& word) {
    const auto said = [](const std::optional<std::uint64_t>& bytes) {
        return bytes ? in_words(*bytes) : std::string("an amount that it does not tell");
    };
    return fmt::format(
        "the first one at sequence number {}: the allocator counted {} allocated and {} reserved where the "
        "records give {} and {}. Blocks of before the recording, or records that were lost, are missing here",
        word.sequence.value, said(word.allocated), said(word.reserved), in_words(word.our_allocated),
        in_words(word.our_reserved));
}

void set_totals(report::FrameworkTotals& out, const FrameworkDevice& books) {
    out.set_live_bytes(books.live());
    out.set_waiting_bytes(books.waiting());
    if (!books.segments_unseen) {
        out.set_cached_bytes(books.cached());
        out.set_reserved_bytes(books.all().reserved_bytes.current);
    }
    out.set_outside_bytes(books.outside_bytes);
    out.set_records(books.words);
    out.set_disagreements(books.disagreements);
    if (books.first_disagreement) out.set_disagreement(disagreement_in_words(*books.first_disagreement));
    if (!books.word) return;
    if (books.word->allocated) out.set_own_allocated_bytes(*books.word->allocated);
    if (books.word->reserved) out.set_own_reserved_bytes(*books.word->reserved);
    out.set_own_sequence(books.word->sequence.value);
    out.set_agrees(books.word->agrees());
}

}  // namespace

std::string pool_in_words(const Trace& trace, ProcessIndex process, std::uint32_t pool) {
    if (pool == wire::kPoolNotTold) return "";
    return pool == 0 ? "default" : text_of(trace, process, pool);
}

std::vector<report::FrameworkAllocator> framework_shown(const FrameworkState& books, const Trace& trace,
                                                        ProcessIndex process) {
    std::map<int, report::FrameworkAllocator> out;
    for (const auto& [ordinal, device] : books.devices()) {
        report::FrameworkAllocator& shown = out[ordinal];
        if (ordinal != kNoDevice) shown.set_ordinal(ordinal);
        shown.set_device(device_uuid(trace, process, ordinal));
        set_totals(*shown.mutable_totals(), device);
        const bool segments_known = !device.segments_unseen;
        set_statistics(*shown.add_statistics(), "all", device.stats[FrameworkDevice::kAll], segments_known);
        set_statistics(*shown.add_statistics(), "small", device.stats[FrameworkDevice::kSmall],
                       segments_known);
        set_statistics(*shown.add_statistics(), "large", device.stats[FrameworkDevice::kLarge],
                       segments_known);
        shown.set_refused(device.refused);
        shown.set_retries_at_least(device.retries_at_least);
        shown.set_retries_at_most(device.retries_at_most);
        if (!sizes_told(books, ordinal))
            shown.add_not_known(
                "the sizes that were asked for: the allocator tells of its blocks, which are rounded up");
        if (!pools_told(books, ordinal))
            shown.add_not_known(
                "which private pool (a CUDA graph's, a MemPool) a segment or a gap belongs to");
        if (device.segments_unseen)
            shown.add_not_known(
                "what the allocator took from the driver and keeps: blocks of it lie in memory that no "
                "record "
                "shows it take");
    }
    books.for_each_segment([&](const Range& range, const SegmentFacts& facts) {
        report::FrameworkSegment& segment = *out[facts.device].add_segments();
        segment.set_address(range.begin);
        segment.set_bytes(range.size());
        segment.set_kind(kind_in_words(facts.kind));
        if (facts.stream) segment.set_stream(facts.stream->value);
        segment.set_large(facts.large);
        segment.set_told(facts.told);
        if (facts.told) segment.set_pool(pool_in_words(trace, process, facts.pool));
        books.for_each_piece(range, [&](const Range& piece, const FrameworkBlock* block) {
            set_block(*segment.add_blocks(), piece, block);
        });
    });
    for (const auto& [address, block] : books.blocks()) {
        if (!block.home)
            set_block(*out[block.device].add_blocks_outside(), range_of(address, block.bytes), &block);
    }
    std::vector<report::FrameworkAllocator> list;
    list.reserve(out.size());
    for (auto& [ordinal, shown] : out) list.push_back(std::move(shown));
    return list;
}

}  // namespace fragscope::analysis
