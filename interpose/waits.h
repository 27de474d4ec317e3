// Blocks that a framework's allocator keeps after the program gave them back. PyTorch's records an event on
// each other stream that the block was used on, inside the function that then reports the block's release,
// and lets go of the block once it has asked after all of them and they have happened. Which event records
// are these is told by the stack: they are made on the way from a function of the library that reports, in
// the very activation of it (the same function and the same frame) that goes on to report. Events that the
// program records itself, or that the allocator records for other ends, are not.
//
// What is kept is bounded; what finds no place is counted among the lost records. Nothing is looked at before
// an allocator has reported.
#pragma once

#include <atomic>
#include <cstdint>

#include "interpose/emit.h"
#include "interpose/rows.h"

namespace fragscope::interpose {

// An allocator has reported blocks in this process.
extern constinit std::atomic<bool> blocks_reported;
// How many events are known that blocks wait for.
extern constinit std::atomic<std::uint32_t> events_awaited;

// An allocator's code at `caller` reports: from now on its event records are looked at.
void note_reporter(const void* caller);
// The program, inside the wrapper of `function` that returns to `caller`, has recorded an event.
void note_event(HookId function, const void* caller, std::uint64_t event, std::uint64_t stream,
                std::uint16_t flags);
// Sends what the block that is now reported as released, to a wrapper that returns to `caller`, waits for.
void tell_waits(ThreadState& thread, const void* caller, std::uint8_t device);
// The event has happened, as the program was told. True: a block waited for it, and no longer does.
bool take_awaited(std::uint64_t event);

// What this thread recorded belongs to no release.
void forget_waits(ThreadState& thread);
void forget_all_waits();  // a new attachment

}  // namespace fragscope::interpose
