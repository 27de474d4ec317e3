// What every wrapper does around the real call: keep the driver's and the shim's own calls out, time and
// number the call, and say what the trace learns. The straight path is inlined whole into each wrapper and
// calls nothing but the driver; all that is rare is apart from it. It leaves errno alone because nothing on
// it can touch errno; the rest saves it.
#pragma once

#include <signal.h>

#include <cerrno>

#include "interpose/ask.h"
#include "interpose/call.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/hot.h"
#include "interpose/unwind.h"

namespace fragscope::interpose {

// kEnds: as kBefore, and a context ends by it.
enum class When { kBefore, kEnds, kAfter, kTimed, kUnnumbered };
constexpr bool numbered_before(When when) { return when == When::kBefore || when == When::kEnds; }

// Whether the call's duration is wanted. Once the process is attached.
template <When when>
inline bool timed() {
    if constexpr (when == When::kUnnumbered) return session.calls;
    return true;
}

// `row` is the wrapper's closure (hooks.cpp). It is taken by value: what it holds need not lie in memory on
// the straight path then.
template <typename Row>
[[gnu::noinline, gnu::cold]] void tell(HookId id, CUresult result, std::uint64_t sequence,
                                       std::uint64_t start, std::uint32_t duration, const void* caller,
                                       Row row) {
    const int saved = errno;
    Call call(id, result, sequence, start, duration, caller);
    row(call);
    if (result != CUDA_SUCCESS) call.explain_failure();
    errno = saved;
}

// A wrapper that was reached from inside a wrapper. A library that stands between us and the driver may call
// other functions of its own in this way, to be found after us as if we were not there; from the second level
// on it is the driver itself, so that nothing can go round in a circle.
template <typename Function, typename Row>
[[gnu::noinline, gnu::cold]] CUresult nested(ThreadState& thread, Function onward, Function own, Row row) {
    if (thread.gate == kNested) return row(own != nullptr ? own : onward);
    thread.gate = kNested;
    const CUresult result = row(onward);
    thread.gate = kBusy;
    return result;
}

// In a handler that has a stack of its own, whose place says nothing of what called what.
inline bool on_signal_stack() {
    stack_t stack;  // errno stays: asking with good arguments does not fail
    return sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

// Whether the wrapper that the thread is said to be in was left by a jump (longjmp out of a signal handler, a
// common way to limit a call's time): then its frame lies below `frame`, that of the wrapper that is entered
// now. Or that frame holds something else by now.
inline bool left_by_jump(const ThreadState& thread, const void* frame) {
    if (reinterpret_cast<std::uintptr_t>(frame) >= thread.entered_at) return !on_signal_stack();
#if defined(__x86_64__)
    const std::uintptr_t at = thread.entered_at + sizeof(std::uintptr_t);
    const int saved = errno;
    const bool left = thread.entered_at != kInNoWrapper && at % sizeof at == 0 && can_read(at) &&
                      *reinterpret_cast<const volatile std::uintptr_t*>(at) != thread.entered_from;
    errno = saved;
    return left;
#else
    return false;
#endif
}

// The wrapper with this frame, which returns to `caller`. A signal handler may call the driver at any point
// of this, or jump away: so the frame is told before the thread is said to be inside, and taken back after it
// is outside again. A wrapper that a handler's call ran through in between leaves kInNoWrapper.
[[gnu::always_inline]] inline void enter(ThreadState& thread, const void* frame, const void* caller) {
    thread.entered_from = reinterpret_cast<std::uintptr_t>(caller);
    thread.entered_at = reinterpret_cast<std::uintptr_t>(frame);
    std::atomic_signal_fence(std::memory_order_release);
    thread.gate = kBusy;
}
[[gnu::always_inline]] inline void leave(ThreadState& thread) {
    std::atomic_signal_fence(std::memory_order_release);
    thread.gate = thread.gate_when_idle;
    std::atomic_signal_fence(std::memory_order_release);
    thread.entered_at = kInNoWrapper;
}

// The next wrapper that this thread enters calls the driver's own function. It takes the slow path, where
// that is looked at.
inline void go_straight() {
    ThreadState& thread = thread_state;
    thread.straight = true;
    if (!thread.inside()) thread.gate = kNone;
}

// The thread is in a wrapper already, has no ring, or was told to go straight.
template <When when, typename Function, typename Row>
[[gnu::noinline, gnu::cold]] CUresult observe_rarely(HookId id, const std::atomic<Function>& onward,
                                                     const std::atomic<Function>& own, const void* frame,
                                                     const void* caller, Row row) {
    ThreadState& thread = thread_state;
    Function real = (thread.straight ? own : onward).load(std::memory_order_acquire);
    thread.straight = false;
    const std::uint32_t attachment = generation();
    if (real == nullptr) {
        real = reinterpret_cast<Function>(resolve(id));
        if (real == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (thread.inside()) {
        if (!left_by_jump(thread, frame)) {
            // A signal handler of the program's: to record it could meet a record half made.
            if (!in_driver(caller) && !in_other(caller)) count_untold();
            return nested(thread, real, own.load(std::memory_order_acquire), row);
        }
        count_untold();
        forget_call(thread);
        thread.gate = thread.gate_when_idle;
    }
    if (attachment == kOff) return row(real);
    enter(thread, frame, caller);
    // Before the first time is taken: which clock it is of, the session says.
    if (attachment == 0) attach();

    if constexpr (when == When::kEnds) context_end_begins(id);
    std::uint64_t sequence = 0, start = 0;
    std::uint32_t duration = 0;
    const bool time = timed<when>();
    if (time) start = now();
    if constexpr (numbered_before(when)) sequence = next_sequence();
    const CUresult result = row(real);
    if (time) duration = duration_between(start, now());
    if constexpr (when == When::kAfter) sequence = next_sequence();
    tell(id, result, sequence, start, duration, caller, row);
    if constexpr (when == When::kEnds) context_end_done();
    if (sample_may_be_due(thread, start)) look_at_samples(id);
    leave(thread);
    return result;
}

// Where the gate is not open. A process without a session comes here with every call and goes on at once.
template <When when, typename Function, typename Row>
[[gnu::noinline, gnu::cold]] CUresult observe_slowly(HookId id, const std::atomic<Function>& onward,
                                                     const std::atomic<Function>& own, const void* frame,
                                                     const void* caller, Row row) {
    const Function real = onward.load(std::memory_order_acquire);
    if (generation() == kOff && real != nullptr && !thread_state.straight) return row(real);
    return observe_rarely<when>(id, onward, own, frame, caller, row);
}

// `onward` holds what the call would reach if we were not there, `own` the driver's function. Inlined into
// the wrapper, whose return address is thereby the program's.
template <When when, typename Function, typename Row>
[[gnu::always_inline]] inline CUresult observe(HookId id, const std::atomic<Function>& onward,
                                               const std::atomic<Function>& own, Row row) {
    ThreadState& thread = thread_state;
    const Function real = onward.load(std::memory_order_relaxed);
    const void* const frame = __builtin_frame_address(0);
    if (thread.gate != generation() || real == nullptr) [[unlikely]]
        return observe_slowly<when>(id, onward, own, frame, __builtin_return_address(0), row);
    enter(thread, frame, __builtin_return_address(0));

    if constexpr (when == When::kEnds) context_end_begins(id);
    std::uint64_t sequence = 0, start = 0;
    std::uint32_t duration = 0;
    const bool time = timed<when>();
    if (time) start = fast_now();
    if constexpr (numbered_before(when)) sequence = next_sequence();
    const CUresult result = row(real);
    if (time) duration = duration_between(start, fast_now());
    if constexpr (when == When::kAfter) sequence = next_sequence();

    if (result != CUDA_SUCCESS) [[unlikely]] {
        tell(id, result, sequence, start, duration, __builtin_return_address(0), row);
    } else {
        HotCall call(id, CUDA_SUCCESS, sequence, start, duration, __builtin_return_address(0));
        row(call);
    }
    if constexpr (when == When::kEnds) context_end_done();
    if (sample_may_be_due(thread, start)) [[unlikely]]
        look_at_samples(id);
    leave(thread);
    return result;
}

}  // namespace fragscope::interpose
