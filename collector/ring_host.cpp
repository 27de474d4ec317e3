#include "collector/ring_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <random>

#include "collector/liveness.h"

namespace fragscope::collector {

namespace ipc = boost::interprocess;

namespace {

constexpr char kNamePrefix[] = "fragscope-";
constexpr std::uint64_t kProcessesOffset = 4096;
constexpr std::uint64_t kRingsOffset =
    kProcessesOffset + std::uint64_t{kProcessSlots} * sizeof(wire::ProcessSlot);
static_assert(kRingsOffset % alignof(wire::RingHeader) == 0);

std::uint64_t bytes_for(std::uint32_t ring_records) {
    return wire::session_bytes(kRingsOffset, kRings, ring_records);
}

// Largest power of two of records per ring that keeps the session within `bytes`.
std::uint32_t ring_records_for(std::uint64_t bytes) {
    const std::uint64_t per_ring = bytes / kRings / sizeof(wire::Record);
    if (per_ring <= kMinRingRecords) return kMinRingRecords;
    return static_cast<std::uint32_t>(std::bit_floor(std::min<std::uint64_t>(per_ring, kMaxRingRecords)));
}

std::string in_mib(std::uint64_t bytes) {
    return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// "/fragscope-<pid>-<start time>-<random>": the first two let a later collector see whether the owner is
// still there.
std::string new_name() {
    std::random_device random;
    return fmt::format("/{}{}-{}-{:08x}{:08x}", kNamePrefix, ::getpid(), process_start_time(::getpid()),
                       random(), random());
}

// Another process may have been given the number since.
bool may_run(int pid, unsigned long long start_time) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
    const std::uint64_t seen = process_start_time(pid);
    return seen == 0 || start_time == 0 || seen == start_time;
}

}  // namespace

std::uint64_t min_session_bytes() { return bytes_for(kMinRingRecords); }
std::uint64_t max_session_bytes() { return bytes_for(kMaxRingRecords); }

int RingHost::reserve_by_fallocate(int fd, std::uint64_t bytes) {
    int error = 0;
    do {
        error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
    return error;
}

RingHost::Created RingHost::create(const SessionOptions& options, const Reserve& reserve) {
    std::unique_ptr<RingHost> host(new RingHost);
    host->name_ = new_name();
    host->clock_ = options.clock;
    const std::uint32_t wanted = ring_records_for(options.bytes);
    try {
        host->memory_ = ipc::shared_memory_object(ipc::create_only, host->name_.c_str(), ipc::read_write,
                                                  ipc::permissions(0600));
        const int fd = host->memory_.get_mapping_handle().handle;
        // Held as long as this process lives: tells a live session from one whose owner was killed.
        (void)::flock(fd, LOCK_EX | LOCK_NB);
        int error = 0;
        for (host->ring_records_ = wanted;; host->ring_records_ /= 2) {
            error = reserve(fd, bytes_for(host->ring_records_));
            if (error == 0 || host->ring_records_ <= kMinRingRecords) break;
            host->memory_.truncate(0);
        }
        if (error == EFBIG)
            return {
                nullptr,
                fmt::format("the file-size limit of this shell (ulimit -f) is below the {} of shared memory "
                            "that a recording needs",
                            in_mib(bytes_for(kMinRingRecords)))};
        if (error != 0)
            return {
                nullptr,
                fmt::format("cannot reserve {} of shared memory in /dev/shm ({}); free some there, or make "
                            "it larger (in Docker: --shm-size)",
                            in_mib(bytes_for(kMinRingRecords)), std::strerror(error))};
        host->region_ = ipc::mapped_region(host->memory_, ipc::read_write, 0, bytes_for(host->ring_records_));
    } catch (const ipc::interprocess_exception& e) {
        return {nullptr, fmt::format("cannot make the shared memory for the recording: {}", e.what())};
    }
    host->lay_out(options);
    std::string problem;
    if (host->ring_records_ < wanted)
        problem =
            fmt::format("/dev/shm has no room for {} of buffers: recording with {}, so bursts may be lost",
                        in_mib(bytes_for(wanted)), in_mib(host->bytes()));
    else if (host->bytes() < options.bytes / 4 * 3)
        problem =
            fmt::format("of the {} of buffers asked for {} are taken, as a thread's part is a power of two",
                        in_mib(options.bytes), in_mib(host->bytes()));
    return {std::move(host), std::move(problem)};
}

void RingHost::lay_out(const SessionOptions& options) {
    // Fresh shared memory is zero, and zero is a free slot.
    auto* header = ::new (region_.get_address()) wire::SessionHeader{};
    header->layout_version = wire::kLayoutVersion;
    header->header_bytes = sizeof(wire::SessionHeader);
    header->total_bytes = region_.get_size();
    header->processes_offset = kProcessesOffset;
    header->rings_offset = kRingsOffset;
    header->process_slots = kProcessSlots;
    header->ring_count = kRings;
    header->ring_records = ring_records_;
    header->clock = options.clock;
    header->wait_ns = options.wait_ns;
    header->record_touches = options.record_touches ? 1 : 0;
    header->record_calls = options.record_calls ? 1 : 0;
    header->stack_bytes = options.stack_bytes;
    header->stack_failures = options.stack_failures ? 1 : 0;
    header->probe_on_oom = options.probe_on_oom ? 1 : 0;
    header->probe_ns = options.probe_ns;
    header->probe_bytes = options.probe_bytes;
    header->sample_ns = options.sample_ns;
    header->sample_bytes = options.sample_bytes;
    header->cupti = options.cupti;
    header->collector_pid = ::getpid();
    header->collector_state.store(wire::CollectorState::kRunning, std::memory_order_release);
    std::atomic_ref(header->magic).store(wire::kMagic, std::memory_order_release);
}

RingHost::~RingHost() {
    if (!name_.empty()) ipc::shared_memory_object::remove(name_.c_str());
}

wire::ProcessSlot& RingHost::process_slot(std::uint32_t i) {
    return reinterpret_cast<wire::ProcessSlot*>(static_cast<char*>(region_.get_address()) +
                                                kProcessesOffset)[i];
}

wire::RingHeader& RingHost::ring(std::uint32_t i) {
    return reinterpret_cast<wire::RingHeader*>(static_cast<char*>(region_.get_address()) + kRingsOffset)[i];
}

const wire::Record* RingHost::records(std::uint32_t ring) {
    return reinterpret_cast<const wire::Record*>(
        static_cast<const char*>(region_.get_address()) +
        wire::ring_records_offset(kRingsOffset, kRings, ring_records_, ring));
}

int remove_stale_sessions(const std::string& directory) {
    DIR* listing = ::opendir(directory.c_str());
    if (listing == nullptr) return 0;
    int removed = 0;
    while (const dirent* entry = ::readdir(listing)) {
        int pid = 0;
        unsigned long long start_time = 0;
        if (std::sscanf(entry->d_name, "fragscope-%d-%llu-", &pid, &start_time) != 2 || pid <= 0) continue;
        if (may_run(pid, start_time)) continue;
        const int fd =
            ::openat(::dirfd(listing), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        struct stat status {};
        // The lock still tells of an owner whose number means nothing here: one in another PID namespace.
        const bool stale = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                           status.st_uid == ::geteuid() && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (stale && ::unlinkat(::dirfd(listing), entry->d_name, 0) == 0) ++removed;
        ::close(fd);
    }
    ::closedir(listing);
    return removed;
}

}  // namespace fragscope::collector
