// The process's part of the session: its slot in the collector's shared memory, and what has to be begun
// again after a fork. Nothing is opened, mapped or asked before the program touches the driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/wire.h"

namespace fragscope::interpose {

// What was checked when attaching. The shared header itself may be overwritten by a damaged process at any
// time, so sizes and offsets are taken from here only.
struct Session {
    wire::SessionHeader* header = nullptr;
    wire::ProcessSlot* slot = nullptr;
    wire::RingHeader* rings = nullptr;
    unsigned char* base = nullptr;
    std::uint64_t rings_offset = 0;
    std::uint64_t wait_ns = 0;
    std::uint32_t ring_count = 0;
    std::uint32_t ring_records = 0;
    std::uint32_t process = 0;
    bool touches = false;
    bool calls = false;              // record launches, copies, memsets and questions as calls
    bool stack_failures = false;
    bool probe_on_oom = false;
    std::uint64_t stack_bytes = UINT64_MAX;
    std::uint64_t probe_ns = 0;
    std::uint64_t probe_bytes = 0;
    std::uint64_t sample_ns = UINT64_MAX;
    std::uint64_t sample_bytes = UINT64_MAX;
    wire::CuptiMode cupti = wire::CuptiMode::kOff;
};
extern constinit Session session;  // valid while attached()

// Clock of the session: 1 if call times are read by rdtsc.
extern constinit std::atomic<bool> use_tsc;

// Wiped to zero in a forked child (MADV_WIPEONFORK), which thereby finds itself untried and unattached. A
// vfork child shares all memory with its parent and is in this respect the parent. A page of the shim's own
// zero-initialised data, which is anonymous memory as the kernel asks for it: one load away from everywhere.
#if defined(__aarch64__)
inline constexpr std::size_t kForkPageBytes = 65536;
#else
inline constexpr std::size_t kForkPageBytes = 4096;
#endif
struct alignas(kForkPageBytes) ForkPage {
    std::atomic<std::uint32_t> generation;
    std::atomic<std::uint32_t> phase;
};
static_assert(sizeof(ForkPage) == kForkPageBytes);
extern constinit ForkPage fork_page;

// Number of this process's attachment, different in a child after fork; 0: not attached.
inline std::uint32_t generation() { return fork_page.generation.load(std::memory_order_acquire); }
// Attachments count from 1 and never reach these.
inline constexpr std::uint32_t kOff = UINT32_MAX;  // it was tried, and there is no session for this process
inline bool recording_off() { return generation() == kOff; }
inline bool attached() { return generation() != 0 && !recording_off(); }

// Attaches if that was not tried yet in this process. False: no session, no collector, or no room in it.
bool attach_first();
inline bool attach() {
    const std::uint32_t now = generation();
    return now != 0 ? now != kOff : attach_first();
}

// Records of this process are numbered from 1 in the order of things.
extern constinit std::atomic<std::uint64_t> sequence_counter;  // the next number
inline std::uint64_t next_sequence() { return sequence_counter.fetch_add(1, std::memory_order_relaxed); }

// Whether the collector still takes records: its process lives and it has not closed the session.
bool collector_alive();

}  // namespace fragscope::interpose
