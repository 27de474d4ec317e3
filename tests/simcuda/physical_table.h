// How the table of the devices' pages lies in memory: for its keeper (physical.cpp) and for the stand-in management
// library, which only reads it.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "physical.h"

namespace fragscope::sim {

inline constexpr char kSharedNamePrefix[] = "/fragscope-sim-";  // of the POSIX shared memory, before its name
inline constexpr std::uint64_t kMagic = 0x3230'4d49'5347'5246;  // "FRGSIM02", little endian
inline constexpr std::uint16_t kFree = 0;                       // owner of a free page
inline constexpr std::uint16_t kReserved = 0x7fff;              // owned by the driver itself
inline constexpr std::uint16_t kSharedBit = 0x8000;             // | index of a shared handle
// Other values: slot + 1 of the owning process.

struct ProcessSlot {
    std::int32_t pid;  // 0: unused
    std::uint64_t start;
};

struct SharedHandle {
    std::uint32_t used;
    std::uint32_t descriptors;  // somebody may hold a descriptor; meaningful while the exporter lives
    std::int32_t exporter;      // slot
    std::int32_t device;
    std::uint32_t gpu_direct;
    std::uint64_t bytes;
    std::uint64_t key;
    std::uint64_t holders[kMaxProcesses / 64];  // bit per slot
};

struct SharedOffer {
    std::uint64_t key;  // 0: unused
    std::int32_t slot;  // of the process that offers
    std::int32_t device;
    std::uint64_t bytes;
    std::uint64_t within;
};

struct SharedTable {
    std::uint64_t magic;
    std::uint64_t page_size;
    std::uint64_t capacity;
    std::uint64_t reserve;
    std::uint32_t devices;
    std::uint32_t pages;  // per device
    pthread_mutex_t mutex;
    std::atomic<std::uint64_t> free_pages[kMaxDevices];  // derived from the owners
    std::uint32_t first_maybe_free[kMaxDevices];         // no free page lies before it
    ProcessSlot slots[kMaxProcesses];
    SharedHandle handles[kMaxSharedHandles];
    SharedOffer offers[kMaxOffers];
    // std::uint16_t owners[devices][pages] follows
};

inline std::uint16_t* owners_of(SharedTable& table, int device) {
    return reinterpret_cast<std::uint16_t*>(&table + 1) + static_cast<std::size_t>(device) * table.pages;
}

// Derives the counts from the pages' owners. With the mutex held.
inline void recount(SharedTable& table) {
    for (unsigned device = 0; device < table.devices; ++device) {
        const std::uint16_t* owner = owners_of(table, static_cast<int>(device));
        table.free_pages[device] = static_cast<std::uint64_t>(std::count(owner, owner + table.pages, kFree));
        table.first_maybe_free[device] = 0;
    }
}

}  // namespace fragscope::sim
