// What a memory snapshot of PyTorch holds (torch.cuda.memory._snapshot(), _dump_snapshot(), memory_snapshot(), and
// the one that PyTorch's C++ writes), read off the writers of 2022 to 2026 and their files:
//
//   {"segments": [segment…], "device_traces": [[entry…] per device], "allocator_settings": {…},
//    "external_annotations": [{…}…], "host_segments": [segment…], "host_traces": [entry…]}
//
// or the list of segments alone. Everything but the segments may be missing, and members have come and gone: a
// block of 2022 has a `history` and no `requested_size`, one of 2023 no address; an entry of then no time.
//
// Only values: nothing here says what they mean for memory (torch_snapshot.cpp does).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/read/importer.h"

namespace fragscope::analysis {

// A place in source; in C++ the file may be empty and the line 0.
struct SnapshotFrame {
    std::uint32_t name = 0;  // SnapshotFile::texts
    std::uint32_t file = 0;
    std::uint32_t line = 0;
    bool operator==(const SnapshotFrame&) const = default;
};

enum class SnapshotBlockState : std::uint8_t { kAllocated, kPendingFree, kInactive };

struct SnapshotBlock {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::optional<std::uint64_t> requested;
    std::uint32_t stack = 0;  // SnapshotFile::stacks; 0: none
    SnapshotBlockState state = SnapshotBlockState::kInactive;
};

struct SnapshotSegment {
    int device = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t stream = 0;
    std::uint32_t pool = 0;  // SnapshotFile::pools; 0: the default one
    std::uint32_t stack = 0;
    bool large = true;
    bool expandable = false;  // a range that is mapped in one of PyTorch's expandable segments
    std::vector<SnapshotBlock> blocks;  // by address
};

// A driver that answers in 64 bits has all amounts below this; sums of few of them do not overflow.
inline constexpr std::uint64_t kMaxSnapshotBytes = std::uint64_t{1} << 60;

enum class SnapshotAction : std::uint8_t {
    kAlloc,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAlloc,
    kSegmentFree,
    kSegmentMap,
    kSegmentUnmap,
    kSnapshot,  // bytes: of all active blocks then
    kOom,       // address: what the driver said nobody held
    kAnnotate,
    kUserDefined,
    kOther,
};

// One entry of a device's trace. Sizes of allocations and frees are what was asked for, of segments what was taken.
struct SnapshotEntry {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t stream = 0;
    std::uint64_t time_us = 0;  // since 1970; 0: not told
    std::uint32_t stack = 0;
    std::uint32_t pool = kPoolNotTold;
    std::uint32_t text = 0;  // user_metadata; of kOther: the action's own name
    SnapshotAction action = SnapshotAction::kOther;

    static constexpr std::uint32_t kPoolNotTold = UINT32_MAX;
};

struct SnapshotAnnotation {
    std::uint32_t name = 0;   // texts
    std::uint32_t stage = 0;  // "START", "END"
    int device = 0;
    std::uint64_t time_us = 0;
};

struct SnapshotFile {
    std::vector<std::string> texts{""};  // UTF-8; the first is the empty one
    std::vector<SnapshotFrame> frames;
    std::vector<std::vector<std::uint32_t>> stacks{{}};  // of frames, the innermost first; the first is empty
    // Private pools by their pair of numbers; the first is the default one.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pools{{0, 0}};

    std::vector<SnapshotSegment> segments;  // by address
    bool traces_told = false;               // there is a `device_traces`
    std::vector<std::vector<SnapshotEntry>> traces;  // by device
    std::vector<SnapshotSegment> host_segments;
    std::vector<SnapshotEntry> host_trace;
    std::vector<SnapshotAnnotation> annotations;
    std::vector<std::pair<std::string, std::string>> settings;  // the allocator's, by name
    std::map<std::string, std::uint64_t> other_actions;         // entries by actions that are not known here
    std::map<std::string, std::uint64_t> other_states;
    bool times_told = true;    // every entry has one
    bool pools_told = true;    // every segment says whose pool it is in
    bool devices_told = true;  // every segment says its device
    bool requested_told = true;  // every block in use says what was asked for
    std::uint64_t pickle_bytes = 0;
    std::vector<std::string> contradictions;  // of the file with itself, sentences; of many of a kind the first
};

// Empty: read. Otherwise why not, in one sentence without its full stop.
std::string read_snapshot_file(ImportSource& source, SnapshotFile& file);
// Whether a file that begins so may be a pickle at all, or is one that holds a snapshot.
bool looks_like_snapshot(std::string_view head);

}  // namespace fragscope::analysis
