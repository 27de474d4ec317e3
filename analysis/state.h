// The memory state of one process, rebuilt from its events in sequence order, layer by layer: reservations,
// mappings, access, physical handles, linear blocks, stream-ordered pools, page-locked host memory.
//
// Failed calls and calls captured into a graph change nothing. A release of something unknown is counted, not
// an error: it may have been acquired before the recording began. Nothing here says what the driver takes for
// a block; see charged.h.
#pragma once

#include <cstdint>
#include <map>
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

struct LinearBlock {
    wire::Kind kind = wire::Kind::kLinearAcquired;  // or kPitchAcquired, kManagedAcquired
    std::uint64_t requested = 0;
    std::uint64_t granted = 0;  // pitch * height for kPitchAcquired, otherwise requested
    int device = kNoDevice;
    ObjectId context;
};

struct Reservation {};

struct Mapping {
    PhysicalId physical = 0;
    std::uint64_t begin = 0;   // address of the mapping's first byte
    std::uint64_t offset = 0;  // in the physical allocation, of that byte
};

// A physical allocation lives while a handle reference or a mapping is left.
struct Physical {
    std::uint64_t bytes = 0;
    int device = kNoDevice;  // kNoDevice: host memory, or not known
    bool on_device = false;
    bool imported = false;  // its bytes belong to the exporter
    bool exported = false;  // another process may keep it alive
    std::uint32_t references = 0;
    std::uint64_t mapped_bytes = 0;
    ExtentSet touched;  // offsets that copies and memsets wrote
};

struct PoolBlock {
    std::uint64_t requested = 0;
    ObjectId pool;  // 0: not known which
    int device = kNoDevice;
    ObjectId stream;
    bool maybe_captured = false;  // it may be a graph node, or a graph may free it
};

struct Pool {
    int device = kNoDevice;
    bool on_device = true;
    std::optional<std::uint64_t> maximum;
    std::optional<std::uint64_t> threshold;
    bool destroyed = false;  // by the program; gone when its last block is freed
    bool no_opportunistic_reuse =
        false;                     // the program forbade giving a finished free out again on another stream
    std::uint64_t live_bytes = 0;  // requested
    std::uint64_t live_count = 0;
    std::uint64_t high_live_bytes = 0;
};

// Freed by the program; the stream may not have got there.
struct PendingFree {
    std::uint64_t requested = 0;
    ObjectId pool;
    int device = kNoDevice;
    ObjectId stream;  // 1 and 2: the legacy and the thread's own NULL stream, as in kSynchronized
    std::int32_t thread = 0;
};

struct HostBlock {
    std::uint64_t bytes = 0;
    bool registered = false;  // existing pages, pinned
    ObjectId context;
};

// Running totals of one device, all in bytes.
struct DeviceTotals {
    std::uint64_t handles = 0;           // physical allocations of this process, not imported ones
    std::uint64_t mapped = 0;            // address space mapped to them
    std::uint64_t linear_requested = 0;  // without managed memory
    std::uint64_t linear_rounded =
        0;  // every block over kPackedUpTo in pages of its own; smaller ones as requested
    std::uint64_t small_count = 0;  // blocks up to kPackedUpTo
    std::uint64_t pool_live = 0;    // requested
    std::uint64_t managed = 0;      // address space; not resident at the call
};

// Where the records did not fit together. Anything here means that the state may be wrong or incomplete.
struct Contradictions {
    std::uint64_t unknown_releases = 0;          // of nothing that this trace acquired
    std::uint64_t overlapping_acquisitions = 0;  // at an address that was not free: its release is missing
    std::uint64_t unknown_handles = 0;           // mapped or retained, never created here
    std::uint64_t operator()() const { return unknown_releases + overlapping_acquisitions + unknown_handles; }
};

class ProcessState {
  public:
    explicit ProcessState(std::map<int, std::uint64_t> page_by_device = {});

    // Events come in sequence order.
    void apply(const Event& event);

    const ExtentMap<Reservation>& reservations() const { return reservations_; }
    const ExtentMap<Mapping>& mappings() const { return mappings_; }
    const Slots<Physical>& physical() const { return physical_; }
    const ExtentMap<LinearBlock>& linear() const { return linear_; }
    const ExtentMap<PoolBlock>& pool_blocks() const { return pool_blocks_; }
    const std::map<ObjectId, Pool>& pools() const { return pools_; }
    const ExtentMap<PendingFree>& pending_frees() const { return pending_; }
    const std::map<std::uint64_t, HostBlock>& host() const { return host_; }
    std::uint64_t host_pinned_bytes() const { return host_bytes_; }
    const Contradictions& contradictions() const { return contradictions_; }

    // Address ranges that cuMemAddressReserve ever gave to this process: the driver's space for reservations,
    // as far as it was seen.
    const ExtentSet& ever_reserved() const { return ever_reserved_; }
    // Protection last set for a device (or other location, packed as in the record) at an address; nothing if
    // never set.
    std::optional<std::uint64_t> access(std::uint64_t location, Address address) const;

    const DeviceTotals& totals(int device) const;
    const std::map<int, DeviceTotals>& all_totals() const { return totals_; }
    std::uint64_t page(int device) const;
    // Whether the process ever used a stream-ordered pool, and whether copies or memsets to VMM memory were
    // recorded.
    bool used_pools() const { return used_pools_; }
    bool touched_mapped_memory() const { return touched_mapped_memory_; }
    // Stream-ordered allocations that were captured into graphs (or may have been): what a graph takes when it
    // runs lies in a pool of its own, of which no record tells.
    std::uint64_t captured_allocations() const { return captured_; }
    // Contexts of the device that the process made or holds, as far as records name them.
    std::size_t contexts(int device) const;
    // Largest physical allocation that ever succeeded there, in bytes; 0: none.
    std::uint64_t largest_created(int device) const;
    // Pool that the device's stream-ordered allocations come from, 0 if not known.
    ObjectId bound_pool(int device) const;

  private:
    void acquire_linear(const Event& event);
    bool release_address(const Event& event);  // a linear or a stream-ordered block
    void forget_block_at(const Range& range);
    void forget_linear(const LinearBlock& block);
    void retain(const Event& event);
    bool release_handle(ObjectId handle);
    void map(const Event& event);
    void unmap(const Event& event);
    void drop_if_unused(PhysicalId id, const Physical& physical);
    void acquire_from_pool(const Event& event);
    // `asked`: the stream-ordered free that has not taken effect yet; none: it is gone at once.
    void release_to_pool(const Range& range, const PoolBlock& block, const Event* asked);
    void bind_pool(const Event& event);
    void synchronized(const Event& event);
    void touch(const Event& event);
    void destroy_context(ObjectId context);
    void reset_device(int device);
    template <typename Owned>
    void free_owned(Owned&& owned);

    std::map<int, std::uint64_t> page_by_device_;
    ExtentMap<Reservation> reservations_;
    ExtentMap<Mapping> mappings_;
    std::map<std::uint64_t, ExtentMap<std::uint64_t>> access_;  // by packed location: protection
    Slots<Physical> physical_;
    HandleTable handles_;
    ExtentMap<LinearBlock> linear_;
    ExtentMap<PoolBlock> pool_blocks_;
    std::map<ObjectId, Pool> pools_;
    std::map<int, ObjectId> bound_;
    ExtentMap<PendingFree> pending_;
    std::map<std::uint64_t, HostBlock> host_;
    std::uint64_t host_bytes_ = 0;
    std::map<ObjectId, int> created_contexts_;
    struct Primary {
        ObjectId context;
        std::uint32_t retained = 0;
    };
    std::map<int, Primary> primary_;
    ExtentSet ever_reserved_;
    std::map<int, DeviceTotals> totals_;
    Contradictions contradictions_;
    std::uint64_t captured_ = 0;
    std::map<int, std::uint64_t> largest_created_;
    bool used_pools_ = false;
    bool touched_mapped_memory_ = false;
};

}  // namespace fragscope::analysis
