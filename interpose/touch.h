// Which extents the trace has been told to be written to, so that a copy that is repeated a million times is
// told once. A bounded table that forgets: forgetting yields a record too many, never one too few.
#pragma once

#include <atomic>
#include <cstdint>

namespace fragscope::interpose {

// True if a write to [address, address + bytes) has to be told: some of it was not told before.
bool touch(std::uint64_t address, std::uint64_t bytes);
extern constinit std::atomic<bool> any_touch;
void renew_told(std::uint64_t address, std::uint64_t bytes);
// What lies at [address, address + bytes) is new: what was told of the old is forgotten.
inline void renew(std::uint64_t address, std::uint64_t bytes) {
    if (any_touch.load(std::memory_order_relaxed)) renew_told(address, bytes);
}
void forget_touches();

}  // namespace fragscope::interpose
