#include "analysis/state_books.h"

#include <map>
#include <set>
#include <utility>

#include "analysis/session.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

void show_devices(const ProcessState& state, const Trace& trace, ProcessIndex process, report::State& out) {
    std::set<int> ordinals;
    for (const auto& [ordinal, totals] : state.all_totals()) ordinals.insert(ordinal);
    if (process.value < trace.processes.size()) {
        for (const trace::Device& device : trace.processes[process.value].devices())
            ordinals.insert(static_cast<int>(device.ordinal()));
    }
    for (const int ordinal : ordinals) {
        const DeviceTotals& totals = state.totals(ordinal);
        report::DeviceBooks& books = *out.add_devices();
        if (ordinal != kNoDevice) books.set_ordinal(ordinal);
        books.set_device(device_uuid(trace, process, ordinal));
        books.set_handle_bytes(totals.handles);
        books.set_mapped_bytes(totals.mapped);
        books.set_linear_bytes(totals.linear_requested);
        books.set_managed_bytes(totals.managed);
        books.set_pool_live_bytes(totals.pool_live);
        books.set_array_bytes(totals.array_texels);
        books.set_arrays(totals.array_count);
    }
}

void show_addresses(const ProcessState& state, report::State& out) {
    state.reservations().for_each([&](const Range& range, const Reservation&) {
        report::Reservation& shown = *out.add_reservations();
        shown.set_address(range.begin);
        shown.set_bytes(range.size());
        std::uint64_t mapped = 0;
        state.mappings().for_each_in(range,
                                     [&](const Range& part, const Mapping&) { mapped += part.size(); });
        shown.set_mapped_bytes(mapped);
    });
    state.mappings().for_each([&](const Range& range, const Mapping& mapping) {
        report::Mapping& shown = *out.add_mappings();
        shown.set_address(range.begin);
        shown.set_bytes(range.size());
        shown.set_physical(mapping.physical);
        shown.set_offset(mapping.offset + (range.begin - mapping.begin));
    });
}

void show_physical(const ProcessState& state, report::State& out) {
    state.physical().for_each_numbered([&](PhysicalId number, const Physical& physical) {
        report::PhysicalAllocation& shown = *out.add_physical();
        shown.set_number(number);
        shown.set_bytes(physical.bytes);
        if (physical.on_device) shown.set_ordinal(physical.device);
        shown.set_references(physical.references);
        shown.set_mapped_bytes(physical.mapped_bytes);
        shown.set_imported(physical.imported);
        shown.set_exported(physical.exported);
        shown.set_multicast(physical.multicast);
        shown.set_maybe_gone(physical.maybe_gone);
    });
}

void show_linear(const ProcessState& state, report::State& out) {
    state.linear().for_each([&](const Range& range, const LinearBlock& block) {
        report::LinearAllocation& shown = *out.add_linear();
        shown.set_address(range.begin);
        shown.set_bytes(range.size());
        shown.set_requested_bytes(block.requested);
        if (block.device != kNoDevice) shown.set_ordinal(block.device);
        shown.set_kind(block.kind == Kind::kManagedAcquired ? "managed"
                       : block.kind == Kind::kPitchAcquired ? "pitch"
                                                            : "linear");
    });
}

void show_pools(const ProcessState& state, report::State& out) {
    std::map<ObjectId, report::PoolBooks> pools;
    for (const auto& [id, pool] : state.pools()) {
        report::PoolBooks& shown = pools[id];
        if (pool.device != kNoDevice) shown.set_ordinal(pool.device);
        shown.set_live_bytes(pool.live_bytes);
    }
    state.pending_frees().for_each([&](const Range&, const PendingFree& free) {
        report::PoolBooks& shown = pools[free.pool];
        shown.set_pending_bytes(shown.pending_bytes() + free.requested);
    });
    state.pool_blocks().for_each([&](const Range& range, const PoolBlock& block) {
        report::PoolAllocation& shown = *pools[block.pool].add_allocations();
        shown.set_address(range.begin);
        shown.set_bytes(block.requested);
        shown.set_stream(block.stream.value);
    });
    for (auto& [id, shown] : pools) {
        shown.set_pool(id.value);
        *out.add_pools() = std::move(shown);
    }
}

}  // namespace

void show_books(const ProcessState& state, const Trace& trace, ProcessIndex process, report::State& out) {
    show_devices(state, trace, process, out);
    show_addresses(state, out);
    show_physical(state, out);
    show_linear(state, out);
    show_pools(state, out);
    out.set_host_pinned_bytes(state.host_pinned_bytes());
}

}  // namespace fragscope::analysis
