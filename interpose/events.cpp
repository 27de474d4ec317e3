// What a row of hooks.def can say: each turns the arguments and results of one call into records.
#include "interpose/activity.h"
#include "interpose/ask.h"
#include "interpose/call.h"
#include "interpose/doors.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/hot.h"
#include "interpose/touch.h"

namespace fragscope::interpose {

namespace {

std::uint64_t bits(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }

std::uint64_t packed(const CUmemLocation& location, unsigned handle_types) {
    return wire::pack_location(static_cast<std::uint32_t>(location.type), location.id, handle_types);
}

}  // namespace

void Call::record(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                  std::uint64_t extra) {
    record_inline(kind, address, bytes, object, extra);
}

void Call::record_slowly(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                         std::uint64_t extra) const {
    wire::Record* slot =
        open_record(static_cast<std::uint16_t>(id_), kind, static_cast<std::uint16_t>(result_), bytes);
    if (slot == nullptr) return;
    fill(*slot, kind, address, bytes, object, extra);
    thread_state.ring.commit();
}

// -------------------------------------------------------------------------------------------------------
// start-up

void Call::initialized() {
    record(Kind::kCalled, 0, 0, 0, 0);
    if (!succeeded()) return;
    if (!environment_sent.exchange(true)) announce_environment();
    if (attached()) sample_at_exit();
    begin_activity();
}

void Call::called() { record(Kind::kCalled, 0, 0, 0, 0); }

void Call::asked() {
    if (attach() && (session.calls || result_ == CUDA_ERROR_OUT_OF_MEMORY)) noted();
}

void Call::noted() {
    Call call = *this;  // what else the call is told by has its own time and number
    if (call.result_ == CUDA_ERROR_OUT_OF_MEMORY) call.place();
    if (call.start_ == 0) call.start_ = now();
    call.sequence_ = next_sequence();
    call.record(Kind::kCalled, 0, 0, 0, 0);
    if (!succeeded()) sequence_ = call.sequence_;
}

void Call::looked_up(void** function) {
    if (succeeded() && function != nullptr && *function != nullptr)
        *function = answer(*function, caller_);
    else
        found_nothing(caller_);
}

// --------------------------------------------------------------------------------------------- linear, host
// memory

void Call::acquired_at(Kind kind, std::uint64_t address, std::size_t bytes, unsigned flags) {
    const Place at = place();
    if (succeeded()) renew(address, bytes);
    record(kind, address, bytes, at.context, flags);
}

void Call::released_at(Kind kind, std::uint64_t address) { unplaced_inline(kind, address, 0, 0, 0); }

void Call::pitch_acquired(const CUdeviceptr* out, const std::size_t* pitch, std::size_t width,
                          std::size_t height) {
    const Place at = place();
    const std::uint64_t address = succeeded() && out != nullptr ? *out : 0;
    const std::uint64_t granted = succeeded() && pitch != nullptr ? *pitch * height : 0;
    if (succeeded()) renew(address, granted);
    record(Kind::kPitchAcquired, address, width * height, at.context, granted);
}

// ----------------------------------------------------------------------------------------- virtual memory
// management

void Call::reserved(const CUdeviceptr* out, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted) {
    at_device(wire::kDeviceUnknown);
    record(Kind::kReserved, succeeded() && out != nullptr ? *out : 0, bytes, alignment, wanted);
}

void Call::range_released(Kind kind, CUdeviceptr address, std::size_t bytes) {
    unplaced_inline(kind, address, bytes, 0, 0);
}

void Call::handle_event(Kind kind, CUmemGenericAllocationHandle handle, std::uint64_t type) {
    unplaced_inline(kind, 0, 0, handle, type);
}

void Call::mapped(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle) {
    if (succeeded()) renew(address, bytes);
    unplaced_inline(Kind::kMapped, address, bytes, handle, offset);
}

void Call::handle_created(const CUmemGenericAllocationHandle* out, std::size_t bytes,
                          const CUmemAllocationProp* properties) {
    std::uint64_t where = 0;
    std::uint8_t device = wire::kDeviceUnknown;
    if (properties != nullptr) {
        where = packed(properties->location, static_cast<unsigned>(properties->requestedHandleTypes));
        const int id = properties->location.id;
        if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && id >= 0 && id < wire::kDeviceUnknown)
            device = static_cast<std::uint8_t>(id);
    }
    at_device(device);
    record(Kind::kHandleCreated, 0, bytes, succeeded() && out != nullptr ? *out : 0, where);
}

void Call::handle_retained(const CUmemGenericAllocationHandle* out, const void* address) {
    at_device(wire::kDeviceUnknown);
    record(Kind::kHandleRetained, bits(address), 0, succeeded() && out != nullptr ? *out : 0, 0);
}

void Call::handle_imported(const CUmemGenericAllocationHandle* out, CUmemAllocationHandleType type) {
    at_device(wire::kDeviceUnknown);
    record(Kind::kHandleImported, 0, 0, succeeded() && out != nullptr ? *out : 0, type);
}

void Call::access_set(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptors,
                      std::size_t count) {
    const std::uint16_t flags = flags_;
    // Of a call that failed a count is no count: it may be why. The first is what is told of what was asked for.
    if (!succeeded() && count > 1) count = 1;
    for (std::size_t i = 0; i < count && descriptors != nullptr; ++i) {
        flags_ = flags;
        if (i != 0) flags_ |= wire::kContinued;
        const CUmemLocation& location = descriptors[i].location;
        const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
                               location.id < wire::kDeviceUnknown;
        at_device(on_device ? static_cast<std::uint8_t>(location.id) : wire::kDeviceUnknown);
        record(Kind::kAccessSet, address, bytes, packed(location, 0), descriptors[i].flags);
    }
    if (count == 0 || descriptors == nullptr) {
        at_device(wire::kDeviceUnknown);
        record(Kind::kAccessSet, address, bytes, 0, 0);
    }
}

// ---------------------------------------------------------------------------------------------
// stream-ordered memory

void Call::mark_capture(CUstream stream) {
    const bool per_thread = (flags_ & wire::kPerThreadStream) != 0;
    const auto ask = (per_thread ? driver.cuStreamIsCapturing_ptsz : driver.cuStreamIsCapturing).load();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (ask == nullptr || ask(stream, &status) != CUDA_SUCCESS)
        flags_ |= wire::kCaptureUnknown;
    else if (status != CU_STREAM_CAPTURE_STATUS_NONE)
        flags_ |= wire::kCaptured;
}

// The device whose pool a stream-ordered allocation came from is the stream's, which need not be the current
// one.
Place Call::place_of_stream(CUstream stream) {
    Place at = place();
    if (bits(stream) <= 2 || !several_contexts())
        return at;  // 0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD: of the current one
    CUcontext owner = nullptr;
    const auto ask = driver.cuStreamGetCtx.load(std::memory_order_relaxed);
    const bool asked = captures_running.load(std::memory_order_relaxed) == 0 && ask != nullptr &&
                       ask(stream, &owner) == CUDA_SUCCESS;
    at = {bits(owner), asked ? device_of(bits(owner)) : wire::kDeviceUnknown, false};
    flags_ &= static_cast<std::uint16_t>(~wire::kUnknownDevice);
    at_device(at.device);
    return at;
}

std::uint64_t Call::pool_of_device(std::uint8_t device) {
    if (device == wire::kDeviceUnknown) return 0;
    if (const std::uint64_t known = current_pool(device); known != 0) return known;
    const auto ask = driver.cuDeviceGetMemPool.load(std::memory_order_relaxed);
    CUmemoryPool found = nullptr;
    if (captures_running.load(std::memory_order_relaxed) != 0 || ask == nullptr ||
        ask(&found, device) != CUDA_SUCCESS || found == nullptr)
        return 0;
    remember_pool(bits(found));
    set_current_pool(device, bits(found));
    Call bound(HookId::k_cuDeviceGetMemPool, CUDA_SUCCESS, next_sequence(), now(), 0, nullptr);
    bound.flags_ = wire::kByShim;
    bound.device_ = device;
    bound.record(Kind::kPoolBound, 0, 0, bits(found), 0);
    return bits(found);
}

void Call::pool_acquired(const CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
    const Place at = place_of_stream(stream);
    mark_capture(stream);
    const std::uint64_t source = pool != nullptr ? bits(pool) : pool_of_device(at.device);
    if (pool != nullptr) remember_pool(source);
    const std::uint64_t address = succeeded() && out != nullptr ? *out : 0;
    if (succeeded()) renew(address, bytes);
    if (succeeded() && (flags_ & wire::kCaptured) != 0) graphs_allocate.store(true, std::memory_order_relaxed);
    record(Kind::kPoolAcquired, address, bytes, source, bits(stream));
}

void Call::pool_released(CUdeviceptr address, CUstream stream) {
    at_device(wire::kDeviceUnknown);
    mark_capture(stream);
    if (succeeded() && (flags_ & wire::kCaptured) == 0)
        free_pending(stream_key(stream, (flags_ & wire::kPerThreadStream) != 0));
    record(Kind::kPoolReleased, address, 0, 0, bits(stream));
}

void Call::pool_created(const CUmemoryPool* out, const CUmemPoolProps* properties) {
    std::uint64_t where = 0, most = 0;
    std::uint8_t device = wire::kDeviceUnknown;
    if (properties != nullptr) {
        where = packed(properties->location, static_cast<unsigned>(properties->handleTypes));
        most = properties->maxSize;
        const int id = properties->location.id;
        if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && id >= 0 && id < wire::kDeviceUnknown)
            device = static_cast<std::uint8_t>(id);
    }
    at_device(device);
    const std::uint64_t pool = succeeded() && out != nullptr ? bits(*out) : 0;
    if (pool != 0) {
        remember_pool(pool);
        set_pool_maximum(pool, most);
    }
    record(Kind::kPoolCreated, 0, most, pool, where);
}

void Call::pool_event(Kind kind, CUmemoryPool pool, std::size_t bytes) {
    at_device(wire::kDeviceUnknown);
    if (kind == Kind::kPoolDestroyed && !succeeded()) remember_pool(bits(pool));
    record(kind, 0, bytes, bits(pool), 0);
}

void Call::pool_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute, const void* value) {
    at_device(wire::kDeviceUnknown);
    std::uint64_t number = 0;
    if (value != nullptr && succeeded()) {
        // The reuse policies are of type int, the threshold and the marks of type cuuint64_t.
        if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
            number = static_cast<std::uint64_t>(static_cast<std::int64_t>(*static_cast<const int*>(value)));
        else
            number = *static_cast<const cuuint64_t*>(value);
    }
    remember_pool(succeeded() ? bits(pool) : 0);
    record(Kind::kPoolAttributeSet, 0, number, bits(pool), static_cast<std::uint64_t>(attribute));
}

void Call::pool_seen(const CUmemoryPool* out) {
    if (succeeded() && out != nullptr) remember_pool(bits(*out));
    asked();
}

void Call::pool_bound(CUdevice device, CUmemoryPool pool) {
    const bool known = device >= 0 && device < wire::kDeviceUnknown;
    at_device(known ? static_cast<std::uint8_t>(device) : wire::kDeviceUnknown);
    if (succeeded()) {
        remember_pool(bits(pool));
        set_current_pool(device_, bits(pool));
    }
    record(Kind::kPoolBound, 0, 0, bits(pool), 0);
}

void Call::pool_bound(const CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    // Only the pool of pinned memory on a device is the one that cuMemAllocAsync takes from.
    if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        if (succeeded()) remember_pool(bits(pool));
        record(Kind::kCalled, 0, 0, 0, 0);
        return;
    }
    pool_bound(location->id, pool);
}

// -------------------------------------------------------------------------------------------------------
// contexts

void Call::context_created(const CUcontext* out, unsigned flags, CUdevice device) {
    at_device(device >= 0 && device < wire::kDeviceUnknown ? static_cast<std::uint8_t>(device)
                                                           : wire::kDeviceUnknown);
    const std::uint64_t context = succeeded() && out != nullptr ? bits(*out) : 0;
    record(Kind::kContextCreated, 0, flags, context, 0);
    if (context == 0) return;
    know_context(device_, context, false);
    here();
}

void Call::context_attached(const CUcontext* out) {
    here();
    if (succeeded() && out != nullptr) interpose::context_attached(bits(*out));
    called();
}

// The last user's detaching is the end of the context.
void Call::context_detached(CUcontext context) {
    if (succeeded() && interpose::context_detached(bits(context)))
        called();
    else
        context_destroyed(context);
}

void Call::context_destroyed(CUcontext context) {
    at_device(device_of(bits(context)));
    if (succeeded()) {
        captures_ended_with_context(bits(context));
        context_ended(bits(context));
        lose_context(bits(context));
    }
    record(Kind::kContextDestroyed, 0, 0, bits(context), 0);
}

void Call::context_current(CUcontext context) {
    if (succeeded() && context != nullptr && thread_state.context != bits(context)) here();
}

void Call::primary_retained(const CUcontext* out, CUdevice device) {
    at_device(device >= 0 && device < wire::kDeviceUnknown ? static_cast<std::uint8_t>(device)
                                                           : wire::kDeviceUnknown);
    record(Kind::kPrimaryRetained, 0, 0, succeeded() && out != nullptr ? bits(*out) : 0, 0);
    if (succeeded() && out != nullptr) know_context(device_, bits(*out), true);
}

void Call::primary_event(Kind kind, CUdevice device) {
    at_device(device >= 0 && device < wire::kDeviceUnknown ? static_cast<std::uint8_t>(device)
                                                           : wire::kDeviceUnknown);
    if (succeeded()) context_epoch.fetch_add(1);
    if (succeeded() && kind == Kind::kPrimaryReset) captures_ended_with_context(primary_context(device_));
    record(kind, 0, 0, 0, 0);
}

// ------------------------------------------------------------------------- what the driver says, and when it
// is done

void Call::device_memory(const std::size_t* free_bytes, const std::size_t* total_bytes) {
    const Place at = place();
    record(Kind::kDeviceMemory, succeeded() && free_bytes != nullptr ? *free_bytes : 0,
           succeeded() && total_bytes != nullptr ? *total_bytes : 0, at.context, 0);
}

void Call::synchronized(CUstream stream) {
    const std::uint64_t key = stream_key(stream, (flags_ & wire::kPerThreadStream) != 0);
    if (!succeeded() || !take_pending(key)) return;
    const Place at = place();
    number_now();
    record(Kind::kSynchronized, 0, 0, key, at.context);
}

void Call::context_synchronized() {
    if (!succeeded() || !take_all_pending()) return;
    const Place at = place();
    number_now();
    record(Kind::kSynchronized, 0, 0, 0, at.context);
}

void Call::context_synchronized(CUcontext context) {
    if (!succeeded() || !take_all_pending()) return;
    at_device(device_of(bits(context)));
    number_now();
    record(Kind::kSynchronized, 0, 0, 0, bits(context));
}

// It was counted before it began, if the process was attached then.
void Call::capture_begun(CUstream stream) {
    const bool counted = thread_state.capture_counted;
    thread_state.capture_counted = false;
    if (succeeded()) {
        if (!counted) captures_running.fetch_add(1);
        capture_on(stream_key(stream, (flags_ & wire::kPerThreadStream) != 0));
    } else if (counted) {
        capture_uncounted();
    }
}

// A capture that was invalidated ends with an error, and yet ends.
void Call::capture_ended(CUstream stream) {
    if (result_ == CUDA_ERROR_ILLEGAL_STATE || result_ == CUDA_ERROR_INVALID_VALUE ||
        result_ == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || result_ == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
        return;
    capture_over(stream_key(stream, (flags_ & wire::kPerThreadStream) != 0), true);
}

// ------------------------------------------------------------------------------------------------ use of the
// memory

Place Call::place() {
    const Place at = here();
    if (at.context == 0) flags_ |= wire::kNoContext;
    at_device(at.device);
    return at;
}

void Call::explain_failure() {
    if (result_ != CUDA_ERROR_OUT_OF_MEMORY || !attach()) return;
    if (sequence_ == 0) noted();
    failure_snapshot(id_, sequence_);
}

void Call::opaque_write() {
    if (succeeded() && attach()) session.slot->opaque_writes.fetch_add(1, std::memory_order_relaxed);
    asked();
}

void Call::launched() {
    if (succeeded() && attach()) launched_now(id_);
    asked();
}

void Call::at_ordinal(CUdevice device) {
    at_device(device >= 0 && device < wire::kDeviceUnknown ? static_cast<std::uint8_t>(device)
                                                           : wire::kDeviceUnknown);
}

void Call::at_location(const CUmemLocation& location) {
    at_ordinal(location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1);
}

void Call::record_part(std::size_t part, Kind kind, std::uint64_t address, std::uint64_t bytes,
                       std::uint64_t object, std::uint64_t extra) {
    const std::uint16_t flags = flags_;
    if (part != 0) flags_ |= wire::kContinued;
    record(kind, address, bytes, object, extra);
    flags_ = flags;
}

std::size_t Call::parts_of(Kind kind, std::size_t count) const {
    if (!succeeded()) return 0;
    if (count <= kMaxParts) return count;
    leave_out(kind, count - kMaxParts);
    return kMaxParts;
}

void Call::object_released(Kind kind, const void* object) {
    if (kind == Kind::kStreamDestroyed && thread_state.capture_ends) {
        thread_state.capture_ends = false;
        if (succeeded()) capture_over(bits(object), false);
    }
    unplaced_inline(kind, 0, 0, number_of(object), 0);
}

void Call::event_recorded(CUevent event, CUstream stream) {
    asked();
    if (succeeded() && blocks_reported.load(std::memory_order_relaxed))
        note_event(id_, caller_, bits(event), bits(stream), flags_);
}

void Call::event_over(CUevent event) {
    asked();
    if (!succeeded() || events_awaited.load(std::memory_order_relaxed) == 0 || !take_awaited(bits(event)))
        return;
    at_device(wire::kDeviceUnknown);
    number_now();
    record(Kind::kBlockWaitOver, 0, 0, bits(event), 0);
}

void Call::number_now() {
    start_ = now();
    duration_ = 0;
    sequence_ = next_sequence();
}

void Call::touched(CUdeviceptr address, std::size_t bytes) {
    asked();
    if (!succeeded() || !attach() || !session.touches || !touch(address, bytes)) return;
    at_device(wire::kDeviceUnknown);
    number_now();
    record(Kind::kTouched, address, bytes, 0, 0);
}

}  // namespace fragscope::interpose
