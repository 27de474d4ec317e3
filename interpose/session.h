// The process's part of the session: its slot in the collector's shared memory, and what has to be begun
// again after a fork. Nothing is opened, mapped or asked before the program touches the driver.
#pragma once

#include <atomic>
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
};
extern constinit Session session;  // valid while attached()

// Clock of the session: 1 if call times are read by rdtsc.
extern constinit std::atomic<bool> use_tsc;

// Number of this process's attachment, different in a child after fork; 0: not attached. It lies in a page
// that the kernel wipes in a forked child.
extern constinit std::atomic<const std::atomic<std::uint32_t>*> generation_word;
inline std::uint32_t generation() {
    return generation_word.load(std::memory_order_acquire)->load(std::memory_order_acquire);
}
inline constexpr std::uint32_t kOff = UINT32_MAX;  // it was tried, and there is no session for this process
inline bool recording_off() { return generation() == kOff; }
inline bool attached() { return generation() != 0 && !recording_off(); }

// Attaches if that was not tried yet in this process. False: no session, no collector, or no room in it.
bool attach();

// Records of this process are numbered from 1 in the order of things.
extern constinit std::atomic<std::uint64_t> sequence_counter;
inline std::uint64_t next_sequence() { return sequence_counter.fetch_add(1, std::memory_order_relaxed) + 1; }

// Whether the collector still takes records: its process lives and it has not closed the session.
bool collector_alive();

}  // namespace fragscope::interpose
