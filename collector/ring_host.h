// Owns the session's shared memory: makes it, lays it out, takes it away. Its memory is reserved before
// anybody attaches, so that no write to it can ever fail (a full /dev/shm gives SIGBUS on first touch
// otherwise).
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proto/wire.h"

namespace fragscope::collector {

inline constexpr std::uint32_t kProcessSlots = 1024;
inline constexpr std::uint32_t kRings = 512;
inline constexpr std::uint32_t kMinRingRecords = 128;
inline constexpr std::uint32_t kMaxRingRecords = 1u << 24;
inline constexpr std::uint64_t kDefaultSessionBytes = std::uint64_t{128} << 20;
// The smallest session: kRings rings of kMinRingRecords records and the headers; about 4.7 MiB.
std::uint64_t min_session_bytes();
// The largest: some 512 GiB, more than anything needs.
std::uint64_t max_session_bytes();

struct SessionOptions {
    std::uint64_t bytes = kDefaultSessionBytes;  // of shared memory, about: rings are a power of two long
    std::uint64_t wait_ns = 5'000'000;           // see SessionHeader::wait_ns; 0: drop at once
    bool record_touches = true;
    bool record_calls = false;                     // launches, copies, memsets and questions as calls of their own
    std::uint64_t stack_bytes = UINT64_MAX;        // call stacks of acquisitions from this size on; UINT64_MAX: of none
    bool stack_failures = false;                   // call stacks of failed acquisitions
    bool probe_on_oom = false;                     // see SessionHeader
    std::uint64_t probe_ns = 0;
    std::uint64_t probe_bytes = 0;
    std::uint64_t sample_ns = UINT64_MAX;          // ask the driver for its numbers at most so often; UINT64_MAX: never
    std::uint64_t sample_bytes = UINT64_MAX;       // and once so many bytes changed hands since; UINT64_MAX: never
    wire::CuptiMode cupti = wire::CuptiMode::kOff;  // beside the intercepted calls, what CUPTI says
    wire::Clock clock = wire::Clock::kMonotonic;
};

class RingHost {
  public:
    // Reserves `bytes` of memory for the object; returns 0 or an error number, as posix_fallocate does.
    using Reserve = std::function<int(int fd, std::uint64_t bytes)>;
    struct Created {
        std::unique_ptr<RingHost> host;  // null: `problem` says why
        std::string problem;             // with a host: smaller than asked, and why; else empty
    };
    static Created create(const SessionOptions& options, const Reserve& reserve = reserve_by_fallocate);
    static int reserve_by_fallocate(int fd, std::uint64_t bytes);

    ~RingHost();
    RingHost(const RingHost&) = delete;
    RingHost& operator=(const RingHost&) = delete;

    const std::string& name() const { return name_; }
    std::uint32_t ring_records() const { return ring_records_; }
    wire::Clock clock() const { return clock_; }
    std::uint64_t bytes() const { return region_.get_size(); }
    // The region is written by strangers: only what this class computed itself is used to find things in it.
    wire::SessionHeader& header() { return *reinterpret_cast<wire::SessionHeader*>(region_.get_address()); }
    wire::ProcessSlot& process_slot(std::uint32_t i);
    wire::RingHeader& ring(std::uint32_t i);
    const wire::Record* records(std::uint32_t ring);

    // Whoever is attached stops recording.
    void close() {
        header().collector_state.store(wire::CollectorState::kClosing, std::memory_order_release);
    }

  private:
    RingHost() = default;
    void lay_out(const SessionOptions& options);

    boost::interprocess::shared_memory_object memory_;
    boost::interprocess::mapped_region region_;
    std::string name_;
    std::uint32_t ring_records_ = 0;
    wire::Clock clock_ = wire::Clock::kMonotonic;
};

// Takes away sessions of this user whose collector is gone. Returns how many.
int remove_stale_sessions(const std::string& directory = "/dev/shm");

}  // namespace fragscope::collector
