// Failed calls of a trace, and what the driver said right after each: the failure's own snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/trace.h"

namespace fragscope::analysis {

inline constexpr std::uint16_t kInvalidValue = 1;  // CUDA_ERROR_INVALID_VALUE of cuda.h
inline constexpr std::uint16_t kOutOfMemory = 2;   // CUDA_ERROR_OUT_OF_MEMORY

struct Failure {
    std::uint32_t number = 0;  // from 1, by time over all processes
    ProcessIndex process;
    std::size_t index = 0;  // in Trace::events of the process
    bool allocation =
        false;  // out of memory, in a call that takes memory or address space; otherwise another error
};

// A failed call of the program itself, or a request that its framework's allocator gave up. The shim's own
// questions are not the program's failures.
bool is_failure(const Event& event);

// All of them, in order of time.
std::vector<Failure> list_failures(const Trace& trace);

// The failure that `explain` speaks of when none is named: the last failed allocation, or nothing.
std::optional<std::uint32_t> default_failure(const std::vector<Failure>& failures);

// What the driver said about one pool. Absent: not asked or not answered.
struct PoolWord {
    std::optional<std::uint64_t> used;
    std::optional<std::uint64_t> reserved;
    std::optional<std::uint64_t> threshold;
    std::optional<std::uint64_t> used_high;
    std::optional<std::uint64_t> reserved_high;
    std::optional<std::uint64_t> maximum;
    int device = kNoDevice;
};

struct DeviceWord {
    std::uint64_t free = 0;
    std::uint64_t total = 0;  // 0: not told (a framework's snapshot)
    std::size_t index = 0;  // of the event: the books are to be read up to there (excluded)
};

// What the driver said of the memory that graphs hold on a device.
struct GraphWord {
    std::uint64_t used = 0;
    std::uint64_t reserved = 0;
};

// Numbers asked for by the shim between the failed call and kFailureSnapshotEnd, on the failed call's thread.
// Numbers of other moments never enter it.
struct FailureSnapshot {
    bool complete = false;   // its end was recorded
    std::size_t moment = 0;  // index of the event up to which (excluded) the books are to be read
    bool captured = false;   // a stream capture was running somewhere in the process: nothing was asked
    // The shim was not answered, and these are the numbers that the framework's allocator itself asked for
    // before it gave up.
    bool by_program = false;
    bool no_context = false;            // none was current on the thread: no device was asked
    std::uint64_t pools_not_asked = 0;  // more than the shim keeps
    std::map<int, DeviceWord> devices;  // by ordinal
    std::map<ObjectId, PoolWord> pools;
    std::map<int, GraphWord> graphs;  // by ordinal
};

// Takes one answer of the driver in, if it is one: `index` of its event.
void note_answer(FailureSnapshot& snapshot, const Event& event, std::size_t index);

FailureSnapshot snapshot_of(const EventLog& events, std::size_t failed);

}  // namespace fragscope::analysis
