// The devices' physical pages: who has which. The one thing that several processes share.
//
// The table lies in POSIX shared memory when a name is set, otherwise in memory of this process alone; the code
// is the same. A robust mutex guards it: when its holder is killed the next one recounts from the page table,
// which is always whole because each page's owner is one store. A process that has died, however it did,
// loses its pages the next time somebody looks (collect()).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "settings.h"

namespace fragscope::sim {

struct PageRun {
    std::uint32_t first;
    std::uint32_t count;
};

inline constexpr unsigned kMaxProcesses = 256;
inline constexpr unsigned kMaxSharedHandles = 1024;
inline constexpr unsigned kMaxOffers = 4096;

struct SharedTable;  // physical.cpp

// What an importing process must learn about a handle.
struct SharedHandleInfo {
    int device;
    std::uint64_t bytes;
    bool gpu_direct;
};

// What a process offers to others under a key, for as long as it has it: the block of a legacy IPC handle, a pool,
// or an allocation of a pool. An offer keeps no memory.
struct Offer {
    int device;
    std::uint64_t bytes;
    std::uint64_t within;  // key of the pool that an allocation belongs to; 0: none
};

// When this thread last took or gave back pages, by CLOCK_MONOTONIC, while it held the lock that all processes share; 0: it
// never did.
std::uint64_t pages_changed_ns();

class Physical {
  public:
    // Attaches to the settings' devices. Returns "" or what is wrong. To be called once.
    std::string attach(const Settings& settings);

    // Takes `pages` pages of `device` for this process; false when there are not enough (or not enough
    // neighbouring ones). Collects the dead before it gives up. `free_after`: bytes then free on the device.
    bool allocate(int device, std::uint64_t pages, bool contiguous, std::vector<PageRun>& runs,
                  std::uint64_t& free_after);
    // Gives pages back; returns the bytes then free.
    std::uint64_t release(int device, const std::vector<PageRun>& runs);

    // Bytes free now, after collecting the dead.
    std::uint64_t free_bytes(int device);
    // Bytes free as last counted; does not collect.
    std::uint64_t free_bytes_now(int device) const;
    std::uint64_t page_size() const { return page_size_; }
    std::uint64_t capacity() const { return capacity_; }

    // Moves this process's pages to a shared handle that `key` (an inode number) names to importers; this process
    // holds it. Returns its index or -1 when the table is full.
    int share(const SharedHandleInfo& info, const std::vector<PageRun>& runs, std::uint64_t key);
    // Joins the holders of the handle named `key`; its index, or -1.
    int join(std::uint64_t key, SharedHandleInfo& info);
    // This process stops holding it. Returns true when that freed the pages.
    bool leave(int index, std::uint64_t& free_after);
    // No descriptor of the handle is open any more. Returns true when that freed the pages.
    bool descriptors_closed(int index, std::uint64_t& free_after);
    // Names the handle anew after its descriptors were closed; false when another process's may be open.
    bool rename(int index, std::uint64_t key);

    // A key that no other offer has, or 0 when the table is full.
    std::uint64_t offer(const Offer& offer);
    // Looks an offer up; false when it is withdrawn or its process has died. `own`: this process made it.
    bool find_offer(std::uint64_t key, Offer& offer, bool& own);
    void withdraw(std::uint64_t key);

    // Start time of a live process, as identity together with its pid; 0 when there is none.
    static std::uint64_t start_time(int pid);

  private:
    class Guard;

    std::uint16_t* owners(int device) const;
    void recount();
    bool try_allocate(int device, std::uint64_t pages, bool contiguous, std::vector<PageRun>& runs);
    void collect();
    void free_shared(unsigned index);
    std::string map_shared(const Settings& settings, std::size_t bytes);
    void lay_out(const Settings& settings, std::size_t bytes);
    std::string claim_slot();
    bool anyone_alive() const;
    void unlink_if_last();
    static void at_exit();

    SharedTable* table_ = nullptr;
    std::uint64_t page_size_ = 0;
    std::uint64_t capacity_ = 0;
    std::uint32_t pages_ = 0;
    unsigned devices_ = 0;
    unsigned slot_ = kMaxProcesses;  // none yet
    std::string name_;
};

}  // namespace fragscope::sim
