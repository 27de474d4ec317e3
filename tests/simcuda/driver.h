// The state of the simulated driver in one process, and the few types that its parts share.
//
// One lock guards all of it: a part's exported functions take the lock, helpers named *_locked expect it held.
// The state is made by cuInit and never destroyed, because host programs call the driver from static
// destructors.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backing.h"
#include "extents.h"
#include "log.h"
#include "physical.h"
#include "settings.h"

namespace fragscope::sim {

struct Pool;
struct SmallBlock;
struct Mapping;
struct Stream;

// The heap of small linear allocations of one context: see small_heap.h.
struct SmallHeap {
    std::vector<std::uint64_t> block;       // base addresses
    std::vector<std::uint16_t> upper_bound;  // of the free run, in units; same order
};

struct Context {
    std::uint64_t id = 0;
    int device = 0;
    bool primary = false;
    unsigned flags = 0;
    unsigned api_version = 3020;
    std::atomic<bool> alive{false};
    std::atomic<int> sticky{0};  // a CUresult that every further call in this context answers
    unsigned references = 0;     // of a primary context
    std::vector<PageRun> overhead;
    SmallHeap heap;
    std::map<int, std::size_t> limits;
    std::vector<PageRun> limit_pages;  // what limits above the defaults cost
    std::vector<int> peers;  // devices whose memory this context may use
};

// A range of addresses with one purpose.
struct Region {
    enum class Kind {
        SmallBlock, Linear, Reservation, PoolChunk, PoolImport, Graph, Ipc, External, Global, Host, Registered, Managed
    };
    Kind kind = Kind::Linear;
    std::uint64_t base = 0;
    std::uint64_t size = 0;       // bytes of address space
    std::uint64_t requested = 0;  // bytes asked for
    Context* context = nullptr;   // owner, whose end frees it; null: none
    int device = -1;
    unsigned flags = 0;           // of host and managed memory
    std::uint64_t object = 0;     // id of what a PoolImport, External or Global region belongs to
    std::uint64_t id = 0;         // unique in the process
    std::uint64_t offered = 0;    // key under which other processes find it; 0: none
    std::vector<PageRun> pages;
    Backing backing;
    std::unique_ptr<SmallBlock> small;
    std::map<std::uint64_t, Mapping> mappings;  // of a reservation, by address
    Pool* pool = nullptr;                       // of PoolChunk
    Region();
    Region(Region&&) noexcept;
    ~Region();
};

struct Driver {
    std::mutex lock;
    Settings settings;
    Physical physical;
    FreeExtents addresses;
    std::map<std::uint64_t, Region> regions;
    std::unordered_map<std::uint64_t, std::unique_ptr<Context>> contexts;  // by handle; kept after their end
    Context* primary[kMaxDevices] = {};
    std::uint64_t next_id = 1;

    bool device_ok(int device) const { return device >= 0 && device < static_cast<int>(settings.devices); }
    std::uint64_t pages_for(std::uint64_t bytes) const {
        return bytes / settings.page_size + (bytes % settings.page_size != 0 ? 1 : 0);
    }
};

// Valid once cuInit has succeeded.
extern Driver* g_driver;
inline Driver& driver() { return *g_driver; }
using Locked = std::lock_guard<std::mutex>;

// The region that holds `address`, or null.
Region* find_region_locked(std::uint64_t address);

// Makes a region of `bytes` (rounded up to pages) of device address space and, when `charge`, as many physical
// pages. CUDA_ERROR_OUT_OF_MEMORY and nothing changed when either is missing.
CUresult make_region_locked(Region::Kind kind, int device, std::uint64_t bytes, bool charge, bool contiguous,
                            Region*& region, std::uint64_t& free_after);
// Physical pages for this process; looks for closed descriptors of exported memory before it fails.
bool take_pages_locked(int device, std::uint64_t pages, bool contiguous, std::vector<PageRun>& runs,
                       std::uint64_t& free_after);
// Gives its addresses and pages back and forgets it; returns bytes free on its device.
std::uint64_t drop_region_locked(Region& region);

// The calling thread's context, when it has one that is alive and without a sticky error; else the error.
CUresult require_context(Context*& context);
// Sets the sticky error when `error` is of that kind and the thread has a context.
void poison_current_context(CUresult error);
// The context behind a handle that the program gave; null when there is none.
Context* context_of_locked(CUcontext handle);
CUcontext handle_of(const Context* context);
// Frees what belongs to the context (linear, pitch, managed, host memory, arrays, streams, modules).
void destroy_resources_locked(Context& context);

}  // namespace fragscope::sim
