#include "view.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "physical_table.h"

namespace fragscope::sim {
namespace {

// The table as it is now: the last process to leave takes its name away, so it is looked up each time.
class OpenTable {
  public:
    explicit OpenTable(const std::string& name) {
        const int fd = ::shm_open((kSharedNamePrefix + name).c_str(), O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) return;
        struct stat status {};
        if (::fstat(fd, &status) == 0 && static_cast<std::size_t>(status.st_size) > sizeof(SharedTable)) {
            size_ = static_cast<std::size_t>(status.st_size);
            void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (memory != MAP_FAILED) table_ = static_cast<SharedTable*>(memory);
        }
        ::close(fd);
        if (table_ == nullptr || table_->magic != kMagic) return;
        if (::pthread_mutex_lock(&table_->mutex) == EOWNERDEAD) {
            recount(*table_);
            ::pthread_mutex_consistent(&table_->mutex);
        }
        locked_ = true;
    }
    ~OpenTable() {
        if (locked_) ::pthread_mutex_unlock(&table_->mutex);
        if (table_ != nullptr) ::munmap(table_, size_);
    }
    OpenTable(const OpenTable&) = delete;
    OpenTable& operator=(const OpenTable&) = delete;
    SharedTable* get() const { return locked_ ? table_ : nullptr; }

  private:
    SharedTable* table_ = nullptr;
    std::size_t size_ = 0;
    bool locked_ = false;
};

using Alive = std::array<bool, kMaxProcesses>;

// The slot whose process holds the memory of a handle; kMaxProcesses: none.
unsigned holder_of(const SharedHandle& handle, const Alive& alive) {
    const auto holds = [&](unsigned slot) {
        return slot < kMaxProcesses && alive[slot] && (handle.holders[slot / 64] >> (slot % 64) & 1) != 0;
    };
    if (handle.exporter >= 0 && holds(static_cast<unsigned>(handle.exporter))) {
        return static_cast<unsigned>(handle.exporter);
    }
    for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
        if (holds(slot)) return slot;
    }
    return kMaxProcesses;
}

void look_at_shared(SharedTable& table, int device, DeviceView& view) {
    view.capacity = table.capacity;
    view.reserve = table.reserve;
    Alive alive{};
    for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
        const ProcessSlot& process = table.slots[slot];
        alive[slot] = process.pid != 0 && Physical::start_time(process.pid) == process.start;
    }
    std::array<std::uint64_t, kMaxProcesses> pages{};
    std::uint64_t taken = 0;
    const std::uint16_t* owners = owners_of(table, device);
    for (std::uint32_t page = 0; page < table.pages; ++page) {
        const std::uint16_t owner = owners[page];
        if (owner == kFree) continue;
        if (owner == kReserved) {
            ++taken;
        } else if ((owner & kSharedBit) != 0) {
            const SharedHandle& handle = table.handles[(owner & ~kSharedBit) % kMaxSharedHandles];
            const unsigned slot = holder_of(handle, alive);
            const bool kept = handle.descriptors != 0 && handle.exporter >= 0 &&
                              alive[static_cast<unsigned>(handle.exporter) % kMaxProcesses];
            if (slot < kMaxProcesses) ++pages[slot];
            if (slot < kMaxProcesses || kept) ++taken;
        } else if (owner <= kMaxProcesses && alive[owner - 1U]) {
            ++pages[owner - 1U];
            ++taken;
        }
    }
    view.free = (table.pages - taken) * table.page_size;
    for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
        if (pages[slot] != 0) view.holders.push_back({table.slots[slot].pid, pages[slot] * table.page_size});
    }
}

}  // namespace

bool look_at(const Settings& settings, int device, DeviceView& view) {
    view = {settings.capacity, settings.driver_reserve, settings.capacity - settings.driver_reserve, {}};
    if (!settings.shared.empty()) {
        const OpenTable table(settings.shared);
        // No table: nobody uses the devices.
        if (table.get() != nullptr && static_cast<unsigned>(device) < table.get()->devices) {
            look_at_shared(*table.get(), device, view);
        }
        return true;
    }
    void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) return false;
    using FreeBytes = bool (*)(int, unsigned long long*);
    const auto free_bytes = reinterpret_cast<FreeBytes>(::dlsym(driver, "fragscope_sim_free_bytes"));
    ::dlclose(driver);  // the driver is never unloaded
    if (free_bytes == nullptr) return false;
    unsigned long long free = 0;
    if (free_bytes(device, &free)) {
        view.free = free;
        const std::uint64_t own = settings.capacity - settings.driver_reserve - free;
        if (own != 0) view.holders.push_back({::getpid(), own});
    }
    return true;
}

}  // namespace fragscope::sim
