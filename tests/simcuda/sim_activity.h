// What the simulated driver tells the stand-in CUPTI beside it (cupti/): each change of memory state as it happens. The
// only agreement between the two libraries; no program uses it.
#pragma once

#include <cstdint>

namespace fragscope::sim {

struct ActivityEvent {
    // As in the ledger (README.md), and: "variable_load", "variable_unload" (a module's variable in a context),
    // "pool_trim", "migrate_to_device", "migrate_to_host" (a prefetch of managed memory).
    const char* operation;
    const char* name;        // of a variable; null: none
    std::uint64_t object;    // address, handle, or id of a pool
    std::uint64_t bytes;     // as asked for; of "pool_trim": to keep
    int device;
    std::uint64_t context;   // id of the calling thread's; 0: none
    int context_device;      // its device; -1: none
    // Of operations on a pool.
    std::uint64_t pool;      // base of its first chunk, 0: it has none yet
    std::uint64_t pool_size, pool_used, pool_threshold;  // bytes
    bool pool_imported;
};

// Called in the thread whose call it is, while the driver is locked: it must not call the driver.
using ActivitySink = void (*)(const ActivityEvent& event);

}  // namespace fragscope::sim

// Exported by libcuda.so.1. Tells `sink` of everything from now on (null: nobody), and charges `bytes_per_context` more to
// each context that lives and each that is made from now on, as the real library's buffers do; what was charged before
// goes with its context.
extern "C" void fragscope_sim_activity(fragscope::sim::ActivitySink sink, unsigned long long bytes_per_context);
