// What the memory state of a process is made of: one value for each kind of thing that a program can hold.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/event.h"
#include "analysis/extent_map.h"
#include "analysis/physical_table.h"

namespace fragscope::analysis {

// CU_MEM_LOCATION_TYPE_DEVICE of cuda.h: the only kind of location that takes device memory.
inline constexpr std::uint32_t kLocationDevice = 1;
// The driver's physical page, where the device's own minimum granularity is not in the trace.
inline constexpr std::uint64_t kDefaultPage = std::uint64_t{2} << 20;
// Linear requests up to this size share pages (facts of public reports, not of this trace: evidence
// `assumed`).
inline constexpr std::uint64_t kPackedUpTo = std::uint64_t{1} << 20;

// Steps of kCheckpoint, in its address field.
inline constexpr std::uint64_t kCheckpointTaken = 2;
inline constexpr std::uint64_t kCheckpointRestored = 3;

struct LinearBlock {
    std::uint64_t requested = 0;
    std::uint64_t granted = 0;  // pitch * height for kPitchAcquired, otherwise requested
    ObjectId context;
    int device = kNoDevice;
    std::uint32_t stack = 0;
    wire::Kind kind = wire::Kind::kLinearAcquired;  // or kPitchAcquired, kManagedAcquired
    bool exported = false;                          // another process may keep it alive
};

struct Reservation {
    std::uint32_t stack = 0;
};

struct Mapping {
    PhysicalId physical = 0;
    std::uint64_t begin = 0;   // address of the mapping's first byte
    std::uint64_t offset = 0;  // in the physical allocation, of that byte
    std::uint32_t stack = 0;
};

// A physical allocation lives while a handle reference, a mapping or an array that it lies behind is left.
struct Physical {
    std::uint64_t bytes = 0;
    int device = kNoDevice;  // kNoDevice: host memory, or not known
    bool on_device = false;
    bool imported = false;   // its bytes belong to the exporter
    bool exported = false;   // another process may keep it alive
    bool multicast = false;  // a multicast object: it can be mapped, and owns no memory
    // Neither a reference nor a mapping is left, and whether something else still holds it is not known.
    bool maybe_gone = false;
    std::uint32_t references = 0;
    std::uint32_t exports = 0;  // descriptions of it that were given out for other processes
    std::uint32_t arrays = 0;   // arrays with this memory behind them, for certain
    // Arrays with it behind them before parts of them were unmapped (the call names no handle), and multicast
    // objects that it was bound to: any of them may or may not hold it.
    std::uint32_t maybe_held = 0;
    std::uint64_t mapped_bytes = 0;
    bool was_mapped = false;  // at some time
    std::uint32_t stack = 0;
    RareExtentSet touched;  // offsets that copies and memsets wrote
};

struct PoolBlock {
    std::uint64_t requested = 0;
    ObjectId pool;  // 0: not known which
    int device = kNoDevice;
    ObjectId stream;
    std::uint32_t stack = 0;
    bool maybe_captured = false;  // it may be a graph node, or a graph may free it
};

struct Pool {
    int device = kNoDevice;
    bool on_device = true;
    bool imported = false;  // its bytes belong to the exporter
    bool exported = false;
    std::optional<std::uint64_t> maximum;
    std::optional<std::uint64_t> threshold;
    bool destroyed = false;  // by the program; gone when its last block is freed
    bool no_opportunistic_reuse =
        false;                     // the program forbade giving a finished free out again on another stream
    std::uint64_t live_bytes = 0;  // requested
    std::uint64_t live_count = 0;
    std::uint64_t high_live_bytes = 0;
    // What the driver said of it last.
    struct Word {
        std::uint64_t used = 0;
        std::uint64_t reserved = 0;
        Sequence sequence;
    };
    std::optional<Word> said;
};

// Freed by the program; the stream may not have got there.
struct PendingFree {
    std::uint64_t requested = 0;
    ObjectId pool;
    int device = kNoDevice;
    ObjectId stream;  // 1 and 2: the legacy and the thread's own NULL stream, as in kSynchronized
    std::int32_t thread = 0;
    std::uint32_t stack = 0;  // of the allocation
};

struct HostBlock {
    std::uint64_t bytes = 0;
    bool registered = false;  // existing pages, pinned
    ObjectId context;
};

// Memory that a context took with it, without a release of the program: what was asked for on one device, from
// one place of the program.
struct DiedWithContext {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};

// Running totals of one device, all in bytes.
struct DeviceTotals {
    std::uint64_t handles = 0;           // physical allocations of this process, not imported ones
    std::uint64_t handles_maybe = 0;     // Physical::maybe_gone
    std::uint64_t mapped = 0;            // address space mapped to them
    std::uint64_t linear_requested = 0;  // without managed memory
    std::uint64_t linear_granted = 0;    // the same with whole pitches: the least that is charged
    std::uint64_t large_rounded = 0;     // blocks over kPackedUpTo in whole pages of their own
    std::uint64_t small_pages = 0;       // pages that blocks up to kPackedUpTo lie in
    std::uint64_t pool_live = 0;         // requested
    std::uint64_t managed = 0;           // address space; not resident at the call
    std::uint64_t array_texels = 0;      // of arrays that own memory: the least that they are charged
    std::uint64_t array_count = 0;       // of those
    // Released here, after they had been exported: other processes may hold them. Only grows.
    std::uint64_t may_outlive = 0;
};

// Where the records did not fit together. Anything here means that the state may be wrong or incomplete.
struct Contradictions {
    std::uint64_t unknown_releases = 0;          // of nothing that this trace acquired
    std::uint64_t overlapping_acquisitions = 0;  // at an address that was not free: its release is missing
    std::uint64_t unknown_handles = 0;           // mapped or retained, never created here
    std::uint64_t operator()() const { return unknown_releases + overlapping_acquisitions + unknown_handles; }
};

// Releases that are in order and give back nothing of this process's books.
struct EmptyReleases {
    std::uint64_t of_null = 0;
    std::uint64_t of_foreign = 0;  // other processes' or interfaces' memory
    std::uint64_t of_graphs = 0;   // addresses of graphs' allocation nodes
};

}  // namespace fragscope::analysis
