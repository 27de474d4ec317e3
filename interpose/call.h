// One intercepted call that has returned, and what a row of hooks.def can say about it. Arguments that the
// driver filled in are read only when it succeeded; a failed call is recorded with what was asked for.
// The members are in hot.h (inlined into wrappers) and events.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/emit.h"
#include "interpose/rows.h"
#include "interpose/state.h"
#include "proto/wire.h"

namespace fragscope::interpose {

class Call {
  public:
    Call(HookId id, CUresult result, std::uint64_t sequence, std::uint64_t start, std::uint32_t duration,
         const void* caller)
        : id_(id),
          result_(result),
          sequence_(sequence),
          start_(start),
          duration_(duration),
          caller_(caller) {}

    // The variant whose stream 0 is the calling thread's own.
    Call& per_thread() {
        flags_ |= wire::kPerThreadStream;
        return *this;
    }

    void initialized();
    void called();
    void looked_up(void** function);

    template <typename Pointer>
    void acquired(Kind kind, const Pointer* out, std::size_t bytes, unsigned flags = 0) {
        acquired_at(kind, succeeded() && out != nullptr ? number_of(*out) : 0, bytes, flags);
    }
    void pitch_acquired(const CUdeviceptr* out, const std::size_t* pitch, std::size_t width,
                        std::size_t height);
    template <typename Pointer>
    void released(Kind kind, Pointer address) {
        released_at(kind, number_of(address));
    }

    void reserved(const CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted);
    void range_released(Kind kind, CUdeviceptr address, std::size_t bytes);
    void handle_created(const CUmemGenericAllocationHandle* out, std::size_t bytes,
                        const CUmemAllocationProp* properties);
    void handle_event(Kind kind, CUmemGenericAllocationHandle handle, std::uint64_t type = 0);
    void handle_retained(const CUmemGenericAllocationHandle* out, const void* address);
    void handle_imported(const CUmemGenericAllocationHandle* out, CUmemAllocationHandleType type);
    void mapped(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                CUmemGenericAllocationHandle handle);
    void access_set(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptors,
                    std::size_t count);

    void pool_acquired(const CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream stream);
    void pool_released(CUdeviceptr address, CUstream stream);
    void pool_created(const CUmemoryPool* out, const CUmemPoolProps* properties);
    void pool_event(Kind kind, CUmemoryPool pool, std::size_t bytes = 0);
    void pool_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute, const void* value);
    void pool_seen(const CUmemoryPool* out);
    void pool_bound(CUdevice device, CUmemoryPool pool);
    void pool_bound(const CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool);

    void context_created(const CUcontext* out, unsigned flags, CUdevice device);
    void context_destroyed(CUcontext context);
    void context_current(CUcontext context);
    void primary_retained(const CUcontext* out, CUdevice device);
    void primary_event(Kind kind, CUdevice device);

    void device_memory(const std::size_t* free_bytes, const std::size_t* total_bytes);
    void context_synchronized();
    void context_synchronized(CUcontext context);
    void synchronized(CUstream stream);
    void capture_begun();
    void capture_ended();

    void touched(CUdeviceptr address, std::size_t bytes);
    void opaque_write();
    void launched();

  protected:
    friend class HotCall;
    bool succeeded() const { return result_ == CUDA_SUCCESS; }
    static std::uint64_t number_of(std::uint64_t value) { return value; }
    static std::uint64_t number_of(const void* value) { return reinterpret_cast<std::uint64_t>(value); }

    void acquired_at(Kind kind, std::uint64_t address, std::size_t bytes, unsigned flags);
    void released_at(Kind kind, std::uint64_t address);
    // Fills in `device`, the context and the flags that say what is not known; sends a first look at a new
    // context.
    Place place();
    Place place_of_stream(CUstream stream);
    std::uint64_t pool_of_device(std::uint8_t device);
    void first_look();
    void number_now();
    void at_device(std::uint8_t device);
    void mark_capture(CUstream stream);
    void record(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                std::uint64_t extra);
    Call in_memory() const;
    void find_stack(Kind kind, std::uint64_t bytes);
    // With a ring, a name or a slot to be had first.
    void record_slowly(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                       std::uint64_t extra) const;
    void fill(wire::Record& slot, Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
              std::uint64_t extra) const;
    void unplaced_inline(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                         std::uint64_t extra);
    void record_inline(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                       std::uint64_t extra);
    // After a record of a call that failed for want of memory: what the driver says of the device and the
    // pools.
    void explain_failure();

    HookId id_;
    CUresult result_;
    std::uint64_t sequence_;
    std::uint64_t start_;
    std::uint32_t duration_;
    std::uint16_t flags_ = 0;
    std::uint8_t device_ = wire::kDeviceUnknown;
    const void* caller_;
    std::uint32_t stack_ = 0;
};

// The shim's own question after cuMemGetInfo_v2 of the current context; sends nothing while a capture is
// running.
void sample_device_memory(Place place, std::uint16_t flags, HookId function);
// What the driver says of memory after call number `sequence` failed: device, then pools, then the end mark.
void failure_snapshot(HookId function, std::uint64_t sequence);

}  // namespace fragscope::interpose
