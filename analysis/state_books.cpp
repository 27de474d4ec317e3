#include "analysis/state_books.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "analysis/session.h"
#include "analysis/situation.h"

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

// CU_MEM_ACCESS_FLAGS_PROT_… of cuda.h.
const char* rights_in_words(std::uint64_t protection) {
    switch (protection) {
        case 0:
            return "none";
        case 1:
            return "read";
        case 3:
            return "read and write";
        default:
            return "of a kind that is not known";
    }
}

// The location of each grant, with the bytes that it covers: grants may cover a mapping in parts.
void show_access(const ProcessState& state, const Range& range, report::Mapping& out) {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> bytes;
    state.for_each_access(range, [&](std::uint64_t location, const Range& part, std::uint64_t protection) {
        bytes[{location, protection}] += part.size();
    });
    for (const auto& [grant, covered] : bytes) {
        report::Access& shown = *out.add_access();
        if (wire::location_type(grant.first) == kLocationDevice)
            shown.set_ordinal(wire::location_id(grant.first));
        shown.set_location(location_in_words(grant.first));
        shown.set_rights(rights_in_words(grant.second));
        shown.set_bytes(covered);
    }
}

void show_addresses(const ProcessState& state, report::State& out) {
    state.reservations().for_each([&](const Range& range, const Reservation&) {
        report::Reservation& shown = *out.add_reservations();
        shown.set_address(range.begin);
        shown.set_bytes(range.size());
        std::uint64_t mapped = 0;
        state.mappings().for_each_in(range, [&](const Range& part, const Mapping&) {
            mapped += std::min(part.end, range.end) - std::max(part.begin, range.begin);
        });
        shown.set_mapped_bytes(mapped);
    });
    state.mappings().for_each([&](const Range& range, const Mapping& mapping) {
        report::Mapping& shown = *out.add_mappings();
        shown.set_address(range.begin);
        shown.set_bytes(range.size());
        shown.set_physical(mapping.physical);
        shown.set_offset(mapping.offset + (range.begin - mapping.begin));
        show_access(state, range, shown);
    });
}

void show_physical(const ProcessState& state, report::State& out) {
    std::map<PhysicalId, std::map<std::uint64_t, std::uint32_t>> names;
    state.handles().for_each(
        [&](const HandleTable::Named& named) { names[named.physical][named.handle.value] = named.count; });
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
        shown.set_exports(physical.exports);
        shown.set_arrays(physical.arrays);
        shown.set_written_bytes(physical.touched.sum());
        for (const auto& [handle, references] : names[number]) {
            report::Handle& name = *shown.add_handles();
            name.set_handle(handle);
            name.set_references(references);
        }
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
        shown.set_context(block.context.value);
        shown.set_exported(block.exported);
    });
}

void show_host(const ProcessState& state, report::State& out) {
    for (const auto& [address, block] : state.host()) {
        report::HostAllocation& shown = *out.add_host();
        shown.set_address(address);
        shown.set_bytes(block.bytes);
        shown.set_registered(block.registered);
        shown.set_context(block.context.value);
    }
    out.set_host_pinned_bytes(state.host_pinned_bytes());
}

void show_arrays(const ProcessState& state, report::State& out) {
    std::map<ObjectId, const Array*> by_handle;
    for (const auto& [handle, array] : state.arrays().all()) by_handle[handle] = &array;
    for (const auto& [handle, array] : by_handle) {
        report::ArrayAllocation& shown = *out.add_arrays();
        shown.set_array(handle.value);
        if (array->device != kNoDevice) shown.set_ordinal(array->device);
        shown.set_texel_bytes(array->texel_bytes);
        shown.set_owns_memory(array->owns_memory);
        for (const PhysicalId number : array->behind) shown.add_behind(number);
    }
}

const char* foreign_in_words(ForeignKind kind) {
    switch (kind) {
        case ForeignKind::kIpc:
            return "ipc";
        case ForeignKind::kPoolPointer:
            return "pool pointer";
        case ForeignKind::kExternal:
            return "external";
        case ForeignKind::kGraphics:
            return "graphics";
    }
    return "";
}

void show_foreign(const ProcessState& state, report::State& out) {
    for (const auto& [address, foreign] : state.foreign().addresses()) {
        report::ForeignAllocation& shown = *out.add_foreign();
        shown.set_address(address);
        shown.set_bytes(foreign.bytes);
        shown.set_kind(foreign_in_words(foreign.kind));
        shown.set_references(foreign.references);
        if (foreign.device != kNoDevice) shown.set_ordinal(foreign.device);
    }
}

void show_pools(const ProcessState& state, report::State& out) {
    std::map<ObjectId, report::PoolBooks> pools;
    for (const auto& [id, pool] : state.pools()) {
        report::PoolBooks& shown = pools[id];
        if (pool.device != kNoDevice) shown.set_ordinal(pool.device);
        shown.set_live_bytes(pool.live_bytes);
        shown.set_imported(pool.imported);
        shown.set_exported(pool.exported);
        shown.set_destroyed(pool.destroyed);
        if (pool.maximum) shown.set_maximum_bytes(*pool.maximum);
        if (pool.threshold) shown.set_threshold_bytes(*pool.threshold);
        if (!pool.said) continue;
        shown.set_said_sequence(pool.said->sequence.value);
        shown.set_said_used_bytes(pool.said->used);
        shown.set_said_reserved_bytes(pool.said->reserved);
        shown.set_said_cached_bytes(pool.said->reserved - std::min(pool.said->used, pool.said->reserved));
    }
    state.pending_frees().for_each([&](const Range& range, const PendingFree& free) {
        report::PoolBooks& shown = pools[free.pool];
        shown.set_pending_bytes(shown.pending_bytes() + free.requested);
        report::PoolAllocation& waiting = *shown.add_pending();
        waiting.set_address(range.begin);
        waiting.set_bytes(free.requested);
        waiting.set_stream(free.stream.value);
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

void add_importer(google::protobuf::RepeatedPtrField<report::Importer>& out, ProcessIndex process,
                  bool certain, bool still, std::uint64_t since_ns) {
    report::Importer& shown = *out.Add();
    shown.set_process(process.value);
    shown.set_certain(certain);
    shown.set_still(still);
    shown.set_since_ns(since_ns);
}

}  // namespace

void show_sharing(const Sharing& sharing, const Trace& trace, ProcessIndex process, std::uint64_t clock_ns,
                  report::State& out) {
    if (!sharing.used()) return;
    std::map<std::uint64_t, report::LinearAllocation*> linear;
    for (report::LinearAllocation& one : *out.mutable_linear()) linear[one.address()] = &one;
    std::map<std::uint64_t, report::ForeignAllocation*> foreign;
    for (report::ForeignAllocation& one : *out.mutable_foreign()) foreign[one.address()] = &one;
    for (const SharedMemory& memory : sharing.memory()) {
        const auto exported = linear.find(memory.range.begin);
        const bool own = memory.exporter == process && exported != linear.end() && memory.held.at(clock_ns);
        for (const SharedImport& import : memory.imports) {
            if (import.held.from_ns > clock_ns) continue;
            if (own) {
                add_importer(*exported->second->mutable_importers(), import.process, true,
                             import.held.at(clock_ns), since_start(trace, {import.held.from_ns}));
            }
            const auto opened = foreign.find(import.address);
            if (import.process == process && opened != foreign.end() && import.held.at(clock_ns))
                opened->second->set_exporter(memory.exporter.value);
        }
    }
    const std::vector<Held>& exports = sharing.handles(process).exported;
    for (report::PhysicalAllocation& physical : *out.mutable_physical()) {
        if (!physical.exported() || physical.imported() || exports.empty()) continue;
        for (std::uint32_t other = 0; other < trace.events.size(); ++other) {
            if (other == process.value) continue;
            std::optional<std::uint64_t> since;
            bool still = false;
            for (const Held& held : sharing.handles({other}).imported) {
                if (held.from_ns > clock_ns || (held.until_ns && *held.until_ns < exports.front().from_ns))
                    continue;
                if (!since) since = held.from_ns;
                still = still || held.at(clock_ns);
            }
            if (since)
                add_importer(*physical.mutable_importers(), {other}, false, still,
                             since_start(trace, {*since}));
        }
    }
}

std::string location_in_words(std::uint64_t packed) {
    // CU_MEM_LOCATION_TYPE_… of cuda.h.
    const int id = wire::location_id(packed);
    switch (wire::location_type(packed)) {
        case kLocationDevice:
            return fmt::format("device {}", id);
        case 2:
            return "host";
        case 3:
            return fmt::format("host NUMA node {}", id);
        case 4:
            return "the host NUMA node of the calling thread";
        default:
            return fmt::format("a location of type {}", wire::location_type(packed));
    }
}

void show_books(const ProcessState& state, const Trace& trace, ProcessIndex process, report::State& out) {
    show_devices(state, trace, process, out);
    show_addresses(state, out);
    show_physical(state, out);
    show_linear(state, out);
    show_arrays(state, out);
    show_pools(state, out);
    show_host(state, out);
    show_foreign(state, out);
}

}  // namespace fragscope::analysis
