// Samples: what the driver says of memory between the program's calls, so that what the books do not explain
// is known as it grows. One is due after SessionHeader::sample_ns, and once sample_bytes were acquired (what
// a release gives back, its call does not say); and one is taken when a context is first seen, before a
// context ends, and when the process does.
#pragma once

#include <cstdint>

#include "interpose/emit.h"

namespace fragscope::interpose {

// In ThreadState::unsampled_bytes: a context was seen for the first time. Above all counts of bytes.
inline constexpr std::uint64_t kFirstLook = std::uint64_t{1} << 63;

// What a wrapper compares with, beside nothing that is written often.
struct alignas(64) SampleDue {
    std::atomic<std::uint64_t> at;  // from this time on (session's clock) look whether one is due
    std::atomic<std::uint64_t>
        thread_bytes;  // and once a thread has acquired so many bytes unseen by the others
};
extern constinit SampleDue sample_due;

// `start`: when the call was entered, 0 if that was not looked at.
[[gnu::always_inline]] inline bool sample_may_be_due(const ThreadState& thread, std::uint64_t start) {
    return start >= sample_due.at.load(std::memory_order_relaxed) ||
           thread.unsampled_bytes >= sample_due.thread_bytes.load(std::memory_order_relaxed);
}

// Device memory is acquired by a call with such a record.
constexpr bool counts_for_samples(Kind kind) {
    return kind == Kind::kLinearAcquired || kind == Kind::kPitchAcquired || kind == Kind::kManagedAcquired ||
           kind == Kind::kHandleCreated || kind == Kind::kPoolAcquired || kind == Kind::kArrayCreated;
}

// Takes one if it is due, and sets when to look again. Between two calls of the program on this thread.
[[gnu::cold, gnu::noinline]] void look_at_samples(HookId function);
// Takes one, if the driver can be asked now. False: not.
bool take_sample(wire::SampleReason reason, HookId function);

// The driver was initialised: a last sample will be taken before it shuts down.
void sample_at_exit();

void begin_samples();  // a new attachment

}  // namespace fragscope::interpose
