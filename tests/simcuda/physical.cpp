#include "physical.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "physical_table.h"

namespace fragscope::sim {
namespace {

Physical* g_attached = nullptr;  // for the exit handler
thread_local std::uint64_t g_changed_ns = 0;

std::uint64_t now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t pages_changed_ns() { return g_changed_ns; }

class Physical::Guard {
  public:
    explicit Guard(Physical& physical) : mutex_(&physical.table_->mutex) {
        if (::pthread_mutex_lock(mutex_) == EOWNERDEAD) {
            // The holder died inside: counts may be stale, owners are not.
            physical.recount();
            ::pthread_mutex_consistent(mutex_);
        }
    }
    ~Guard() { ::pthread_mutex_unlock(mutex_); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

  private:
    pthread_mutex_t* mutex_;
};

std::uint64_t Physical::start_time(int pid) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[1024];
    const ssize_t got = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (got <= 0) return 0;
    text[got] = '\0';
    // Field 2 is the name in parentheses and may hold spaces; field 3 is the state, field 22 the start time.
    const char* at = std::strrchr(text, ')');
    if (at == nullptr || at[1] != ' ') return 0;
    if (at[2] == 'Z' || at[2] == 'X') return 0;  // dead already, only not waited for
    for (int field = 2; field < 22 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
    return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

std::uint16_t* Physical::owners(int device) const { return owners_of(*table_, device); }

void Physical::recount() { sim::recount(*table_); }

void Physical::lay_out(const Settings& s, std::size_t bytes) {
    std::memset(static_cast<void*>(table_), 0, bytes);
    table_->page_size = s.page_size;
    table_->capacity = s.capacity;
    table_->reserve = s.driver_reserve;
    table_->devices = devices_;
    table_->pages = pages_;
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&table_->mutex, &attributes);
    ::pthread_mutexattr_destroy(&attributes);
    const std::uint64_t reserved = (s.driver_reserve + page_size_ - 1) / page_size_;
    for (unsigned device = 0; device < devices_; ++device) {
        std::uint16_t* owner = owners(static_cast<int>(device));
        std::fill(owner + pages_ - reserved, owner + pages_, kReserved);
    }
    recount();
    table_->magic = kMagic;
}

bool Physical::anyone_alive() const {
    return std::any_of(std::begin(table_->slots), std::end(table_->slots), [](const ProcessSlot& slot) {
        return slot.pid != 0 && start_time(slot.pid) == slot.start;
    });
}

std::string Physical::map_shared(const Settings& s, std::size_t bytes) {
    name_ = kSharedNamePrefix + s.shared;
    const std::string what = "shared = " + s.shared + ": ";
    for (int attempt = 0; attempt < 100; ++attempt) {
        const int fd = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return what + "shm_open: " + std::strerror(errno);
        // Held while attaching and while the last process unlinks; the kernel drops it with its holder.
        ::flock(fd, LOCK_EX);
        struct stat opened {}, named {};
        ::fstat(fd, &opened);
        const int again = ::shm_open(name_.c_str(), O_RDONLY | O_CLOEXEC, 0600);
        const bool current = again >= 0 && ::fstat(again, &named) == 0 && named.st_ino == opened.st_ino;
        if (again >= 0) ::close(again);
        if (!current) {  // unlinked between our open and our lock
            ::close(fd);
            continue;
        }
        std::string wrong;
        const auto existing = static_cast<std::size_t>(opened.st_size);
        if (existing < bytes) {
            // posix_fallocate so that a full /dev/shm is an error here and never a SIGBUS later.
            if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
                wrong = "cannot allocate " + std::to_string(bytes) + " bytes: " + std::strerror(error);
            }
        }
        void* memory = MAP_FAILED;
        const std::size_t length = std::max(bytes, existing);
        if (wrong.empty()) {
            memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (memory == MAP_FAILED) wrong = std::string("mmap: ") + std::strerror(errno);
        }
        if (wrong.empty()) {
            table_ = static_cast<SharedTable*>(memory);
            const bool usable = existing >= sizeof(SharedTable) && table_->magic == kMagic;
            const bool same = usable && table_->devices == devices_ && table_->page_size == page_size_ &&
                              table_->capacity == capacity_ && table_->reserve == s.driver_reserve &&
                              table_->pages == pages_;
            if (!usable || !anyone_alive()) {
                lay_out(s, bytes);  // new, or left behind by processes that are gone
            } else if (!same) {
                wrong = "processes that run now use it with " + std::to_string(table_->devices) +
                        " devices of " + std::to_string(table_->capacity) + " bytes, pages of " +
                        std::to_string(table_->page_size) + " and a reserve of " +
                        std::to_string(table_->reserve) + "; this one is set differently";
            }
        }
        if (wrong.empty()) wrong = claim_slot();
        ::flock(fd, LOCK_UN);  // the mapping keeps the open file, and so the lock, beyond close()
        ::close(fd);
        return wrong.empty() ? "" : what + wrong;
    }
    return what + "it is unlinked again and again";
}

std::string Physical::claim_slot() {
    Guard guard(*this);
    collect();
    for (unsigned i = 0; i < kMaxProcesses; ++i) {
        if (table_->slots[i].pid != 0) continue;
        table_->slots[i].start = start_time(::getpid());
        table_->slots[i].pid = ::getpid();
        slot_ = i;
        return "";
    }
    return "256 processes use it already";
}

std::string Physical::attach(const Settings& s) {
    page_size_ = s.page_size;
    capacity_ = s.capacity;
    pages_ = static_cast<std::uint32_t>(s.capacity / s.page_size);
    devices_ = s.devices;
    const std::size_t bytes = sizeof(SharedTable) + std::size_t{devices_} * pages_ * sizeof(std::uint16_t);
    if (!s.shared.empty()) {
        std::string wrong = map_shared(s, bytes);
        if (wrong.empty()) {
            g_attached = this;
            std::atexit(&Physical::at_exit);
        }
        return wrong;
    }
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return std::string("page table: mmap: ") + std::strerror(errno);
    table_ = static_cast<SharedTable*>(memory);
    lay_out(s, bytes);
    return claim_slot();
}

void Physical::at_exit() { g_attached->unlink_if_last(); }

// Only the name goes: frees that static destructors still make find the mapping, and the pages of this process
// are given back when somebody sees that it is gone.
void Physical::unlink_if_last() {
    if (table_->slots[slot_].pid != ::getpid()) return;  // a child of fork()
    const int fd = ::shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return;
    ::flock(fd, LOCK_EX);
    bool others = false;
    for (unsigned i = 0; i < kMaxProcesses; ++i) {
        const ProcessSlot& slot = table_->slots[i];
        others = others || (i != slot_ && slot.pid != 0 && start_time(slot.pid) == slot.start);
    }
    if (!others) ::shm_unlink(name_.c_str());
    ::close(fd);
}

// With the mutex held.
void Physical::collect() {
    bool died = false;
    for (unsigned i = 0; i < kMaxProcesses; ++i) {
        ProcessSlot& slot = table_->slots[i];
        if (slot.pid == 0 || i == slot_) continue;
        // A slot of our own pid that is not ours was this process before an exec, which ended its CUDA memory.
        if (slot.pid != ::getpid() && start_time(slot.pid) == slot.start) continue;
        died = true;
        const auto owner_value = static_cast<std::uint16_t>(i + 1);
        for (unsigned device = 0; device < devices_; ++device) {
            std::uint16_t* owner = owners(static_cast<int>(device));
            std::replace(owner, owner + pages_, owner_value, kFree);
        }
        for (SharedHandle& handle : table_->handles) {
            if (handle.used == 0) continue;
            handle.holders[i / 64] &= ~(std::uint64_t{1} << (i % 64));
            // Whether its descriptors are still open elsewhere cannot be known any more.
            if (handle.exporter == static_cast<int>(i)) handle.descriptors = 0;
        }
        for (SharedOffer& offer : table_->offers) {
            if (offer.key != 0 && offer.slot == static_cast<int>(i)) offer.key = 0;
        }
        slot.pid = 0;
    }
    if (!died) return;
    for (unsigned i = 0; i < kMaxSharedHandles; ++i) {
        if (table_->handles[i].used != 0) free_shared(i);
    }
    recount();
}

// Frees the pages of a shared handle that nobody holds. With the mutex held.
void Physical::free_shared(unsigned index) {
    SharedHandle& handle = table_->handles[index];
    const bool held = std::any_of(std::begin(handle.holders), std::end(handle.holders),
                                  [](std::uint64_t word) { return word != 0; });
    if (held || handle.descriptors != 0) return;
    if (handle.device < 0 || handle.device >= static_cast<int>(devices_)) return;
    std::uint16_t* owner = owners(handle.device);
    const auto value = static_cast<std::uint16_t>(kSharedBit | index);
    std::replace(owner, owner + pages_, value, kFree);
    handle.used = 0;
    recount();
    g_changed_ns = now_ns();
}

bool Physical::try_allocate(int device, std::uint64_t pages, bool contiguous, std::vector<PageRun>& runs) {
    runs.clear();
    if (table_->free_pages[device] < pages) return false;
    std::uint16_t* owner = owners(device);
    const auto mine = static_cast<std::uint16_t>(slot_ + 1);
    std::uint32_t& hint = table_->first_maybe_free[device];
    std::uint64_t missing = pages;
    std::uint32_t at = std::min(hint, pages_);
    bool skipped = false;
    while (missing > 0) {
        at = static_cast<std::uint32_t>(std::find(owner + at, owner + pages_, kFree) - owner);
        if (at == pages_) break;
        std::uint32_t end = at;
        while (end < pages_ && owner[end] == kFree && end - at < missing) ++end;
        const std::uint32_t count = end - at;
        if (contiguous && count < pages) {
            skipped = true;
        } else {
            runs.push_back({at, count});
            missing -= count;
        }
        at = end;
    }
    if (missing > 0) return runs.clear(), false;
    for (const PageRun& run : runs) std::fill(owner + run.first, owner + run.first + run.count, mine);
    table_->free_pages[device] -= pages;
    if (!skipped) hint = at;
    return true;
}

bool Physical::allocate(int device, std::uint64_t pages, bool contiguous, std::vector<PageRun>& runs,
                        std::uint64_t& free_after) {
    Guard guard(*this);
    bool done = pages <= pages_ && try_allocate(device, pages, contiguous, runs);
    if (!done && pages <= pages_) {
        collect();
        done = try_allocate(device, pages, contiguous, runs);
    }
    if (done) g_changed_ns = now_ns();
    free_after = table_->free_pages[device] * page_size_;
    return done;
}

std::uint64_t Physical::release(int device, const std::vector<PageRun>& runs) {
    Guard guard(*this);
    g_changed_ns = now_ns();
    std::uint16_t* owner = owners(device);
    for (const PageRun& run : runs) {
        std::fill(owner + run.first, owner + run.first + run.count, kFree);
        table_->free_pages[device] += run.count;
        table_->first_maybe_free[device] = std::min(table_->first_maybe_free[device], run.first);
    }
    return table_->free_pages[device] * page_size_;
}

std::uint64_t Physical::free_bytes(int device) {
    Guard guard(*this);
    collect();
    return table_->free_pages[device] * page_size_;
}

std::uint64_t Physical::free_bytes_now(int device) const { return table_->free_pages[device] * page_size_; }

int Physical::share(const SharedHandleInfo& info, const std::vector<PageRun>& runs, std::uint64_t key) {
    Guard guard(*this);
    for (unsigned i = 0; i < kMaxSharedHandles; ++i) {
        SharedHandle& handle = table_->handles[i];
        if (handle.used != 0) continue;
        handle = SharedHandle{};
        handle.descriptors = 1;
        handle.exporter = static_cast<std::int32_t>(slot_);
        handle.device = info.device;
        handle.gpu_direct = info.gpu_direct ? 1 : 0;
        handle.bytes = info.bytes;
        handle.key = key;
        handle.holders[slot_ / 64] |= std::uint64_t{1} << (slot_ % 64);
        handle.used = 1;
        std::uint16_t* owner = owners(info.device);
        for (const PageRun& run : runs) {
            std::fill(owner + run.first, owner + run.first + run.count, static_cast<std::uint16_t>(kSharedBit | i));
        }
        return static_cast<int>(i);
    }
    return -1;
}

int Physical::join(std::uint64_t key, SharedHandleInfo& info) {
    Guard guard(*this);
    collect();
    for (unsigned i = 0; i < kMaxSharedHandles; ++i) {
        SharedHandle& handle = table_->handles[i];
        if (handle.used == 0 || handle.key != key) continue;
        handle.holders[slot_ / 64] |= std::uint64_t{1} << (slot_ % 64);
        info = {handle.device, handle.bytes, handle.gpu_direct != 0};
        return static_cast<int>(i);
    }
    return -1;
}

bool Physical::leave(int index, std::uint64_t& free_after) {
    Guard guard(*this);
    SharedHandle& handle = table_->handles[index];
    const int device = handle.device;
    handle.holders[slot_ / 64] &= ~(std::uint64_t{1} << (slot_ % 64));
    free_shared(static_cast<unsigned>(index));
    free_after = table_->free_pages[device] * page_size_;
    return handle.used == 0;
}

bool Physical::descriptors_closed(int index, std::uint64_t& free_after) {
    Guard guard(*this);
    SharedHandle& handle = table_->handles[index];
    const int device = handle.device;
    handle.descriptors = 0;
    free_shared(static_cast<unsigned>(index));
    free_after = table_->free_pages[device] * page_size_;
    return handle.used == 0;
}

std::uint64_t Physical::offer(const Offer& offer) {
    Guard guard(*this);
    for (SharedOffer& each : table_->offers) {
        if (each.key != 0) continue;
        std::uint64_t key = 0;
        if (::getrandom(&key, sizeof key, 0) != sizeof key || key == 0) return 0;
        each.slot = static_cast<std::int32_t>(slot_);
        each.device = offer.device;
        each.bytes = offer.bytes;
        each.within = offer.within;
        each.key = key;
        return key;
    }
    return 0;
}

bool Physical::find_offer(std::uint64_t key, Offer& offer, bool& own) {
    Guard guard(*this);
    collect();
    for (const SharedOffer& each : table_->offers) {
        if (key == 0 || each.key != key) continue;
        offer = {each.device, each.bytes, each.within};
        own = each.slot == static_cast<int>(slot_);
        return true;
    }
    return false;
}

void Physical::withdraw(std::uint64_t key) {
    Guard guard(*this);
    for (SharedOffer& each : table_->offers) {
        if (key != 0 && each.key == key) each.key = 0;
    }
}

bool Physical::rename(int index, std::uint64_t key) {
    Guard guard(*this);
    SharedHandle& handle = table_->handles[index];
    if (handle.descriptors != 0) return false;
    handle.descriptors = 1;
    handle.exporter = static_cast<std::int32_t>(slot_);
    handle.key = key;
    return true;
}

}  // namespace fragscope::sim
