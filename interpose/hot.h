// The events of the calls that programs make most, to be inlined into their wrappers.
#pragma once

#include "interpose/call.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/sample.h"
#include "interpose/modules.h"
#include "interpose/stacks.h"
#include "interpose/state.h"
#include "interpose/touch.h"
#include "interpose/waits.h"

namespace fragscope::interpose {

inline void Call::at_device(std::uint8_t device) {
    device_ = device;
    if (device == wire::kDeviceUnknown) flags_ |= wire::kUnknownDevice;
}

inline void Call::fill(wire::Record& slot, Kind kind, std::uint64_t address, std::uint64_t bytes,
                       std::uint64_t object, std::uint64_t extra) const {
    slot.sequence = sequence_;
    slot.start = start_;
    slot.duration = duration_;
    slot.function = static_cast<std::uint16_t>(id_);
    slot.result = static_cast<std::uint16_t>(result_);
    slot.kind = kind;
    slot.device = device_;
    slot.flags = flags_;
    slot.stack = stack_;
    slot.address = address;
    slot.bytes = bytes;
    slot.object = object;
    slot.extra = extra;
    if (counts_for_samples(kind) && result_ == CUDA_SUCCESS) thread_state.unsampled_bytes += bytes;
}

// A copy for what is not inlined, so that the call itself need not lie in memory.
[[gnu::always_inline]] inline Call Call::in_memory() const { return *this; }

// Where the call came from, for records that are to say it: acquisitions from a size on, those that failed,
// and whatever a shared runtime asked for (by which of its functions). Ahead of the record, as it may send
// texts itself.
[[gnu::always_inline]] inline void Call::find_stack(Kind kind, std::uint64_t bytes) {
    const bool deep = (takes_bytes(kind) && bytes >= session.stack_bytes) ||
                      (!succeeded() && (takes_memory(kind) || result_ == CUDA_ERROR_OUT_OF_MEMORY) &&
                       session.stack_failures);
    if ((deep || may_be_runtime(caller_)) && stack_ == 0) [[unlikely]]
        stack_ = call_stack(caller_, deep);
}

[[gnu::always_inline]] inline void Call::record_inline(Kind kind, std::uint64_t address, std::uint64_t bytes,
                                                       std::uint64_t object, std::uint64_t extra) {
    ThreadState& thread = thread_state;
    find_stack(kind, bytes);
    wire::Record* slot = nullptr;
    // Once more, after the call: if the driver called the program back and that forked, this is the child.
    if (thread.generation == generation() && name_sent[number(id_)].load(std::memory_order_relaxed))
        [[likely]]
        slot = thread.ring.reserve();
    if (slot == nullptr) [[unlikely]] {
        return in_memory().record_slowly(kind, address, bytes, object, extra);
    }
    fill(*slot, kind, address, bytes, object, extra);
    thread.ring.commit();
}

// Launches are not timed; what they make the driver take for code and stacks is looked at once in a while.
[[gnu::always_inline]] inline void launched_now(HookId function) {
    if (session.slot->launches.fetch_add(1, std::memory_order_relaxed) % 1024 == 1023) [[unlikely]]
        look_at_samples(function);
}

// The context that is current. Asked of the driver each time, as not every way to change it is known (private
// tables, calls past the shim); what is remembered is only which device that context is of. False: none is,
// or it is another than the last one, or of an unknown device.
[[gnu::always_inline]] inline bool same_place(const ThreadState& thread, std::uint64_t& context) {
    const auto ask = driver.cuCtxGetCurrent.load(std::memory_order_relaxed);
    CUcontext current = nullptr;
    if (ask == nullptr || ask(&current) != CUDA_SUCCESS) [[unlikely]]
        return false;
    context = reinterpret_cast<std::uint64_t>(current);
    return context == thread.context && thread.context_epoch == context_epoch.load(std::memory_order_relaxed);
}

// Of what device and context it is, the call does not say: the current ones may be others than when it was
// acquired.
[[gnu::always_inline]] inline void Call::unplaced_inline(Kind kind, std::uint64_t address,
                                                         std::uint64_t bytes, std::uint64_t object,
                                                         std::uint64_t extra) {
    at_device(wire::kDeviceUnknown);
    record_inline(kind, address, bytes, object, extra);
}

// A call on the straight path: it succeeded, and the thread has a ring.
class HotCall : public Call {
  public:
    using Call::Call;
    template <typename Pointer>
    [[gnu::always_inline]] void acquired(Kind kind, const Pointer* out, std::size_t bytes,
                                         unsigned flags = 0) {
        acquired_inline(kind, out != nullptr ? number_of(*out) : 0, bytes, flags);
    }
    template <typename Pointer>
    [[gnu::always_inline]] void released(Kind kind, Pointer address) {
        unplaced_inline(kind, number_of(address), 0, 0, 0);
    }
    [[gnu::always_inline]] void range_released(Kind kind, CUdeviceptr address, std::size_t bytes) {
        unplaced_inline(kind, address, bytes, 0, 0);
    }
    [[gnu::always_inline]] void handle_event(Kind kind, CUmemGenericAllocationHandle handle,
                                             std::uint64_t type = 0) {
        unplaced_inline(kind, 0, 0, handle, type);
    }
    [[gnu::always_inline]] void mapped(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                                       CUmemGenericAllocationHandle handle) {
        renew(address, bytes);
        unplaced_inline(Kind::kMapped, address, bytes, handle, offset);
    }
    [[gnu::always_inline]] void asked() {
        if (session.calls) [[unlikely]]
            in_memory().noted();
    }
    [[gnu::always_inline]] void event_recorded(CUevent event, CUstream stream) {
        if (session.calls || blocks_reported.load(std::memory_order_relaxed)) [[unlikely]]
            in_memory().event_recorded(event, stream);
    }
    [[gnu::always_inline]] void event_over(CUevent event) {
        if (session.calls || events_awaited.load(std::memory_order_relaxed) != 0) [[unlikely]]
            in_memory().event_over(event);
    }
    [[gnu::always_inline]] void launched() {
        launched_now(id_);
        asked();
    }
    [[gnu::always_inline]] void opaque_write() {
        session.slot->opaque_writes.fetch_add(1, std::memory_order_relaxed);
        asked();
    }

  private:
    void acquired_inline(Kind kind, std::uint64_t address, std::size_t bytes, unsigned flags);
};

[[gnu::always_inline]] inline void HotCall::acquired_inline(Kind kind, std::uint64_t address,
                                                            std::size_t bytes, unsigned flags) {
    const ThreadState& thread = thread_state;
    std::uint64_t context = 0;
    if (!same_place(thread, context)) [[unlikely]]
        return in_memory().acquired_at(kind, address, bytes, flags);
    device_ = thread.context_device;
    renew(address, bytes);
    record_inline(kind, address, bytes, context, flags);
}

}  // namespace fragscope::interpose
