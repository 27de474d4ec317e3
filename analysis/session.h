// The processes of a trace together: which devices they share (joined by UUID), and what each held at one
// moment. Sequence numbers order one process only; between processes there is nothing but the clock, so what
// another process held is an interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/activity.h"
#include "analysis/failures.h"
#include "analysis/framework.h"
#include "analysis/quantity.h"
#include "analysis/seeker.h"
#include "analysis/state.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// "GPU-00112233-4455-…"; empty if the trace has no UUID for this ordinal of this process.
std::string device_uuid(const Trace& trace, ProcessIndex process, int ordinal);
// The ordinal that the process has for the device, or kNoDevice.
int ordinal_of(const Trace& trace, ProcessIndex process, const std::string& uuid);
const trace::Device* device_of(const Trace& trace, ProcessIndex process, int ordinal);
// Who says the capacities of the trace's devices.
const char* capacity_source(const Trace& trace);
// "process 2 (pid 4711, train)".
std::string process_in_words(const Trace& trace, ProcessIndex process);
std::map<int, std::uint64_t> pages_of(const Trace& trace, ProcessIndex process);

// What another process was charged for on the device while the failure happened.
struct OtherProcess {
    ProcessIndex process;
    std::string name;  // "process 2 (pid 4711, train)"
    Interval charged;
};

// When the first acquisition from an event on began: it has its number when its call ends. Lower where that
// is not known exactly, as far behind the event.
class Begins {
  public:
    explicit Begins(const EventLog& events) : events_(&events) {}
    std::uint64_t operator()(std::size_t index);

  private:
    const EventLog* events_;
    std::size_t first_ = 0;
    std::vector<std::uint64_t> known_;  // of events from first_ on
};

// The other processes of a session at given moments, by the clock.
class Neighbours {
  public:
    explicit Neighbours(const Trace& trace);
    // What processes other than `self` held on the device; empty if there are none or they do not use it.
    // Where `from_ns` falls from one call to the next, everything is replayed: dear, so rarely wanted.
    std::vector<OtherProcess> at(ProcessIndex self, const std::string& uuid, std::uint64_t from_ns,
                                 std::uint64_t to_ns);
    // What processes other than `self` had imported (cuIpcOpenMemHandle) and not closed at the moment of the
    // last `at`: identities of the exported descriptions.
    std::set<std::uint64_t> imported(ProcessIndex self) const;

  private:
    // What a process held on each of its devices before a call and after it, as Cursor::ordinals.
    struct Call {
        std::uint64_t start_ns = 0;
        std::uint64_t end_ns = 0;
        std::vector<Interval> before, after;
    };
    struct Cursor {
        ProcessState state;
        std::size_t next = 0;
        std::vector<int> ordinals;
        Begins begins;
        // Calls that are in `state` already and were under way at the last moment, or came in it: they may
        // still be, or not yet, if that moment was longer.
        std::vector<Call> under_way;
        std::uint64_t from_ns = 0;  // of the last moment
    };
    static std::vector<Interval> books_of(const Cursor& cursor);
    // While another process had it checkpointed, its memory was not on the device.
    struct Absence {
        std::uint64_t from_ns = 0;
        std::uint64_t to_ns = UINT64_MAX;
    };
    void find_checkpoints();

    const Trace& trace_;
    std::vector<Cursor> cursors_;
    std::vector<std::vector<Absence>> absent_;  // by process
};

// Replays all processes up to one failure after the other. The order of `list_failures` is cheap; so is any
// other where `copies` of the state are kept (see StateSeeker), else going back replays a process from its
// beginning.
class SessionWalk {
  public:
    // Told of each event of each process once, in the order of its process, with the state after it.
    using Watcher = std::function<void(ProcessIndex, const ProcessState&, const Event&)>;
    // The same without a state, for many events at a time; see StateSeeker::Reader.
    using Reader = std::function<void(ProcessIndex, std::span<const Event>)>;

    explicit SessionWalk(const Trace& trace, Watcher watcher = nullptr, std::size_t copies = 1,
                         Reader reader = nullptr);

    // Moves to the failure's moment, also back to it: what a framework's allocator gave up is looked at where
    // the driver refused, and other threads may have failed since.
    void advance(const Failure& failure, const FailureSnapshot& snapshot);
    const ProcessState& failing() const { return own_[current_].state(); }
    const FrameworkState& failing_framework() const { return own_[current_].framework(); }
    // Replays the rest of the process, up to its end.
    const ProcessState& at_the_end(ProcessIndex process);
    // The process before the event of this index.
    const ProcessState& at(ProcessIndex process, std::size_t index);
    // What its framework's allocator held, as far as the process was replayed.
    const FrameworkState& framework(ProcessIndex process) const { return own_[process.value].framework(); }
    // What CUPTI said of the process, beside its calls; found out at the first question.
    const Activity& activity(ProcessIndex process);
    // The other processes at that time on this device; see Neighbours.
    std::vector<OtherProcess> others(const std::string& uuid, std::uint64_t from_ns, std::uint64_t to_ns);
    // What they had imported then; see Neighbours.
    std::set<std::uint64_t> imported() const;

  private:
    const Trace& trace_;
    std::vector<StateSeeker> own_;  // read when the process is the failing one: by sequence
    Neighbours neighbours_;         // read when it is another's neighbour: by time
    std::map<ProcessIndex, Activity> activities_;
    std::size_t current_ = 0;
};

// The state of a process before its first event.
ProcessState state_of(const Trace& trace, ProcessIndex process);

}  // namespace fragscope::analysis
