// Virtual memory management: physical allocations, the handles that refer to them, and mappings in reservations.
//
// Physical memory lives as long as anything refers to it: a handle (made, imported or retained), a mapping, a
// descriptor that was exported, or another process that imported it.
#pragma once

#include "driver.h"

namespace fragscope::sim {

// One cuMemCreate or import, as this process sees it.
struct PhysicalMemory {
    int device = -1;              // -1: host memory, which charges no device
    CUmemLocation location{};
    std::uint64_t bytes = 0;
    unsigned handle_types = 0;    // CUmemAllocationHandleType bits it can be exported as
    bool gpu_direct = false;
    unsigned usage = 0;           // CU_MEM_CREATE_USAGE_* bits
    unsigned handles = 0;         // live handles to it
    int shared = -1;              // index in Physical, once exported or imported
    int watch = -1;               // read end of the pipe whose write end was handed out
    std::uint64_t watch_inode = 0;
    std::vector<PageRun> pages;   // while not shared
    Backing backing;
};

struct Handle {
    std::uint64_t value = 0;
    unsigned references = 0;
    unsigned mappings = 0;
    PhysicalMemory* memory = nullptr;
};

struct Mapping {
    std::uint64_t size = 0;
    std::uint64_t offset = 0;  // into the physical memory
    Handle* handle = nullptr;
    std::map<int, unsigned> access;  // device (-1: host) -> CUmemAccess_flags
};

// Null when there is no such handle; one that was released may still be mapped.
Handle* find_handle_locked(std::uint64_t value);
// To be called after a reference or mapping of the handle ended: it and its memory end when nothing is left.
void settle_handle_locked(Handle& handle);

// The mapping that holds `address`, with its start; null when nothing is mapped there.
Mapping* find_mapping(Region& reservation, std::uint64_t address, std::uint64_t& start);

}  // namespace fragscope::sim
