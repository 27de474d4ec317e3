// Virtual memory management: physical allocations, the handles that refer to them, and mappings in reservations.
//
// Physical memory lives as long as anything refers to it: a handle (made, imported or retained), a mapping, a
// descriptor that was exported, or another process that imported it.
#pragma once

#include "driver.h"
#include "watched_pipe.h"

namespace fragscope::sim {

struct Handle;

// The team behind a multicast object (multicast.cpp).
struct Multicast {
    struct Binding {
        Handle* memory;
        int device;
        std::uint64_t offset;  // in the object
        std::uint64_t size;
    };
    std::uint64_t handle = 0;
    unsigned wanted = 0;  // devices
    unsigned handle_types = 0;
    std::vector<int> devices;
    std::vector<Binding> bindings;
    bool complete() const { return devices.size() == wanted; }
};

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
    WatchedPipe pipe;             // of the descriptors that were handed out
    std::vector<PageRun> pages;   // while not shared
    Backing backing;
    std::unique_ptr<Multicast> multicast;  // null: memory
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

// A first handle to new memory.
Handle& new_memory_locked(PhysicalMemory memory);
// Unbinds all: the last handle and mapping of the object are gone.
void end_multicast_locked(PhysicalMemory& object);

// The mapping that holds `address`, with its start; null when nothing is mapped there.
Mapping* find_mapping(Region& reservation, std::uint64_t address, std::uint64_t& start);

}  // namespace fragscope::sim
