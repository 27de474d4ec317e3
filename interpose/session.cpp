#include "interpose/session.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "interpose/emit.h"
#include "interpose/state.h"

namespace fragscope::interpose {

constinit Session session;
constinit std::atomic<bool> use_tsc{false};
constinit std::atomic<std::uint64_t> sequence_counter{1};
constinit ForkPage fork_page{};

namespace {

enum Phase : std::uint32_t { kUntried = 0, kBusyAttaching = 1, kDone = 2 };

constinit std::atomic<std::uint32_t> attachments{0};  // survives a fork, so that a child's number is new

constexpr std::size_t kPage = 4096;

// Maps the session and copies what was checked. A child keeps the mapping that it inherited.
bool map_session() {
    if (session.header != nullptr) return true;
    const char* name = getenv(wire::kSessionVariable);
    if (name == nullptr || name[0] != '/') return false;
    const int file = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (file < 0) return false;
    struct stat status;
    void* memory = MAP_FAILED;
    const bool sized = fstat(file, &status) == 0 && static_cast<std::size_t>(status.st_size) >= kPage;
    const std::size_t size = sized ? static_cast<std::size_t>(status.st_size) : 0;
    if (sized) memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return false;

    auto* header = static_cast<wire::SessionHeader*>(memory);
    const bool ours = header->magic == wire::kMagic && header->layout_version == wire::kLayoutVersion &&
                      header->header_bytes == sizeof(wire::SessionHeader) && header->total_bytes <= size;
    const std::uint64_t total = ours ? header->total_bytes : 0;
    const std::uint64_t processes = ours ? header->processes_offset : 0;
    const std::uint64_t rings = ours ? header->rings_offset : 0;
    const std::uint32_t slots = ours ? header->process_slots : 0;
    const std::uint32_t ring_count = ours ? header->ring_count : 0;
    const std::uint32_t records = ours ? header->ring_records : 0;
    const wire::Clock clock = ours ? header->clock : wire::Clock::kMonotonic;
    const wire::CuptiMode cupti = ours ? header->cupti : wire::CuptiMode::kOff;
    const bool fits =
        ours && slots != 0 && ring_count != 0 && records >= 2 && (records & (records - 1)) == 0 &&
        slots <= 1u << 16 && ring_count <= 1u << 16 && records <= 1u << 24 &&
        processes >= sizeof(wire::SessionHeader) && processes % alignof(wire::ProcessSlot) == 0 &&
        processes <= total && slots <= (total - processes) / sizeof(wire::ProcessSlot) &&
        rings >= processes + slots * sizeof(wire::ProcessSlot) && rings % alignof(wire::RingHeader) == 0 &&
        rings <= total && wire::session_bytes(rings, ring_count, records) <= total &&
        (clock == wire::Clock::kMonotonic || clock == wire::Clock::kTsc) &&
        (cupti == wire::CuptiMode::kOff || cupti == wire::CuptiMode::kAuto || cupti == wire::CuptiMode::kOn);
    if (!fits) {
        munmap(memory, size);
        return false;
    }
    session.base = static_cast<unsigned char*>(memory);
    session.rings = reinterpret_cast<wire::RingHeader*>(session.base + rings);
    session.rings_offset = rings;
    session.wait_ns = header->wait_ns;
    session.ring_count = ring_count;
    session.ring_records = records;
    session.touches = header->record_touches != 0;
    session.calls = header->record_calls != 0;
    session.stack_failures = header->stack_failures != 0;
    session.probe_on_oom = header->probe_on_oom != 0;
    session.stack_bytes = header->stack_bytes;
    session.probe_ns = header->probe_ns;
    session.probe_bytes = header->probe_bytes;
    session.sample_ns = header->sample_ns;
    session.sample_bytes = header->sample_bytes;
    session.cupti = cupti;
#if defined(__x86_64__)
    use_tsc.store(clock == wire::Clock::kTsc, std::memory_order_relaxed);
#else
    if (clock == wire::Clock::kTsc) {
        munmap(memory, size);
        return false;
    }
#endif
    session.header = header;
    return true;
}

// Field 22 of /proc/self/stat; 0 if it cannot be read.
std::uint64_t own_start_time() {
    char text[1024];
    const std::size_t length = read_file("/proc/self/stat", text, sizeof text - 1);
    text[length] = '\0';
    const char* at = strrchr(text, ')');  // the command's name may hold anything
    for (int field = 2; at != nullptr && field < 22; ++field) {
        at = strchr(at, ' ');
        if (at != nullptr) ++at;
    }
    return at == nullptr ? 0 : strtoull(at, nullptr, 10);
}

bool claim_slot() {
    const std::uint32_t count = session.header->process_slots;
    auto* slots = reinterpret_cast<wire::ProcessSlot*>(session.base + session.header->processes_offset);
    const auto pid = static_cast<std::int32_t>(getpid());
    const std::uint64_t start = own_start_time();
    struct stat space;
    const std::uint64_t pid_namespace = stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;

    // The image that this process ran before exec: nobody else can say that it is gone.
    for (std::uint32_t i = 0; i < count; ++i) {
        wire::ProcessSlot& old = slots[i];
        if (old.state.load(std::memory_order_acquire) != wire::SlotState::kLive || old.pid != pid ||
            start == 0 || old.start_time != start || old.pid_namespace != pid_namespace)
            continue;
        for (std::uint32_t r = 0; r < session.ring_count; ++r)
            if (session.rings[r].process == i) {
                wire::SlotState live = wire::SlotState::kLive;
                session.rings[r].state.compare_exchange_strong(live, wire::SlotState::kReleased);
            }
        wire::SlotState live = wire::SlotState::kLive;
        old.state.compare_exchange_strong(live, wire::SlotState::kReleased);
    }

    for (std::uint32_t i = 0; i < count; ++i) {
        wire::SlotState free_slot = wire::SlotState::kFree;
        if (!slots[i].state.compare_exchange_strong(free_slot, wire::SlotState::kClaimed)) continue;
        slots[i].pid = pid;
        slots[i].start_time = start;
        slots[i].pid_namespace = pid_namespace;
        session.slot = &slots[i];
        session.process = i;
        slots[i].state.store(wire::SlotState::kLive, std::memory_order_release);
        return true;
    }
    session.header->processes_refused.fetch_add(1, std::memory_order_relaxed);
    return false;
}

bool attach_now() {
    // A kernel older than 4.14 refuses: there a child could write into its parent's ring.
    if (madvise(&fork_page, sizeof fork_page, MADV_WIPEONFORK) != 0) return false;
    if (!map_session() || session.header->collector_state.load() != wire::CollectorState::kRunning)
        return false;
    if (!claim_slot()) return false;
    sequence_counter.store(1, std::memory_order_relaxed);
    reset_process_state();
    fork_page.generation.store(attachments.fetch_add(1) + 1, std::memory_order_release);
    return true;
}

}  // namespace

std::size_t read_file(const char* path, char* out, std::size_t size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    std::size_t length = 0;
    while (length < size) {
        const ssize_t got = read(file, out + length, size - length);
        if (got <= 0) break;
        length += static_cast<std::size_t>(got);
    }
    close(file);
    return length;
}

bool attach_first() {
    const int saved = errno;
    bool done = false;
    std::uint32_t phase = kUntried;
    if (fork_page.phase.compare_exchange_strong(phase, kBusyAttaching, std::memory_order_acq_rel)) {
        done = attach_now();
        if (!done) fork_page.generation.store(kOff, std::memory_order_release);
        fork_page.phase.store(kDone, std::memory_order_release);
        if (done) announce_process();
    } else {
        // Another thread is at it, which takes a few system calls. Should it take longer, do without the
        // record.
        for (int turn = 0; turn < 400 && fork_page.phase.load(std::memory_order_acquire) == kBusyAttaching;
             ++turn) {
            const timespec nap{0, 50'000};
            nanosleep(&nap, nullptr);
        }
        done = attached();
    }
    errno = saved;
    return done;
}

bool collector_alive() {
    if (session.header->collector_state.load(std::memory_order_acquire) != wire::CollectorState::kRunning)
        return false;
    const auto pid = static_cast<pid_t>(session.header->collector_pid);
    return pid <= 0 || kill(pid, 0) == 0 || errno == EPERM;
}

}  // namespace fragscope::interpose
