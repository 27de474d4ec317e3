// cuMemGetHandleForAddressRange. The descriptor is a pipe's end and no dma-buf: no device driver would take it.
#include "ranges.h"

#include <list>

#include "capture.h"
#include "small_heap.h"
#include "vmm.h"
#include "watched_pipe.h"

namespace fragscope::sim {
namespace {

constexpr std::uint64_t kHostPage = 4096;

struct Hold {
    WatchedPipe pipe;
    std::uint64_t address = 0;  // as asked for
    std::uint64_t bytes = 0;
    int device = -1;
    std::uint64_t region = 0;      // base of the linear region whose pages it keeps; 0: of none, or no longer
    std::vector<PageRun> pages;    // of a region that is gone
    std::vector<Handle*> handles;  // of the mappings in the range
};

std::list<Hold>& holds() {
    static auto* const state = new std::list<Hold>;
    return *state;
}

std::uint64_t free_now(int device) { return ledger_open() ? driver().physical.free_bytes_now(device) : 0; }

Hold* find_hold(const Region& region) {
    for (Hold& each : holds()) {
        if (each.region == region.base) return &each;
    }
    return nullptr;
}

void end(Hold& hold) {
    hold.pipe.close();
    std::int64_t charged = 0;
    std::uint64_t free_after = free_now(hold.device);
    if (!hold.pages.empty()) {
        for (const PageRun& run : hold.pages) {
            charged += static_cast<std::int64_t>(run.count * driver().settings.page_size);
        }
        free_after = driver().physical.release(hold.device, hold.pages);
    }
    ledger({"range_close", hold.address, hold.bytes, -charged, hold.device, free_after});
    for (Handle* handle : hold.handles) {
        --handle->mappings;
        settle_handle_locked(*handle);
    }
}

// Mappings of the range, all on one device; false when it is not fully mapped so.
bool collect(Region& region, std::uint64_t address, std::uint64_t bytes, Hold& hold) {
    if (bytes > region.size - (address - region.base)) return false;
    for (std::uint64_t at = address; at < address + bytes;) {
        std::uint64_t start = 0;
        const Mapping* mapping = find_mapping(region, at, start);
        if (mapping == nullptr || mapping->handle->memory->device < 0) return false;
        if (!hold.handles.empty() && mapping->handle->memory->device != hold.device) return false;
        hold.device = mapping->handle->memory->device;
        hold.handles.push_back(mapping->handle);
        at = start + mapping->size;
    }
    return true;
}

}  // namespace

bool range_held_locked(const Region& region) { return find_hold(region) != nullptr; }

void keep_pages_locked(Region& region) {
    Hold* hold = find_hold(region);
    if (hold == nullptr) return;
    hold->pages = std::move(region.pages);
    hold->region = 0;
    region.pages.clear();
}

void poll_ranges_locked() {
    for (auto at = holds().begin(); at != holds().end();) {
        if (at->pipe.open()) {
            ++at;
            continue;
        }
        end(*at);
        at = holds().erase(at);
    }
}

namespace impl {

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
                                       unsigned long long flags) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    if (handle == nullptr || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || size == 0 ||
        dptr % kHostPage != 0 || size % kHostPage != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags == CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE) return CUDA_ERROR_NOT_SUPPORTED;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked guard(driver().lock);
    poll_ranges_locked();
    Region* region = find_region_locked(dptr);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Hold made;
    made.address = dptr;
    made.bytes = size;
    made.device = region->device;
    Hold* hold = nullptr;
    std::uint64_t base = region->base, bytes = region->size;
    switch (region->kind) {
        case Region::Kind::Reservation:
            if (!collect(*region, dptr, size, made)) return CUDA_ERROR_INVALID_VALUE;
            break;
        case Region::Kind::SmallBlock:
            if (!small_find(*region, dptr, base, bytes)) return CUDA_ERROR_INVALID_VALUE;
            [[fallthrough]];
        case Region::Kind::Linear:
            if (size > bytes - (dptr - base)) return CUDA_ERROR_INVALID_VALUE;
            made.region = region->base;
            hold = find_hold(*region);
            break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    const int device = made.device;
    const int fd = (hold != nullptr ? hold : &made)->pipe.hand_out();
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (hold == nullptr) {
        for (Handle* each : made.handles) ++each->mappings;
        holds().push_back(std::move(made));
    }
    *static_cast<int*>(handle) = fd;
    ledger({"range_export", dptr, size, 0, device, free_now(device)});
    return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace fragscope::sim
