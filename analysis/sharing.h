// Memory that crosses processes of one trace: who exported it, who opened it, and who gave it up first.
//
// Two sides are told to be the same where both records carry the identity of the exported description (IPC
// handles, exported pool pointers). Descriptions of physical handles pass outside of the driver, so of them
// no more is known than that one process exported some and another imported some. Between processes there is
// nothing but the clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/extent_map.h"
#include "analysis/state.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

// A span of time of the session's clock; an absent end: not seen.
struct Held {
    std::uint64_t from_ns = 0;
    std::optional<std::uint64_t> until_ns;
    bool at(std::uint64_t time_ns) const { return from_ns <= time_ns && (!until_ns || *until_ns > time_ns); }
};

struct SharedImport {
    ProcessIndex process;
    std::uint64_t address = 0;
    Held held;
};

// One exported allocation with an identity.
struct SharedMemory {
    ProcessIndex exporter;
    std::uint64_t identity = 0;
    bool pool_pointer = false;  // of a stream-ordered pool; otherwise an IPC handle of a linear allocation
    Range range;                // of the whole allocation in the exporter; empty: it is not in its books
    int device = kNoDevice;
    std::uint32_t stack = 0;  // of the allocation
    Held held;                // by the exporter, from its export on
    std::string given_up_by;  // "it was freed", "its context ended", "the process ended"
    // Sequence number of the exporter's next allocation that overlaps it, after it was given up; 0: none.
    std::uint64_t given_out_again = 0;
    std::uint64_t given_out_again_ns = 0;  // of the clock
    std::vector<SharedImport> imports;     // by the time of their opening
};

// Physical handles of one process: whether it held exported or imported ones.
struct SharedHandles {
    std::vector<Held> exported;
    std::vector<Held> imported;
};

class Sharing {
  public:
    explicit Sharing(const Trace& trace);

    // Whether the trace has any record of sharing; otherwise add() need not be called.
    bool used() const { return used_; }
    // Every event of every process, each in its order, with the state after it.
    void add(ProcessIndex process, const ProcessState& after, const Event& event);
    // After all of them.
    void finish();

    const std::vector<SharedMemory>& memory() const { return memory_; }
    const SharedHandles& handles(ProcessIndex process) const { return handles_[process.value]; }

  private:
    struct Opening {
        std::uint64_t identity = 0;
        std::uint32_t references = 0;
        SharedImport import;
    };
    struct Side {
        std::multimap<std::uint64_t, std::size_t> exported;  // by the allocation's address: in memory_
        std::map<std::uint64_t, Opening> open;               // by address
        std::multimap<std::uint64_t, std::size_t> given_up;  // by the allocation's address: in memory_
        std::uint64_t longest_given_up = 0;                  // bytes
    };

    void note_export(ProcessIndex process, const ProcessState& after, const Event& event);
    void note_opening(ProcessIndex process, const Event& event);
    void note_closing(ProcessIndex process, const Event& event, std::uint64_t time_ns);
    void note_release(ProcessIndex process, const Event& event, std::uint64_t time_ns);
    void note_reuse(ProcessIndex process, const Event& event);
    void give_up(Side& side, std::size_t memory, std::uint64_t time_ns, const char* how);
    void note_contexts(ProcessIndex process, const ProcessState& after, std::uint64_t time_ns);
    void note_handles(ProcessIndex process, const ProcessState& after, std::uint64_t time_ns);

    const Trace& trace_;
    bool used_ = false;
    std::vector<Side> sides_;  // by process
    std::vector<SharedMemory> memory_;
    std::vector<std::pair<std::uint64_t, SharedImport>> openings_;  // with the identity
    std::vector<SharedHandles> handles_;
};

// All of a trace, by a replay of its own. Nothing is replayed where nothing is shared.
Sharing sharing_of(const Trace& trace);

}  // namespace fragscope::analysis
