#include "driver.h"

#include "linear.h"
#include "ranges.h"
#include "small_heap.h"
#include "vmm.h"

namespace fragscope::sim {

Driver* g_driver = nullptr;

Region::Region() = default;
Region::Region(Region&&) noexcept = default;
Region::~Region() = default;

Region* find_region_locked(std::uint64_t address) {
    auto& regions = driver().regions;
    auto at = regions.upper_bound(address);
    if (at == regions.begin()) return nullptr;
    --at;
    return address - at->first < at->second.size ? &at->second : nullptr;
}

bool take_pages_locked(int device, std::uint64_t pages, bool contiguous, std::vector<PageRun>& runs,
                       std::uint64_t& free_after) {
    Physical& physical = driver().physical;
    if (physical.allocate(device, pages, contiguous, runs, free_after)) return true;
    poll_exports_locked();
    return physical.allocate(device, pages, contiguous, runs, free_after);
}

CUresult make_region_locked(Region::Kind kind, int device, std::uint64_t bytes, bool charge, bool contiguous,
                            Region*& region, std::uint64_t& free_after) {
    Driver& d = driver();
    const std::uint64_t page = d.settings.page_size;
    const std::uint64_t pages = d.pages_for(bytes);
    if (pages > d.settings.va_bytes / page) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto base = d.addresses.take(pages * page, page);
    if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
    Region made;
    made.kind = kind;
    made.base = *base;
    made.size = pages * page;
    made.requested = bytes;
    made.device = device;
    made.id = d.next_id++;
    free_after = d.physical.free_bytes_now(device);
    if (charge && !take_pages_locked(device, pages, contiguous, made.pages, free_after)) {
        d.addresses.add(*base, pages * page);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    region = &d.regions.emplace(*base, std::move(made)).first->second;
    return CUDA_SUCCESS;
}

std::uint64_t drop_region_locked(Region& region) {
    Driver& d = driver();
    std::uint64_t free_after = 0;
    keep_pages_locked(region);
    if (!region.pages.empty()) {
        free_after = d.physical.release(region.device, region.pages);
    } else if (region.device >= 0) {
        free_after = d.physical.free_bytes_now(region.device);
    }
    if (region.offered != 0) d.physical.withdraw(region.offered);
    d.addresses.add(region.base, region.size);
    d.regions.erase(region.base);
    return free_after;
}

}  // namespace fragscope::sim

// What the management library asks in the same process about devices that no other process has a part in: bytes that
// are free on `device`. False: the driver is not initialised, or there is no such device.
extern "C" [[gnu::visibility("default")]] bool fragscope_sim_free_bytes(int device, unsigned long long* bytes) {
    using fragscope::sim::g_driver;
    if (g_driver == nullptr || !g_driver->device_ok(device)) return false;
    *bytes = g_driver->physical.free_bytes_now(device);
    return true;
}
