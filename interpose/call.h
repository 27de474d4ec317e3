// One intercepted call that has returned, and what a row of hooks.def can say about it. Arguments that the
// driver filled in are read only when it succeeded; a failed call is recorded with what was asked for.
// The members are in hot.h (inlined into wrappers) and, by family as the rows are, in events*.cpp. Lists that
// the program passes are read only when the driver accepted them: nothing else says that their lengths are
// true.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/emit.h"
#include "interpose/rows.h"
#include "interpose/state.h"
#include "proto/wire.h"

namespace fragscope::interpose {

using wire::Advice;

// A list of extents as the batch functions take it, with where they should lie: location `j` is of the
// extents from indices[j] on, up to indices[j + 1].
struct Extents {
    const CUdeviceptr* addresses = nullptr;
    const std::size_t* sizes = nullptr;
    std::size_t count = 0;
    const CUmemLocation* locations = nullptr;
    const std::size_t* indices = nullptr;
    std::size_t location_count = 0;
};
// Of the functions that name the host by a device number.
CUmemLocation location_of(CUdevice device);
// Records of one call about a list, at most; what was left out is counted among the lost ones.
inline constexpr std::size_t kMaxParts = 256;

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

    // After the event of a call that failed, if it did so for want of memory: what the driver says of the devices and the
    // pools. A call that has no record gets one.
    void explain_failure();

    void initialized();
    void called();
    // A call that says nothing of memory: noted where the session wants all calls, or if it failed for want
    // of memory.
    void asked();
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
    void context_attached(const CUcontext* out);
    void context_detached(CUcontext context);
    void context_destroyed(CUcontext context);
    void context_current(CUcontext context);
    void primary_retained(const CUcontext* out, CUdevice device);
    void primary_event(Kind kind, CUdevice device);

    void device_memory(const std::size_t* free_bytes, const std::size_t* total_bytes);
    void context_synchronized();
    void context_synchronized(CUcontext context);
    void synchronized(CUstream stream);
    void capture_begun(CUstream stream);
    void capture_ended(CUstream stream);

    // Arrays. Superseded descriptors have narrower fields.
    void array_created(const CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* wanted);
    void array_created(const CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* wanted);
    void array_created(const CUarray* out, const CUDA_ARRAY_DESCRIPTOR* wanted);
    void array_created(const CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted);
    void array_created(const CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned levels);
    template <typename Array>
    void array_aliased(const void* owner, const Array* out) {
        array_aliased_at(number_of(owner), succeeded() && out != nullptr ? number_of(*out) : 0);
    }
    void array_mapped(const CUarrayMapInfo* parts, unsigned count, CUstream stream);
    void object_released(Kind kind, const void* object);

    // Sharing.
    void ipc_exported(const CUipcMemHandle* out, CUdeviceptr address);
    void ipc_opened(const CUdeviceptr* out, const CUipcMemHandle& handle);
    void range_exported(CUdeviceptr address, std::size_t bytes, CUmemRangeHandleType type);
    void pool_exported(CUmemoryPool pool, CUmemAllocationHandleType type);
    void pool_imported(const CUmemoryPool* out, CUmemAllocationHandleType type);
    void pool_pointer_exported(const CUmemPoolPtrExportData* out, CUdeviceptr address);
    void pool_pointer_imported(const CUdeviceptr* out, CUmemoryPool pool,
                               const CUmemPoolPtrExportData* shared);
    void pool_access_set(CUmemoryPool pool, const CUmemAccessDesc* descriptors, std::size_t count);
    void external_imported(const CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* wanted);
    void external_mapped(const CUdeviceptr* out, CUexternalMemory external,
                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* wanted);
    void graphics_mapped(Kind kind, unsigned count, const CUgraphicsResource* resources, CUstream stream);
    void graphics_pointer(const CUdeviceptr* out, const std::size_t* bytes, CUgraphicsResource resource);
    void multicast_created(const CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* wanted);
    void multicast_device_added(CUmemGenericAllocationHandle handle, CUdevice device);
    // `source`: a memory handle or an address, as the function has it.
    void multicast_bound(CUmemGenericAllocationHandle handle, std::size_t offset, std::size_t bytes,
                         std::uint64_t source);
    void multicast_unbound(CUmemGenericAllocationHandle handle, CUdevice device, std::size_t offset,
                           std::size_t bytes);
    void peer_access_set(bool on, CUcontext peer);

    // Graphs.
    void graph_allocation(const CUgraphNode* out, CUgraph graph, const CUDA_MEM_ALLOC_NODE_PARAMS* wanted);
    void graph_free(const CUgraphNode* out, CUgraph graph, CUdeviceptr address);
    void graph_node(const CUgraphNode* out, CUgraph graph, const CUgraphNodeParams* wanted);
    void graph_instantiated(const CUgraphExec* out, CUgraph graph, unsigned long long flags);
    void graph_uploaded();
    void graph_launched(CUgraphExec executable, CUstream stream);
    void graph_memory_trimmed(CUdevice device);

    // Code, streams, limits.
    void module_loaded(const CUmodule* out, const void* image);
    void module_loaded_from(const CUmodule* out, const char* path);
    void library_loaded(const CUlibrary* out, const void* image);
    void library_loaded_from(const CUlibrary* out, const char* path);
    void module_unloaded(const void* object, bool library);
    template <typename Address>
    void global_found(const Address* out, const std::size_t* bytes, const void* object, bool managed) {
        global_found_at(succeeded() && out != nullptr ? number_of(*out) : 0, bytes, object, managed);
    }
    void limit_set(CUlimit limit, std::size_t value);
    void stream_created(const CUstream* out);
    void green_stream_created(const CUstream* out);
    void green_context_created(const CUgreenCtx* out, CUdevice device, unsigned flags);
    void checkpoint(unsigned step, int process);

    // Where managed memory should lie.
    void advised(CUdeviceptr address, std::size_t bytes, CUmemLocation location, Advice what, unsigned value);
    void advised(CUdeviceptr address, std::size_t bytes, CUmemLocation location, Advice what, unsigned value,
                 CUstream stream);
    void advised_each(Advice what, const Extents& extents, CUstream stream);

    // Events that a framework's allocator may wait for.
    void event_recorded(CUevent event, CUstream stream);
    void event_over(CUevent event);

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
    void array_aliased_at(std::uint64_t owner, std::uint64_t array);
    void array_created_at(std::uint64_t array, const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels);
    void graph_allocation_at(std::uint64_t node, CUgraph graph, const CUmemLocation& location,
                             std::size_t bytes, CUdeviceptr address);
    void code_loaded(bool library, std::uint64_t object, std::uint64_t bytes);
    void global_found_at(std::uint64_t address, const std::size_t* bytes, const void* object, bool managed);
    // Record number `part` of a call that has one for each entry of a list.
    void record_part(std::size_t part, Kind kind, std::uint64_t address, std::uint64_t bytes,
                     std::uint64_t object, std::uint64_t extra);
    // How many of a list's `count` entries have a record; the others are counted as left out.
    std::size_t parts_of(Kind kind, std::size_t count) const;
    void at_location(const CUmemLocation& location);
    void at_ordinal(CUdevice device);
    void noted();
    // Fills in `device`, the context and the flags that say what is not known.
    Place place();
    Place place_of_stream(CUstream stream);
    std::uint64_t pool_of_device(std::uint8_t device);
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

// What the driver says of memory after call number `sequence` failed: devices, then pools, then the end mark, then probes if
// the session wants them.
void failure_snapshot(HookId function, std::uint64_t sequence);

}  // namespace fragscope::interpose
