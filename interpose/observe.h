// What every wrapper does around the real call: keep the driver's and the shim's own calls out, time and
// number the call, and say what the trace learns.
#pragma once

#include "interpose/call.h"
#include "interpose/driver.h"
#include "interpose/emit.h"

namespace fragscope::interpose {

enum class When { kBefore, kAfter, kUnnumbered };

// `slot` holds the real function; `call(real)` calls it with the program's arguments; `event(Call&)` tells of
// it.
template <When when, typename Function, typename Invoke, typename Event>
inline CUresult observe(HookId id, std::atomic<Function>& slot, const void* caller, Invoke&& invoke,
                        Event&& event) {
    Function real = slot.load(std::memory_order_relaxed);
    if (real == nullptr) [[unlikely]] {
        real = reinterpret_cast<Function>(resolve(id));
        if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    }
    ThreadState& thread = thread_state;
    const std::uint32_t attachment = generation();
    if (thread.busy || attachment == kOff) [[unlikely]]
        return invoke(real);
    thread.busy = true;
    // Before the first time is taken: which clock it is of, the session says.
    if (attachment == 0) [[unlikely]]
        attach();

    std::uint64_t sequence = 0, start = 0;
    std::uint32_t duration = 0;
    if constexpr (when != When::kUnnumbered) start = now();
    if constexpr (when == When::kBefore) sequence = next_sequence();
    const CUresult result = invoke(real);
    if constexpr (when != When::kUnnumbered) duration = duration_between(start, now());
    if constexpr (when == When::kAfter) sequence = next_sequence();

    Call call(id, result, sequence, start, duration, caller);
    event(call);
    thread.busy = false;
    return result;
}

}  // namespace fragscope::interpose
