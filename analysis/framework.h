// What a framework's own allocator holds, rebuilt from what it says of its blocks (PyTorch's reports to its
// profiler; lines of an allocator's log) together with the driver's extents that the blocks lie in.
//
// Such an allocator takes segments from the driver and cuts blocks out of them. What it says names blocks
// only (its snapshot names segments, too), so a segment is a driver extent that a block was seen in: a linear allocation, an allocation of a
// stream-ordered pool, or, in a reservation (PyTorch's expandable segments), every maximal range that is
// mapped, also where no block lay yet. Small and large blocks, and which gaps merge, follow PyTorch's public
// rules: a gap ends at a block, at the segment's end, or at an unmapped address.
//
// From outside it is not known: what was asked for before rounding, which private pool a gap belongs to, and
// whether a block that was freed during a stream capture still waits for another stream.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/event.h"
#include "analysis/extent_map.h"
#include "analysis/state.h"

namespace fragscope::analysis {

// Blocks up to this size come from PyTorch's small pool, larger ones from its large pool; they share no
// segment (a public rule, not of this trace: evidence `assumed`).
inline constexpr std::uint64_t kSmallBlock = std::uint64_t{1} << 20;

struct FrameworkBlock {
    std::uint64_t bytes = 0;
    int device = kNoDevice;
    std::optional<ObjectId> stream;  // nothing: the framework did not say
    Sequence acquired;
    std::uint32_t stack = 0;
    std::optional<std::uint64_t> requested;  // before it was rounded up, where the framework said so
    std::uint32_t waits_for = 0;        // events; the program has freed it already. 0: live
    std::optional<std::uint64_t> home;  // where its segment (or reservation) begins; nothing: in none
};

enum class SegmentKind : std::uint8_t {
    kLinear,
    kManaged,
    kPool,  // an allocation from a stream-ordered pool
    kExpandable,
};

// What a segment's first block said of it, or the framework itself.
struct SegmentFacts {
    SegmentKind kind = SegmentKind::kLinear;
    int device = kNoDevice;
    std::optional<ObjectId> stream;
    bool large = false;
    // The framework told of the segment itself: nothing here is concluded from its blocks.
    bool told = false;
    std::uint32_t pool = wire::kPoolNotTold;  // a text, the pool's name; 0: the default one
};

// As PyTorch's statistics have them. Peaks count from the beginning of the recording.
struct FrameworkStat {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    void add(std::uint64_t amount) {
        current += amount;
        if (current > peak) peak = current;
    }
    void subtract(std::uint64_t amount) { current -= amount < current ? amount : current; }
};

struct FrameworkStats {
    FrameworkStat allocation, segment, active, inactive_split;
    FrameworkStat allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes;
};

// What the allocator said of itself in one record, and what these books had then.
struct FrameworkWord {
    Sequence sequence;
    std::optional<std::uint64_t> allocated;  // by its own count; nothing: it gives none
    std::optional<std::uint64_t> reserved;
    std::uint64_t our_allocated = 0;
    std::uint64_t our_reserved = 0;
    bool agrees() const {
        return allocated.value_or(our_allocated) == our_allocated &&
               reserved.value_or(our_reserved) == our_reserved;
    }
};

struct FrameworkDevice {
    enum Class : std::uint8_t { kAll, kSmall, kLarge };
    std::array<FrameworkStats, 3> stats;
    std::optional<FrameworkWord> word;  // the last one
    std::uint64_t words = 0;            // records with totals
    std::uint64_t disagreements = 0;    // of them
    std::optional<FrameworkWord> first_disagreement;
    std::uint64_t outside_bytes = 0;  // live and waiting blocks that lie in no extent of the driver
    // A block once lay in none, such as all of an allocator's log: what is in segments is the least there is.
    bool segments_unseen = false;
    std::uint64_t refused = 0;  // requests that it gave up
    // Attempts after everything wholly free was returned: it tells of none of them.
    std::uint64_t retries_at_least = 0;
    std::uint64_t retries_at_most = 0;

    const FrameworkStats& all() const { return stats[kAll]; }
    std::uint64_t live() const { return all().allocated_bytes.current; }
    std::uint64_t waiting() const { return all().active_bytes.current - live(); }
    // In segments and in no block.
    std::uint64_t cached() const {
        const std::uint64_t in_segments = all().active_bytes.current - outside_bytes;
        const std::uint64_t reserved = all().reserved_bytes.current;
        return reserved < in_segments ? 0 : reserved - in_segments;
    }
};

class FrameworkState {
  public:
    // Each event of the process, in sequence order, with the driver's state after it.
    void apply(const Event& event, const ProcessState& after);

    // Whether any block was ever told of.
    bool used() const { return !devices_.empty(); }
    const std::map<int, FrameworkDevice>& devices() const { return devices_; }
    const FrameworkDevice& device(int ordinal) const;
    // Live and waiting ones by address, of all devices.
    const std::map<std::uint64_t, FrameworkBlock>& blocks() const { return blocks_; }
    const Contradictions& contradictions() const { return contradictions_; }
    // That the thread's next blocks on the device are for; nothing: the framework did not say.
    std::optional<ObjectId> stream_of(std::int32_t thread, int device) const;

    // In address order: `visit(range, facts)` of every segment.
    template <typename Visit>
    void for_each_segment(Visit&& visit) const {
        auto arena = arenas_.begin();
        const auto arenas_before = [&](std::uint64_t address) {
            for (; arena != arenas_.end() && arena->first < address; ++arena) {
                arena->second.mapped.for_each([&](const Range& at) { visit(at, arena->second.facts); });
            }
        };
        for (const auto& [begin, segment] : segments_) {
            arenas_before(begin);
            visit(segment.range, segment.facts);
        }
        arenas_before(UINT64_MAX);
    }
    // In address order: `visit(piece, block)` for blocks and the gaps between them; a gap's block is null.
    template <typename Visit>
    void for_each_piece(const Range& segment, Visit&& visit) const {
        std::uint64_t at = segment.begin;
        for (auto block = blocks_.lower_bound(segment.begin);
             block != blocks_.end() && block->first < segment.end; ++block) {
            if (block->first > at)
                visit(Range{at, block->first}, static_cast<const FrameworkBlock*>(nullptr));
            at = block->first + block->second.bytes;
            visit(Range{block->first, at}, &block->second);
        }
        if (at < segment.end) visit(Range{at, segment.end}, static_cast<const FrameworkBlock*>(nullptr));
    }

  private:
    struct Segment {
        Range range;
        SegmentFacts facts;
    };
    // A reservation that blocks lie in.
    struct Arena {
        Range range;
        SegmentFacts facts;
        ExtentSet mapped;
    };
    // A block that waits for an event: where, and which of all that lay there.
    struct Waited {
        std::uint64_t address = 0;
        Sequence acquired;
    };
    struct Thread {
        std::map<int, ObjectId> streams;  // by device
        std::vector<ObjectId> waits;      // events, of the block that it releases next
        // Since this thread's last block:
        std::uint32_t refusals = 0;  // by the driver, of memory
        bool gave_back = false;      // it returned memory to the driver
    };
    using Blocks = std::map<std::uint64_t, FrameworkBlock>;

    void acquired(const Event& event, const ProcessState& state);
    void released(const Event& event);
    void refused(const Event& event);
    void wait_over(ObjectId event, Thread& thread);
    void one_wait_less(const Waited& waited);
    void note_totals(const Event& event);
    void count_retries(const Event& event);

    void segment_told(const Event& event, const ProcessState& state);
    // The segment or reservation that the block lies in; found with the driver's state where it is new.
    std::optional<std::uint64_t> home_of(const Range& block, const FrameworkBlock& facts,
                                         const ProcessState& state);
    void add_segment(const Range& range, SegmentFacts facts);
    void add_arena(const Range& range, SegmentFacts facts, const ProcessState& state);
    void map_in_arena(Arena& arena, const Range& range);
    void unmap(const Range& range);
    void driver_freed(std::uint64_t address, const ProcessState& state);
    void end_segment(std::map<std::uint64_t, Segment>::iterator at);
    void end_arena(std::map<std::uint64_t, Arena>::iterator at);
    void end_overlapping(const Range& range);
    void end_missing(const ProcessState& state);

    void add_block(std::uint64_t address, const FrameworkBlock& block);
    Blocks::iterator erase_block(Blocks::iterator at);
    void drop_blocks(const Range& range, bool unexpected);
    void no_more_live(const FrameworkBlock& block);
    // What PyTorch calls inactive splits: the gaps of a segment that is not free as a whole. Those at
    // `around`.
    struct SplitGaps {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
    };
    SplitGaps split_gaps(const Range& segment, const Range& around) const;
    void change_split_gaps(const Segment& segment, const SplitGaps& before, const SplitGaps& after);

    template <typename Change>
    void change_stats(int device, bool large, Change&& change) {
        FrameworkDevice& books = devices_[device];
        change(books.stats[FrameworkDevice::kAll]);
        change(books.stats[large ? FrameworkDevice::kLarge : FrameworkDevice::kSmall]);
    }

    std::map<int, FrameworkDevice> devices_;
    Blocks blocks_;
    std::map<std::uint64_t, Segment> segments_;  // by begin
    std::map<std::uint64_t, Arena> arenas_;      // by begin
    std::unordered_map<std::int32_t, Thread> threads_;
    std::optional<std::int32_t> gave_back_last_;  // a thread of which that is noted; most come in a row
    std::unordered_map<ObjectId, Waited> waiting_;  // by event
    Contradictions contradictions_;
};

}  // namespace fragscope::analysis
