// Stream-ordered memory pools: README.md, "Pools", says how they grow, reuse and give back.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// Frees of `stream` that came before work number `completed` take effect.
void pools_stream_completed_locked(std::uint64_t stream, std::uint64_t completed);
// A synchronisation: pools of `device` give unused chunks back down to their release threshold.
void pools_synchronised_locked(int device);
// cuMemFree of an address in a pool's chunk: at once.
CUresult pool_free_now_locked(Region& chunk, std::uint64_t address);
// The live allocation that holds `address`; false when there is none.
bool pool_find(const Region& chunk, std::uint64_t address, std::uint64_t& base, std::uint64_t& bytes);
CUmemoryPool pool_handle(const Region& chunk);

}  // namespace fragscope::sim
