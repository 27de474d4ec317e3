// What the shim remembers of the process besides its rings: contexts, pools, running captures, streams with
// frees under way. All of it bounded, lock-free, and begun anew by each attachment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/rows.h"
#include "proto/wire.h"

namespace fragscope::interpose {

inline constexpr std::uint32_t kMaxPools = 64;
inline constexpr std::uint32_t kMaxContexts = 64;
inline constexpr std::uint32_t kMaxDevices = 32;

void reset_process_state();

// -------------------------------------------------------------------------------------------------------
// contexts

// Changes when a context ends: what threads remember of contexts holds no longer.
extern constinit std::atomic<std::uint32_t> context_epoch;

struct Place {
    std::uint64_t context = 0;  // 0: none is current
    std::uint8_t device = wire::kDeviceUnknown;
    bool fresh = false;  // nobody in this process saw this context before
};
// The context that is current in this thread, by asking the driver. One that nobody saw before gets a sample at the end of
// the call.
Place here();
// The device of a context that was once seen current.
std::uint8_t device_of(std::uint64_t context);
// Whether it is the only one that was seen in this process.
bool only_context(std::uint64_t context);
void context_ended(std::uint64_t context);
// cuCtxAttach counts a use of a context, cuCtxDetach ends one. False: it was the last, and the context is
// gone.
void context_attached(std::uint64_t context);
bool context_detached(std::uint64_t context);
// More than one context was seen in this process.
bool several_contexts();

// ----------------------------------------------------------------------------------------------------------
// pools

struct KnownPools {
    std::atomic<std::uint64_t> pool[kMaxPools];
    std::atomic<std::uint64_t>
        maximum[kMaxPools];               // asked for at its creation; 0: none, or that was not seen
    std::atomic<std::uint32_t> overflow;  // pools that found no place
    std::atomic<std::uint32_t> readers;   // failure snapshots under way
};
extern constinit KnownPools known_pools;
void remember_pool(std::uint64_t pool);
void set_pool_maximum(std::uint64_t pool, std::uint64_t maximum);
// Takes the pool out before it is destroyed and lets a snapshot that may be asking about it finish. Returns
// `pool`.
CUmemoryPool forget_pool(CUmemoryPool pool);
// The pool that cuMemAllocAsync takes from on the device; 0: not known.
std::uint64_t current_pool(std::uint8_t device);
void set_current_pool(std::uint8_t device, std::uint64_t pool);

// -------------------------------------------------------------------------------------------------------
// captures

// Captures that began and did not end, and calls that begin one. Never below 0.
extern constinit std::atomic<std::int32_t> captures_running;
// One that was counted in captures_running has begun on the stream.
void capture_on(std::uint64_t stream);
// Whether one is known to run that began on the stream. A stream that only joined a capture is none of these.
bool captured_from(std::uint64_t stream);
// The capture that began on the stream is over. `said`: by a call that ends captures; else by the end of the
// stream, which says nothing of captures that found no place among the streams.
void capture_over(std::uint64_t stream, bool said);
// One that was counted has not begun, or nothing is known of how it went on.
void capture_uncounted();
// All that have begun.
void captures_over();
// A graph of this process was given an allocation: launches may take memory from now on.
extern constinit std::atomic<bool> graphs_allocate;

// --------------------------------------------------------------------------------- streams with frees under
// way

// A stream-ordered free was asked for on the stream.
void free_pending(std::uint64_t stream);
// The stream is done: true if a free may have been under way on it.
bool take_pending(std::uint64_t stream);
bool take_all_pending();
// A stream's own name: stream 0 is a different one for callers of the _ptsz variants.
inline std::uint64_t stream_key(CUstream stream, bool per_thread) {
    const auto handle = reinterpret_cast<std::uint64_t>(stream);
    return handle != 0 ? handle : (per_thread ? 2u : 1u);  // CU_STREAM_PER_THREAD, CU_STREAM_LEGACY
}

// ----------------------------------------------------------------------------------------------------
// environment

// Who this process is: sent when it attaches.
void announce_process();
// What the driver says of itself and its devices: sent once, when the driver is known to be initialised.
void announce_environment();
extern constinit std::atomic<bool> environment_sent;

// Reads at most `size` bytes of a file; returns how many.
std::size_t read_file(const char* path, char* out, std::size_t size);

}  // namespace fragscope::interpose
