// Stream-ordered memory pools: README.md, "Pools", says how they grow, reuse and give back.
#pragma once

#include "driver.h"

namespace fragscope::sim {

struct Pool {
    struct Block {
        std::uint64_t size;       // as taken, a multiple of 512
        std::uint64_t requested;  // bytes
        std::uint64_t offered = 0;  // key under which importers find it; 0: none
    };
    struct PendingFree {
        std::uint64_t address;
        std::uint64_t size;
        std::uint64_t stream;  // id
        std::uint64_t number;  // of the free in its stream's work
        bool counted;          // still part of `used`
    };
    int device = 0;
    bool is_default = false;
    bool imported = false;  // from another process: nothing can be allocated from it
    unsigned handle_types = 0;   // CUmemAllocationHandleType bits it can be exported as
    std::uint64_t offered = 0;   // key under which importers find it, of an imported one: the exporter's; 0: none
    bool destroyed = false;  // by the program; the pool stays until its last allocation is gone
    std::uint64_t id = 0;
    std::uint64_t max_size = 0;  // 0: no limit
    std::uint64_t threshold = 0;
    int follow_events = 1;
    int opportunistic = 1;
    int internal_dependencies = 1;
    std::uint64_t reserved = 0, reserved_high = 0;
    std::uint64_t used = 0, used_high = 0;
    std::map<std::uint64_t, std::uint64_t> chunks;  // base -> size
    FreeExtents free;
    std::map<std::uint64_t, Block> live;
    std::vector<PendingFree> pending;
    std::map<int, unsigned> access;
};

// The pool that the program has not destroyed; null when there is none.
Pool* find_pool_locked(CUmemoryPool handle);
Pool* find_pool_by_id_locked(std::uint64_t id);
Pool& add_pool_locked(int device);
CUmemoryPool handle_of_pool(const Pool* pool);
// cuMemFree(Async) of an imported allocation (pool_sharing.cpp): ends this process's mapping of it.
CUresult pool_import_free_locked(Region& region, std::uint64_t address);

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
