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

// What a thread keeps. All zero at its start; initial-exec, so that reaching it is one instruction and never
// allocates.
struct ThreadState {
    wire::RingWriter ring;
    std::uint64_t refused = 0;        // records of this thread that found no ring
    std::uint64_t context = 0;        // the context last seen current …
    std::uint32_t context_epoch = 0;  // … as of this state of the contexts
    std::uint32_t generation = 0;     // the attachment that `ring` belongs to
    std::uint8_t context_device = wire::kDeviceUnknown;
    bool busy = false;  // inside a wrapper: what the driver or the shim calls now is not the program's doing
    bool dropping = false;  // the ring was full for too long and the reader has not moved since
};
static_assert(sizeof(ThreadState) <= 128);

#define FRAGSCOPE_THREAD_LOCAL \
    extern constinit thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")))
FRAGSCOPE_THREAD_LOCAL;
#undef FRAGSCOPE_THREAD_LOCAL

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
// Sends one record.
void emit(const wire::Record& record);
// Sends a text, cut to wire::kMaxTextBytes. False: not sent, or not all of it.
bool emit_text(wire::TextKind kind, std::uint16_t subject, const char* text, std::size_t bytes);

// Forgets which function names were sent (a new attachment).
void forget_names();

}  // namespace fragscope::interpose
