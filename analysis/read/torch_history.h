// The history of one device's allocator, out of PyTorch's snapshot of it: what it holds at the end and the list of
// what it did before give, walked backwards, what it held in front of the first entry; then the same list forwards
// gives every state between, as events.
//
// The list is a ring buffer: it begins late, so that blocks are freed in it that it never saw handed out. It may lack
// whole kinds of entries, too (skip_actions), so each step says what it could not make fit.
//
// How large a block is, an entry does not say: only what was asked for. A block that is there at the end has its size;
// of the others it follows from the allocator's public rules and the gap that it was cut from (see block_bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/event.h"
#include "analysis/extent_map.h"
#include "analysis/read/torch_snapshot_file.h"

namespace fragscope::analysis {

// Who did what: Event::function of the events, and their names.
enum class SnapshotFunction : std::uint32_t {
    kHeldBefore,  // there in front of the first entry
    kAction,      // and from here on one for each SnapshotAction
    kGone = 13,   // no entry says so, but it was not there any more
    kAnnotation = 14,
};
std::vector<std::string> snapshot_functions();

// What did not fit, by its kind; and for messages the first of each kind.
struct HistoryFindings {
    std::uint64_t held_before = 0;         // blocks in use in front of the first entry
    std::uint64_t sizes_at_least = 0;      // of them, those that the list frees and whose size it leaves open
    std::uint64_t sizes_by_rule = 0;       // blocks handed out and freed again in the list
    std::uint64_t vanished_blocks = 0;     // handed out, and gone without an entry
    std::uint64_t doubled_blocks = 0;      // freed where another entry or the end has them still
    std::uint64_t vanished_segments = 0;
    std::uint64_t doubled_segments = 0;
    std::uint64_t outside = 0;             // blocks in no segment that is known
    std::uint64_t overlapped = 0;          // blocks that another one was handed out over, without an entry that they went
    std::uint64_t end_differs = 0;         // blocks that the end has and the walk does not, or otherwise
    std::uint64_t totals = 0;              // sums that the list itself states
    std::uint64_t totals_differ = 0;       // of them, those that the walk does not come to
    bool totals_above = false;             // some of those are larger than what is stated
    std::string first_total;               // of these, the first one in words
    std::uint64_t ooms = 0;
};

// What the rules of the allocator depend on, where the snapshot tells its settings.
struct AllocatorRules {
    std::uint64_t max_split_bytes = UINT64_MAX;
    bool rounds_otherwise = false;  // to fractions of powers of two (roundup_power2_divisions)
};
AllocatorRules rules_of(const SnapshotFile& file);

class DeviceHistory {
  public:
    // `pool_texts`: by SnapshotFile::pools, the number of the text with its name; the first is 0. `marks`: texts for
    // kSnapshot marks. The file has to outlive it.
    DeviceHistory(const SnapshotFile& file, int device, const std::vector<std::uint32_t>& pool_texts,
                  std::uint32_t snapshot_text);

    // Takes each event, in order, without a sequence number.
    using Sink = std::function<void(const Event&)>;
    // Empty: done. Else why not, as part of a sentence.
    std::string run(Sink sink);
    const HistoryFindings& findings() const { return findings_; }

  private:
    struct Block {
        std::uint64_t bytes = 0;  // 0: not known
        std::optional<std::uint64_t> requested;
        std::uint32_t stack = 0;
        bool pending = false;
        std::uint64_t wait = 0;      // forwards: the event that it waits for
        std::uint32_t at_end = kNotAtEnd;  // backwards: its number among those of the end
    };
    struct Extent {
        std::uint64_t bytes = 0;
        std::uint64_t stream = 0;
        std::uint32_t pool = SnapshotEntry::kPoolNotTold;  // SnapshotFile::pools
        std::uint32_t stack = 0;
        bool large = true;
    };
    static constexpr std::uint32_t kNotAtEnd = UINT32_MAX;
    using Blocks = std::map<std::uint64_t, Block>;
    using Extents = std::map<std::uint64_t, Extent>;

    void take_end();
    void walk_back();
    void undo(std::size_t index, const SnapshotEntry& entry);
    void undo_segment_free(const SnapshotEntry& entry);
    std::string find_arenas();

    void tell_beginning();
    void redo(std::size_t index, const SnapshotEntry& entry);
    void alloc(std::size_t index, const SnapshotEntry& entry);
    void free_requested(std::size_t index, const SnapshotEntry& entry);
    void free_completed(const SnapshotEntry& entry);
    void take_segment(const SnapshotEntry& entry);
    void give_segment(const SnapshotEntry& entry);
    void map_pieces(const Range& range, const Event& like);
    void unmap_pieces(const Range& range, const Event& like);
    void check_total(const SnapshotEntry& entry);
    void compare_with_end();

    std::uint64_t block_bytes(std::uint64_t address, std::uint64_t requested);
    void size_of_held(Blocks::iterator block);
    // The extent or mapped range that holds the address: where it ends and whether its blocks are small ones.
    struct Place {
        std::uint64_t end = 0;
        std::uint64_t stream = 0;
        bool large = true;
        bool expandable = false;
    };
    std::optional<Place> place_of(std::uint64_t address) const;
    void drop_overlapping(std::uint64_t begin, std::uint64_t end);

    Event event_of(SnapshotFunction function, wire::Kind kind) const;
    Event event_of(const SnapshotEntry& entry, wire::Kind kind) const;
    void emit(const Event& event);
    void emit_stream(const Event& like, std::uint64_t stream);
    void emit_block(Event like, std::uint64_t address, const Block& block, std::uint64_t stream);
    void emit_segment(Event like, std::uint64_t address, const Extent& extent);

    const SnapshotFile& file_;
    int device_ = 0;
    const std::vector<std::uint32_t>& pool_texts_;
    std::uint32_t snapshot_text_ = 0;
    AllocatorRules rules_;
    const std::vector<SnapshotEntry>* entries_ = nullptr;
    HistoryFindings findings_;

    std::vector<std::pair<std::uint64_t, SnapshotBlock>> end_blocks_;  // in use at the end
    std::unordered_map<std::uint32_t, std::uint32_t> survivors_;       // entry -> number in end_blocks_
    std::vector<bool> never_completed_;  // requests to free whose end no entry tells: they were done at once
    Blocks blocks_;
    Extents extents_;
    ExtentSet mapped_;
    std::uint64_t active_ = 0;  // forwards: bytes of blocks in use and waiting

    // Ranges in which memory is mapped and unmapped, by where they begin; `bytes` the range that was ever mapped.
    Extents arenas_;
    std::vector<std::uint64_t> bounds_;  // where pieces begin and end that are mapped and unmapped as one
    std::map<std::uint64_t, std::uint64_t> handles_;  // forwards: of mapped pieces, by where they begin
    std::uint64_t next_handle_ = 1;
    std::uint64_t next_wait_ = 1;
    std::uint64_t pieces_ = 0;
    std::optional<std::uint64_t> stream_;
    std::uint64_t last_time_ = 0;
    Sink sink_;
};

}  // namespace fragscope::analysis
