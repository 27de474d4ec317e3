// Blocks that have an address and no handle: linear, pitched, managed and page-locked memory; what a release
// of an address may mean; and contexts, which take what they own with them.
#include <algorithm>

#include "analysis/state.h"

namespace fragscope::analysis {

using wire::Kind;

void ProcessState::acquire_linear(const Event& event) {
    LinearBlock block;
    block.kind = event.kind;
    block.requested = event.bytes.value;
    block.granted = event.kind == Kind::kPitchAcquired && event.extra > event.bytes.value ? event.extra
                                                                                          : event.bytes.value;
    block.device = event.device;
    block.context = event.object;
    block.stack = event.stack;
    const Range range = range_of(event.address.value, block.granted);
    if (!linear_.insert(range, block)) {
        forget_linear_at(range);
        if (!linear_.insert(range, block)) return forget_others_at(range);
    }
    forget_others_at(range);
    book_linear(range, block);
}

void ProcessState::book_linear(const Range& range, const LinearBlock& block) {
    DeviceTotals& totals = totals_[block.device];
    if (block.kind == Kind::kManagedAcquired) {
        totals.managed += block.granted;
        return;
    }
    totals.linear_requested += block.requested;
    totals.linear_granted += block.granted;
    const std::uint64_t page = this->page(block.device);
    if (block.granted > kPackedUpTo) {
        totals.large_rounded += round_up(block.granted, page);
        return;
    }
    auto& pages = small_pages_[block.device];
    for (std::uint64_t at = units_in(range.begin, page); at <= units_in(range.end - 1, page); ++at) {
        if (pages.add(at) == 1) ++totals.small_pages;
    }
}

// The books drop a block that was removed from linear_.
void ProcessState::forget_linear(const Range& range, const LinearBlock& block) {
    DeviceTotals& totals = totals_[block.device];
    if (block.kind == Kind::kManagedAcquired) {
        totals.managed -= block.granted;
        return;
    }
    totals.linear_requested -= block.requested;
    totals.linear_granted -= block.granted;
    if (block.exported) {
        totals.may_outlive += block.granted;
        ipc_exports_.freed(range.begin);
    }
    const std::uint64_t page = this->page(block.device);
    if (block.granted > kPackedUpTo) {
        totals.large_rounded -= round_up(block.granted, page);
        return;
    }
    auto& pages = small_pages_[block.device];
    for (std::uint64_t at = units_in(range.begin, page); at <= units_in(range.end - 1, page); ++at) {
        if (pages.remove(at) == 0) --totals.small_pages;
    }
}

// An acquisition at an address that is not free: whatever was there has been released without a record.
void ProcessState::forget_linear_at(const Range& range) {
    if (!linear_.overlaps(range)) return;
    ++contradictions_.overlapping_acquisitions;
    linear_.drop_overlapping(range,
                             [&](const Range& at, const LinearBlock& gone) { forget_linear(at, gone); });
}
void ProcessState::forget_others_at(const Range& range) {
    if (pool_blocks_.overlaps(range)) {
        ++contradictions_.overlapping_acquisitions;
        pool_blocks_.drop_overlapping(
            range, [&](const Range& at, const PoolBlock& gone) { release_to_pool(at, gone, nullptr); });
    }
    if (foreign_.forget(range.begin)) ++contradictions_.overlapping_acquisitions;
    graphs_.forget(range.begin);
}

bool ProcessState::release_block(const Event& event) {
    if (auto block = linear_.take(event.address.value)) {
        forget_linear(block->range, block->value);
        return true;
    }
    if (auto block = pool_blocks_.take(event.address.value)) {
        release_to_pool(block->range, block->value, event.kind == Kind::kPoolReleased ? &event : nullptr);
        return true;
    }
    return false;
}

void ProcessState::release_address(const Event& event) {
    if (event.address.value == 0) {
        ++empty_releases_.of_null;
    } else if (release_block(event)) {
        return;
    } else if (foreign_.release(event.address.value)) {
        ++empty_releases_.of_foreign;
    } else if (graphs_.owns(event.address.value)) {
        ++empty_releases_.of_graphs;
    } else if (!event.has(wire::kCaptureUnknown)) {
        ++contradictions_.unknown_releases;
    }
}

void ProcessState::acquire_host(const Event& event) {
    const HostBlock block{event.bytes.value, event.kind == Kind::kHostRegistered, event.object};
    const auto [at, fresh] = host_.try_emplace(event.address.value, block);
    if (!fresh) {
        ++contradictions_.overlapping_acquisitions;
        host_bytes_ -= at->second.bytes;
        at->second = block;
    }
    host_bytes_ += block.bytes;
}

void ProcessState::release_host(const Event& event) {
    const auto found = host_.find(event.address.value);
    if (found != host_.end()) {
        host_bytes_ -= found->second.bytes;
        host_.erase(found);
    } else if (event.address.value == 0) {
        ++empty_releases_.of_null;
    } else {
        ++contradictions_.unknown_releases;
    }
}

void ProcessState::died(int device, std::uint32_t stack, std::uint64_t bytes) {
    DiedWithContext& sum = died_with_contexts_[{device, stack}];
    ++sum.count;
    sum.bytes += bytes;
}

template <typename Owned>
void ProcessState::free_owned(Owned&& owned) {
    linear_.drop_if(
        [&](const Range&, const LinearBlock& block) { return owned(block.context, block.device); },
        [&](const Range& range, const LinearBlock& gone) {
            died(gone.device, gone.stack, gone.requested);
            forget_linear(range, gone);
        });
    for (auto at = host_.begin(); at != host_.end();) {
        if (!at->second.registered && owned(at->second.context, kNoDevice)) {
            died(kNoDevice, 0, at->second.bytes);
            host_bytes_ -= at->second.bytes;
            at = host_.erase(at);
        } else {
            ++at;
        }
    }
    for (const Array& array :
         arrays_.take_if([&](const Array& each) { return owned(each.context, each.device); })) {
        if (array.owns_memory) died(array.device, array.stack, array.texel_bytes);
        forget_array(array);
    }
    std::erase_if(modules_, [&](const auto& module) {
        return module.second.value != 0 && owned(module.second, kNoDevice);
    });
}

// Takes the context's linear, pitched, managed and page-locked memory, its arrays and modules with it;
// neither VMM handles nor pools.
void ProcessState::destroy_context(ObjectId context) {
    if (context.value != 0) free_owned([&](ObjectId owner, int) { return owner == context; });
    created_contexts_.erase(context);
}

void ProcessState::release_primary(const Event& event) {
    const auto found = primary_.find(event.device);
    if (found != primary_.end() && found->second.retained > 0 && --found->second.retained == 0)
        destroy_context(found->second.context);
}

void ProcessState::reset_device(int device) {
    const auto found = primary_.find(device);
    const ObjectId primary = found == primary_.end() ? ObjectId{} : found->second.context;
    free_owned([&](ObjectId owner, int on) {
        if (primary.value != 0 && owner == primary) return true;
        return primary.value == 0 && on == device && !created_contexts_.contains(owner);
    });
}

}  // namespace fragscope::analysis
