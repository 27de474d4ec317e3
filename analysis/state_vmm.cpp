// Virtual memory management: reservations, physical allocations and their handles, mappings, access.
#include <algorithm>
#include <utility>

#include "analysis/state.h"

namespace fragscope::analysis {

using wire::Kind;

void ProcessState::reserve(const Event& event) {
    const Range range = range_of(event.address.value, event.bytes.value);
    if (reservations_.overlaps(range)) {
        ++contradictions_.overlapping_acquisitions;
        reservations_.cut(range, [](const auto&) {});
    }
    reservations_.insert(range, {event.stack});
    ever_reserved_.add(range);
}

void ProcessState::free_reservation(const Event& event) {
    bool found = false;
    reservations_.cut(range_of(event.address.value, event.bytes.value), [&](const auto&) { found = true; });
    if (!found) ++contradictions_.unknown_releases;
}

void ProcessState::add_handle(const Event& event) {
    Physical made;
    made.bytes = event.bytes.value;
    made.imported = event.kind == Kind::kHandleImported;
    made.multicast = event.kind == Kind::kMulticastCreated;
    made.on_device =
        event.kind == Kind::kHandleCreated && wire::location_type(event.extra) == kLocationDevice;
    made.device = made.on_device ? wire::location_id(event.extra) : kNoDevice;
    made.references = 1;
    made.stack = event.stack;
    if (made.on_device) {
        totals_[made.device].handles += made.bytes;
        std::uint64_t& largest = largest_created_[made.device];
        largest = std::max(largest, made.bytes);
    }
    if (made.imported) ++imported_handles_;
    if (handles_.find(event.object) != nullptr) {
        // The driver gives no live handle value twice: the release of the older one is missing.
        ++contradictions_.overlapping_acquisitions;
        while (release_handle(event.object)) {
        }
    }
    handles_.add(event.object, physical_.add(std::move(made)));
}

Physical* ProcessState::physical_of(ObjectId handle) {
    const HandleTable::Named* named = handles_.find(handle);
    return named == nullptr ? nullptr : physical_.find(named->physical);
}

void ProcessState::retain(const Event& event) {
    PhysicalId id = 0;
    HandleTable::Named* named = handles_.find(event.object);
    if (const auto mapping = mappings_.find(event.address.value)) {
        id = mapping->value.physical;
    } else if (named != nullptr) {
        id = named->physical;
    }
    Physical* physical = physical_.find(id);
    if (physical == nullptr) {
        ++contradictions_.unknown_handles;
        return;
    }
    if (named != nullptr && named->physical != id) {
        // The value stood for something else until now: its releases are missing.
        ++contradictions_.overlapping_acquisitions;
        while (release_handle(event.object)) {
        }
        named = nullptr;
    }
    ++physical->references;
    if (named != nullptr) {
        ++named->count;
    } else {
        handles_.add(event.object, id);
    }
}

// One reference less; false if the handle is not known.
bool ProcessState::release_handle(ObjectId handle) {
    HandleTable::Named* named = handles_.find(handle);
    if (named == nullptr) return false;
    const PhysicalId id = named->physical;
    if (named->count == 1) {
        handles_.erase(handle);
    } else {
        --named->count;
    }
    if (Physical* physical = physical_.find(id)) {
        if (physical->references > 0) --physical->references;
        drop_if_unused(id, *physical);
    }
    return true;
}

void ProcessState::drop_if_unused(PhysicalId id, Physical& physical) {
    if (physical.references != 0 || physical.mapped_bytes != 0 || physical.arrays != 0) return;
    if (physical.on_device) {
        DeviceTotals& totals = totals_[physical.device];
        if (!physical.maybe_gone) {
            totals.handles -= physical.bytes;
            if (physical.exported) totals.may_outlive += physical.bytes;
            if (physical.maybe_held != 0) totals.handles_maybe += physical.bytes;
        } else if (physical.maybe_held == 0) {
            totals.handles_maybe -= physical.bytes;
        }
    }
    if (!physical.maybe_gone && physical.imported) --imported_handles_;
    if (!physical.maybe_gone && physical.exported && !physical.imported) --exported_handles_;
    physical.maybe_gone = true;
    if (physical.maybe_held != 0) return;
    physical_.erase(id);
    const auto bound = bound_to_multicast_.find(id);
    if (bound == bound_to_multicast_.end()) return;
    const std::vector<PhysicalId> members = std::move(bound->second);
    bound_to_multicast_.erase(bound);
    for (const PhysicalId member : members) {
        Physical* held = physical_.find(member);
        if (held == nullptr) continue;
        --held->maybe_held;
        drop_if_unused(member, *held);
    }
}

void ProcessState::map(const Event& event) {
    const HandleTable::Named* named = handles_.find(event.object);
    if (named == nullptr) {
        ++contradictions_.unknown_handles;
        return;
    }
    const PhysicalId id = named->physical;
    const Range range = range_of(event.address.value, event.bytes.value);
    Physical* physical = physical_.find(id);
    if (physical == nullptr) return;
    const Mapping mapping{id, range.begin, event.extra, event.stack};
    if (!mappings_.insert(range, mapping)) {
        if (!mappings_.overlaps(range)) return;
        ++contradictions_.overlapping_acquisitions;
        unmap(event);
        // It may have gone with what was there.
        physical = physical_.find(id);
        if (physical == nullptr || !mappings_.insert(range, mapping)) return;
    }
    physical->mapped_bytes += range.size();
    physical->was_mapped = true;
    if (physical->on_device) totals_[physical->device].mapped += range.size();
}

void ProcessState::unmap(const Event& event) {
    const Range range = range_of(event.address.value, event.bytes.value);
    bool found = false;
    mappings_.cut(range, [&](const auto& part) {
        found = true;
        Physical* physical = physical_.find(part.value.physical);
        if (physical == nullptr) return;
        physical->mapped_bytes -= part.removed.size();
        if (physical->on_device) totals_[physical->device].mapped -= part.removed.size();
        drop_if_unused(part.value.physical, *physical);
    });
    if (!found) ++contradictions_.unknown_releases;
    for (auto& [location, access] : access_) access.cut(range, [](const auto&) {});
}

void ProcessState::set_access(const Event& event) {
    const Range range = range_of(event.address.value, event.bytes.value);
    auto& access = access_[event.object.value];
    access.cut(range, [](const auto&) {});
    access.insert(range, event.extra);
}

void ProcessState::export_physical(Physical& physical) {
    if (!physical.exported && !physical.imported) ++exported_handles_;
    physical.exported = true;
    ++physical.exports;
}

// Whatever lies there may live on in another process when this one has released it.
void ProcessState::export_range(const Range& range) {
    if (const auto block = linear_.find(range.begin)) {
        if (LinearBlock* found = linear_.value_at(block->range.begin)) found->exported = true;
    }
    mappings_.for_each_in(range, [&](const Range&, const Mapping& mapping) {
        if (Physical* physical = physical_.find(mapping.physical)) export_physical(*physical);
    });
}

// Whether a multicast object keeps the memory that is bound to it alive is not documented.
void ProcessState::bind_multicast(const Event& event) {
    const HandleTable::Named* object = handles_.find(event.object);
    const HandleTable::Named* memory = handles_.find({event.extra});
    const auto mapping = mappings_.find(event.extra);
    const PhysicalId id = memory != nullptr ? memory->physical : mapping ? mapping->value.physical : 0;
    Physical* physical = physical_.find(id);
    if (object == nullptr || physical == nullptr || physical->multicast) return;
    auto& members = bound_to_multicast_[object->physical];
    if (std::find(members.begin(), members.end(), id) != members.end()) return;
    members.push_back(id);
    ++physical->maybe_held;
}

void ProcessState::touch(const Event& event) {
    const Range written = range_of(event.address.value, event.bytes.value);
    mappings_.for_each_in(written, [&](const Range& range, const Mapping& mapping) {
        const std::uint64_t begin = std::max(range.begin, written.begin);
        const std::uint64_t end = std::min(range.end, written.end);
        Physical* physical = physical_.find(mapping.physical);
        if (physical == nullptr) return;
        physical->touched.add(range_of(begin - mapping.begin + mapping.offset, end - begin));
        touched_mapped_memory_ = true;
    });
}

}  // namespace fragscope::analysis
