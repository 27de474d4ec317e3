#include "small_heap.h"

#include <algorithm>
#include <bit>

#include "ranges.h"

namespace fragscope::sim {
namespace {

unsigned units_of(std::uint64_t bytes) { return static_cast<unsigned>((bytes + kSmallUnit - 1) / kSmallUnit); }

bool used(const SmallBlock& block, unsigned unit) { return ((block.used[unit / 64] >> (unit % 64)) & 1) != 0; }

void mark(SmallBlock& block, unsigned first, unsigned count, bool value) {
    while (count > 0) {
        const unsigned bit = first % 64;
        const unsigned part = std::min(count, 64 - bit);
        const std::uint64_t mask = (part == 64 ? ~std::uint64_t{0} : ((std::uint64_t{1} << part) - 1)) << bit;
        if (value) block.used[first / 64] |= mask;
        else block.used[first / 64] &= ~mask;
        first += part;
        count -= part;
    }
}

// First unit at or after `from` that is used (or free), or kSmallUnits.
unsigned next(const SmallBlock& block, unsigned from, bool wanted_used) {
    while (from < kSmallUnits) {
        const std::uint64_t word = wanted_used ? block.used[from / 64] : ~block.used[from / 64];
        const std::uint64_t rest = word >> (from % 64);
        if (rest != 0) return from + static_cast<unsigned>(std::countr_zero(rest));
        from = (from / 64 + 1) * 64;
    }
    return kSmallUnits;
}

// The first free run of `count` units, or kSmallUnits; `largest` is then the longest run there is.
unsigned find_run(const SmallBlock& block, unsigned count, unsigned& largest) {
    largest = 0;
    for (unsigned at = next(block, 0, false); at < kSmallUnits;) {
        const unsigned end = next(block, at, true);
        if (end - at >= count) return at;
        largest = std::max(largest, end - at);
        at = next(block, end, false);
    }
    return kSmallUnits;
}

std::size_t block_index(const SmallHeap& heap, std::uint64_t base) {
    return static_cast<std::size_t>(std::find(heap.block.begin(), heap.block.end(), base) - heap.block.begin());
}

}  // namespace

CUresult small_allocate_locked(Context& context, std::uint64_t bytes, const char* operation,
                               std::uint64_t& address) {
    SmallHeap& heap = context.heap;
    const unsigned count = units_of(bytes);
    for (std::size_t i = 0; i < heap.block.size(); ++i) {
        if (heap.upper_bound[i] < count) continue;
        Region& region = driver().regions.find(heap.block[i])->second;
        unsigned largest = 0;
        const unsigned at = find_run(*region.small, count, largest);
        if (at == kSmallUnits) {
            heap.upper_bound[i] = static_cast<std::uint16_t>(largest);
            continue;
        }
        mark(*region.small, at, count, true);
        region.small->free_units -= count;
        heap.upper_bound[i] = static_cast<std::uint16_t>(std::min<unsigned>(heap.upper_bound[i],
                                                                            region.small->free_units));
        region.small->requested[at] = static_cast<std::uint32_t>(bytes);
        address = region.base + at * kSmallUnit;
        ledger({operation, address, bytes, 0, region.device,
                ledger_open() ? driver().physical.free_bytes_now(region.device) : 0});
        return CUDA_SUCCESS;
    }
    Region* region = nullptr;
    std::uint64_t free_after = 0;
    const bool contiguous = driver().settings.contiguity != Contiguity::None;
    const CUresult result = make_region_locked(Region::Kind::SmallBlock, context.device, kSmallBlock, true,
                                               contiguous, region, free_after);
    if (result != CUDA_SUCCESS) return result;
    region->context = &context;
    region->small = std::make_unique<SmallBlock>();
    mark(*region->small, 0, count, true);
    region->small->requested[0] = static_cast<std::uint32_t>(bytes);
    region->small->free_units -= count;
    heap.block.push_back(region->base);
    heap.upper_bound.push_back(static_cast<std::uint16_t>(region->small->free_units));
    address = region->base;
    ledger({operation, address, bytes, static_cast<std::int64_t>(region->size), region->device, free_after});
    return CUDA_SUCCESS;
}

bool small_free_locked(Region& region, std::uint64_t address) {
    const std::uint64_t offset = address - region.base;
    SmallBlock& block = *region.small;
    const auto first = static_cast<unsigned>(offset / kSmallUnit);
    if (offset % kSmallUnit != 0 || first >= kSmallUnits || block.requested[first] == 0) return false;
    const std::uint64_t bytes = block.requested[first];
    const unsigned count = units_of(bytes);
    block.requested[first] = 0;
    mark(block, first, count, false);
    block.free_units += count;
    SmallHeap& heap = region.context->heap;
    const std::size_t index = block_index(heap, region.base);
    const int device = region.device;
    if (block.free_units < kSmallUnits) {
        heap.upper_bound[index] = static_cast<std::uint16_t>(block.free_units);
        ledger({"linear_free", address, bytes, 0, device,
                ledger_open() ? driver().physical.free_bytes_now(device) : 0});
        return true;
    }
    heap.block.erase(heap.block.begin() + static_cast<std::ptrdiff_t>(index));
    heap.upper_bound.erase(heap.upper_bound.begin() + static_cast<std::ptrdiff_t>(index));
    const auto size = range_held_locked(region) ? 0 : static_cast<std::int64_t>(region.size);
    const std::uint64_t free_after = drop_region_locked(region);
    ledger({"linear_free", address, bytes, -size, device, free_after});
    return true;
}

bool small_find(const Region& region, std::uint64_t address, std::uint64_t& base, std::uint64_t& bytes) {
    auto unit = static_cast<unsigned>((address - region.base) / kSmallUnit);
    if (unit >= kSmallUnits || !used(*region.small, unit)) return false;
    while (region.small->requested[unit] == 0) --unit;  // every used run begins with its size
    base = region.base + unit * kSmallUnit;
    bytes = region.small->requested[unit];
    return true;
}

void small_free_all_locked(Context& context) {
    while (!context.heap.block.empty()) {
        const std::uint64_t base = context.heap.block.back();
        const std::size_t blocks = context.heap.block.size();
        Region& region = driver().regions.find(base)->second;
        for (unsigned unit = 0; unit < kSmallUnits && context.heap.block.size() == blocks; ++unit) {
            if (region.small->requested[unit] != 0) small_free_locked(region, base + unit * kSmallUnit);
        }
    }
}

}  // namespace fragscope::sim
