// What programs tell the driver about managed memory: prefetches, advice, discards, attachment to streams.
//
// Managed memory is host memory here and stays there: the calls are checked and move nothing.
#include "activity.h"
#include "capture.h"
#include "driver.h"
#include "streams.h"

namespace fragscope::sim {
namespace {

// Work on a stream with the lock; in a capture it is a node of the graph that does nothing.
template <typename Body>
CUresult on_stream(CUstream handle, Body body) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    Locked guard(driver().lock);
    Stream* stream = find_stream_locked(handle, *context);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = body(*stream);
    if (result == CUDA_SUCCESS) ++stream->issued;
    return result;
}

bool is_managed(std::uint64_t address, std::uint64_t bytes) {
    const Region* region = find_region_locked(address);
    return region != nullptr && region->kind == Region::Kind::Managed && bytes != 0 &&
           bytes <= region->size - (address - region->base);
}

CUresult check_location(const CUmemLocation& location) {
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return driver().device_ok(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

// The old calls name the host by CU_DEVICE_CPU.
CUmemLocation location_of(CUdevice device) {
    CUmemLocation location{};
    location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    return location;
}

CUresult prefetch(CUdeviceptr address, std::size_t count, const CUmemLocation& location, unsigned flags,
                  CUstream stream) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult error = check_location(location); error != CUDA_SUCCESS) return error;
    return on_stream(stream, [&](Stream&) {
        if (!is_managed(address, count)) return CUDA_ERROR_INVALID_VALUE;
        note_prefetch_locked(address, count, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1);
        return CUDA_SUCCESS;
    });
}

// "The first entry must always be 0. Also, each entry must be greater than the previous entry and the last entry
// should be less than count."
bool are_starts(const std::size_t* starts, std::size_t number, std::size_t count) {
    if (starts == nullptr || number == 0 || number > count || starts[0] != 0) return false;
    for (std::size_t i = 1; i < number; ++i) {
        if (starts[i] <= starts[i - 1] || starts[i] >= count) return false;
    }
    return true;
}

// A batch over managed ranges, with or without places to prefetch to.
CUresult batch(const CUdeviceptr* addresses, const std::size_t* sizes, std::size_t count, bool places,
               const CUmemLocation* locations, const std::size_t* starts, std::size_t number,
               unsigned long long flags, CUstream stream) {
    // "Must not be legacy NULL stream."
    if (flags != 0 || addresses == nullptr || sizes == nullptr || count == 0 || stream == nullptr ||
        stream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (places) {
        if (locations == nullptr || !are_starts(starts, number, count)) return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t i = 0; i < number; ++i) {
            if (const CUresult error = check_location(locations[i]); error != CUDA_SUCCESS) return error;
        }
    }
    return on_stream(stream, [&](Stream&) {
        for (std::size_t i = 0; i < count; ++i) {
            if (!is_managed(addresses[i], sizes[i])) return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
    });
}

CUresult advise(CUdeviceptr address, std::size_t count, CUmem_advise advice, const CUmemLocation& location) {
    Context* context = nullptr;
    if (const CUresult error = require_context(context); error != CUDA_SUCCESS) return error;
    switch (advice) {
        case CU_MEM_ADVISE_SET_READ_MOSTLY:
        case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: break;  // the location is ignored
        case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        case CU_MEM_ADVISE_SET_ACCESSED_BY:
        case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
            if (const CUresult error = check_location(location); error != CUDA_SUCCESS) return error;
            break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    Locked guard(driver().lock);
    return is_managed(address, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace impl {

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    return prefetch(devPtr, count, location_of(dstDevice), 0, hStream);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream) {
    return prefetch(devPtr, count, location, flags, hStream);
}
CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return advise(devPtr, count, advice, location_of(device));
}
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
    return advise(devPtr, count, advice, location);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,
                                 size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
    return batch(dptrs, sizes, count, true, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags,
                                CUstream hStream) {
    return batch(dptrs, sizes, count, false, nullptr, nullptr, 0, flags, hStream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags, CUstream hStream) {
    return batch(dptrs, sizes, count, true, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // "It is illegal to attach singly to the NULL stream."
    if (flags == CU_MEM_ATTACH_SINGLE && hStream == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return on_stream(hStream, [&](Stream&) {
        const Region* region = find_region_locked(dptr);
        // "length must be either zero or the entire allocation's size."
        const bool whole = region != nullptr && region->kind == Region::Kind::Managed && region->base == dptr &&
                           (length == 0 || length == region->requested);
        return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // namespace impl
}  // namespace fragscope::sim
