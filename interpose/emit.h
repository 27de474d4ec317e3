// Records into the calling thread's ring. A thread takes a ring when it has its first record to send and
// gives it back when it ends. A full ring holds the program up once, for a bounded time; after that records
// are dropped and counted.
#pragma once

#include <cstdint>

#include "interpose/rows.h"
#include "interpose/session.h"
#include "proto/ring.h"
#include "proto/wire.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif
#include <time.h>

namespace fragscope::interpose {

using wire::Kind;

// Values of ThreadState's fields beside the numbers of attachments.
inline constexpr std::uint32_t kNone = UINT32_MAX - 1;
inline constexpr std::uint32_t kBusy = UINT32_MAX - 2;
inline constexpr std::uint32_t kNested = UINT32_MAX - 3;
inline constexpr std::uint64_t kNever = UINT64_MAX;
// A frame that no call lies above: what a thread that is inside calls is called from where it is.
inline constexpr std::uintptr_t kInNoWrapper = UINTPTR_MAX;
inline constexpr std::uint8_t kNotExchanged = UINT8_MAX;

// What a thread keeps. initial-exec, so that reaching it is one instruction and never allocates.
struct ThreadState {
    // The one word that a wrapper compares with generation(): equal, and the thread has a ring of this
    // attachment and is outside of all wrappers. kBusy: inside a wrapper; what the driver or the shim calls
    // now is not the program's doing. kNested: inside a wrapper that was reached from a wrapper. Else kNone.
    std::uint32_t gate = kNone;
    std::uint32_t gate_when_idle = kNone;  // what `gate` goes back to at the end of a wrapper
    std::uint32_t generation = kNone;      // the attachment that `ring` belongs to
    std::uint32_t context_epoch = 0;       // `context` is as of this state of the contexts
    wire::RingWriter ring;
    std::uint64_t context = kNever;     // the context last seen current, of a known device
    std::uint64_t refused = 0;          // records of this thread that found no ring
    std::uint64_t gave_up_at = kNever;  // where the reader stood when waiting for it was given up
    std::uint8_t context_device = wire::kDeviceUnknown;
    bool straight = false;      // see go_straight()
    bool capture_ends = false;  // see capture_may_end()
    std::uint8_t desk = 0;      // see waits.h; 0: none

    // What forget_call() takes back of a call that was left by a jump.
    bool asking = false;           // the shim's own questions are under way,
    bool asking_alone = false;     // and nobody else may ask
    bool reading_pools = false;    // this thread is among known_pools.readers
    bool ending_counted = false;   // the call that this thread is in ends a context and is counted as such
    bool capture_counted = false;  // the capture that this thread begins is among captures_running
    std::uint8_t capture_mode = kNotExchanged;  // the program's, while probes have one of their own
    std::uint64_t pushed = 0;                   // the context that the shim has made current; 0: none

    std::uint64_t unsampled_bytes = 0;  // acquired by this thread; kFirstLook: a context is new; see sample.h
    std::uintptr_t entered_at = kInNoWrapper;  // frame of the wrapper that the thread is in
    std::uintptr_t entered_from = 0;           // where that one returns to, as it stood in that frame

    bool inside() const { return gate == kBusy || gate == kNested; }
};
static_assert(sizeof(ThreadState) <= 128);

#define FRAGSCOPE_THREAD_LOCAL \
    extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")))
FRAGSCOPE_THREAD_LOCAL;
#undef FRAGSCOPE_THREAD_LOCAL

// The session's clock. fast_now() for a thread whose gate is open: there the clock is known.
inline std::uint64_t now() {
#if defined(__x86_64__)
    if (use_tsc.load(std::memory_order_relaxed)) [[likely]]
        return __rdtsc();
#endif
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(time.tv_nsec);
}

inline std::uint64_t fast_now() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return now();
#endif
}

inline std::uint32_t duration_between(std::uint64_t start, std::uint64_t end) {
    const std::uint64_t units = (end - start) >> wire::kDurationShift;
    return units > UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(units);
}

// A record of something that the shim asked by itself, numbered now.
inline wire::Record shim_record(Kind kind, HookId function, std::uint8_t device, unsigned flags = 0) {
    wire::Record record{};
    record.sequence = next_sequence();
    record.start = now();
    record.function = static_cast<std::uint16_t>(function);
    record.kind = kind;
    record.device = device;
    if (device == wire::kDeviceUnknown) flags |= wire::kUnknownDevice;
    record.flags = static_cast<std::uint16_t>(flags | wire::kByShim);
    return record;
}

// The slot for a record of which this much is known, to be filled in whole and then committed to
// thread_state.ring; nullptr: there is none to be had, and the loss is counted. Function names go ahead of
// their first record.
wire::Record* open_record(std::uint16_t function, Kind kind, std::uint16_t result, std::uint64_t bytes);
// Counts records that a call would have had beyond those that one call may have.
void leave_out(Kind kind, std::uint64_t records);
// Sends one record.
void emit(const wire::Record& record);
// Sends a text, cut to wire::kMaxTextBytes; `id` as its kind says. False: not sent, or not all of it.
bool emit_text(wire::TextKind kind, std::uint16_t subject, const char* text, std::size_t bytes,
               std::uint32_t id = 0);

// Functions whose names are out: until then every thread sends the name, so that no record can be ahead of
// it.
extern constinit std::atomic<bool> name_sent[kNamedCount];
// What else is to be given back when a thread ends that had a ring.
extern constinit std::atomic<void (*)(ThreadState&)> thread_ends;
// Counts a call of the program's whose record cannot be made: what kind it was of is not told, as nothing may
// be concluded from that.
void count_untold();
// Forgets which function names were sent (a new attachment).
void forget_names();

}  // namespace fragscope::interpose
