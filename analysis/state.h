// The memory state of one process, rebuilt from its events in sequence order, layer by layer: reservations,
// mappings, access, physical handles, linear blocks, arrays, stream-ordered pools, graphs, page-locked host
// memory, and addresses whose memory belongs to others.
//
// Failed calls change nothing, and calls captured into a graph take no bytes. A release of something unknown
// is counted, not an error: it may have been acquired before the recording began. Nothing here says what the
// driver takes for a block; see charged.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/arrays.h"
#include "analysis/counts.h"
#include "analysis/event.h"
#include "analysis/extent_map.h"
#include "analysis/foreign.h"
#include "analysis/graphs.h"
#include "analysis/ipc_exports.h"
#include "analysis/physical_table.h"
#include "analysis/state_parts.h"

namespace fragscope::analysis {

class ProcessState {
  public:
    // `pid`: as the process sees itself; tells a checkpoint of this process from one of another. 0: not
    // known.
    explicit ProcessState(std::map<int, std::uint64_t> page_by_device = {}, std::int64_t pid = 0);

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
    const Arrays& arrays() const { return arrays_; }
    const ForeignMemory& foreign() const { return foreign_; }
    const IpcExports& ipc_exports() const { return ipc_exports_; }
    const Graphs& graphs() const { return graphs_; }
    std::uint64_t host_pinned_bytes() const { return host_bytes_; }
    const Contradictions& contradictions() const { return contradictions_; }
    const EmptyReleases& empty_releases() const { return empty_releases_; }

    // Address ranges that cuMemAddressReserve ever gave to this process: the driver's space for reservations,
    // as far as it was seen.
    const ExtentSet& ever_reserved() const { return ever_reserved_; }
    // Protection last set for a device (or other location, packed as in the record) at an address; nothing if
    // never set.
    std::optional<std::uint64_t> access(std::uint64_t location, Address address) const;
    // Inside the range, location by location: `visit(location, part, protection)`.
    template <typename Visit>
    void for_each_access(const Range& range, Visit&& visit) const {
        for (const auto& [location, access] : access_) {
            access.for_each_in(range, [&](const Range& part, std::uint64_t protection) {
                visit(location, Range{std::max(part.begin, range.begin), std::min(part.end, range.end)},
                      protection);
            });
        }
    }
    // The driver's names for the physical allocations.
    const HandleTable& handles() const { return handles_; }
    // Physical allocations of this process that were exported, and those of others that it imported, as long as
    // it holds them.
    std::uint64_t exported_handles() const { return exported_handles_; }
    std::uint64_t imported_handles() const { return imported_handles_; }
    // By device and call stack; only grows.
    const std::map<std::pair<int, std::uint32_t>, DiedWithContext>& died_with_contexts() const {
        return died_with_contexts_;
    }

    const DeviceTotals& totals(int device) const;
    const std::map<int, DeviceTotals>& all_totals() const { return totals_; }
    std::uint64_t page(int device) const;
    // Whether the process ever used a stream-ordered pool, and whether copies or memsets to VMM memory were
    // recorded.
    bool used_pools() const { return used_pools_; }
    bool touched_mapped_memory() const { return touched_mapped_memory_; }
    // Stream-ordered allocations that were captured into graphs (or may have been): what a graph takes when
    // it runs lies in a pool of its own, of which only kGraphMemory tells.
    std::uint64_t captured_allocations() const { return captured_; }
    // Contexts of the device that the process made or holds, as far as records name them. Green contexts
    // share the device's primary context and are not counted.
    std::size_t contexts(int device) const;
    // Modules and libraries that are loaded: what they take no call says.
    std::size_t modules() const { return modules_.size(); }
    // Between the steps "checkpoint" and "restore" the driver keeps the process's device memory elsewhere:
    // what the books hold takes nothing on the device.
    bool checkpointed() const { return checkpointed_; }
    // Largest physical allocation that ever succeeded there, in bytes; 0: none.
    std::uint64_t largest_created(int device) const;
    // Pool that the device's stream-ordered allocations come from, 0 if not known.
    ObjectId bound_pool(int device) const;

  private:
    // state_blocks.cpp
    void acquire_linear(const Event& event);
    void acquire_host(const Event& event);
    void release_host(const Event& event);
    void release_address(const Event& event);  // of cuMemFree and cuMemFreeAsync: whatever lies there
    bool release_block(const Event& event);
    void forget_linear_at(const Range& range);
    void forget_others_at(const Range& range);
    void book_linear(const Range& range, const LinearBlock& block);
    void forget_linear(const Range& range, const LinearBlock& block);
    void destroy_context(ObjectId context);
    void reset_device(int device);
    template <typename Owned>
    void free_owned(Owned&& owned);
    void died(int device, std::uint32_t stack, std::uint64_t bytes);
    void release_primary(const Event& event);

    // state_vmm.cpp
    void reserve(const Event& event);
    void free_reservation(const Event& event);
    void add_handle(const Event& event);
    void add_physical(ObjectId handle, Physical made);
    void retain(const Event& event);
    bool release_handle(ObjectId handle);
    Physical* physical_of(ObjectId handle);
    void map(const Event& event);
    void unmap(const Event& event);
    void set_access(const Event& event);
    void drop_if_unused(PhysicalId id, Physical& physical);
    void export_range(const Range& range);
    void export_physical(Physical& physical);
    void touch(const Event& event);
    void bind_multicast(const Event& event);

    // state_arrays.cpp
    void create_array(const Event& event);
    void release_array(const Event& event);
    void map_array(const Event& event);
    void forget_array(const Array& array);

    // state_pools.cpp
    void create_pool(const Event& event);
    void destroy_pool(const Event& event);
    void set_pool_attribute(const Event& event);
    void acquire_from_pool(const Event& event);
    void free_in_stream_order(const Event& event);
    // `asked`: the stream-ordered free that has not taken effect yet; none: it is gone at once.
    void release_to_pool(const Range& range, const PoolBlock& block, const Event* asked);
    void bind_pool(const Event& event);
    void pool_said(const Event& event);
    void synchronized(const Event& event);

    std::map<int, std::uint64_t> page_by_device_;
    std::int64_t pid_;
    ExtentMap<Reservation> reservations_;
    ExtentMap<Mapping> mappings_;
    std::map<std::uint64_t, ExtentMap<std::uint64_t>> access_;  // by packed location: protection
    Slots<Physical> physical_;
    HandleTable handles_;
    std::unordered_map<PhysicalId, std::vector<PhysicalId>> bound_to_multicast_;  // by the multicast object
    ExtentMap<LinearBlock> linear_;
    std::map<int, Counts> small_pages_;  // blocks by page number
    ExtentMap<PoolBlock> pool_blocks_;
    std::map<ObjectId, Pool> pools_;
    std::map<int, ObjectId> bound_;
    ExtentMap<PendingFree> pending_;
    std::map<std::uint64_t, HostBlock> host_;
    std::uint64_t host_bytes_ = 0;
    Arrays arrays_;
    ForeignMemory foreign_;
    IpcExports ipc_exports_;
    Graphs graphs_;
    std::map<ObjectId, int> created_contexts_;
    struct Primary {
        ObjectId context;
        std::uint32_t retained = 0;
    };
    std::map<int, Primary> primary_;
    std::unordered_map<ObjectId, ObjectId> modules_;  // with the context that holds it, 0: a library
    ExtentSet ever_reserved_;
    std::map<std::pair<int, std::uint32_t>, DiedWithContext> died_with_contexts_;
    std::map<int, DeviceTotals> totals_;
    Contradictions contradictions_;
    EmptyReleases empty_releases_;
    std::uint64_t captured_ = 0;
    std::uint64_t exported_handles_ = 0;
    std::uint64_t imported_handles_ = 0;
    std::map<int, std::uint64_t> largest_created_;
    bool used_pools_ = false;
    bool touched_mapped_memory_ = false;
    bool checkpointed_ = false;
};

}  // namespace fragscope::analysis
