// Takes the records of all attached processes out of the shared memory and gives them to the writer: who is
// there, what each ring holds, in which order it happened, what was lost. The other ends are strangers'
// programs: whatever they write into the region can make their own part of the trace worthless, never harm
// the collector.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "collector/clock.h"
#include "collector/liveness.h"
#include "collector/names.h"
#include "collector/ring_host.h"
#include "collector/sequence_merge.h"
#include "collector/text_assembly.h"
#include "collector/trace_writer.h"
#include "proto/ring.h"

namespace fragscope::collector {

// At least so often what has gathered goes to the file, so that a killed collector loses no more than this.
inline constexpr std::uint64_t kFlushNs = 200'000'000;

class Drain {
  public:
    Drain(RingHost& host, TraceWriter& writer, ClockPair session_start);

    // One round over everything; returns how many records it took. Does not wait.
    std::size_t poll();
    // How the process that the launcher started ended, "exit 0" or "signal 9".
    void note_end(std::int64_t pid, const std::string& how);
    // The last round: drains all, writes what gathered, says of processes that still run that they do.
    void finish();

    std::uint32_t processes_seen() const { return static_cast<std::uint32_t>(processes_.size()); }
    std::uint32_t processes_attached() const;
    // Index of the process with this number, as seen from here, and start time; the last one where it executed itself anew.
    std::optional<std::uint32_t> process_called(std::int64_t pid_here, std::uint64_t start_time) const;
    std::uint32_t processes_refused() {
        return host_.header().processes_refused.load(std::memory_order_relaxed);
    }
    // Records known to be lost, of all kinds, in all processes.
    std::uint64_t records_lost() const;
    std::uint64_t rings_damaged() const;
    std::uint64_t records_refused() const;
    double ticks_per_ns() const { return converter_.ticks_per_ns(); }

  private:
    struct Losses {
        std::uint64_t acquisitions = 0;
        std::uint64_t releases = 0;
        std::uint64_t others = 0;
        std::uint64_t acquired_bytes = 0;
        void add(const wire::RingHeader& ring);
    };
    // A process from its first sight on; stays here after its end, with next to nothing in it.
    struct Process {
        trace::Process info;
        trace::Loss written_loss;
        std::unique_ptr<Liveness> liveness;  // null: it is over
        std::unique_ptr<SequenceMerge> merge;
        std::unordered_map<std::uint16_t, std::string> functions;
        std::unique_ptr<NameTable> names;
        std::unordered_set<std::int32_t> threads_named;
        std::uint32_t slot = 0;
        std::uint32_t rings = 0;  // bound to it now
        bool dead = false;        // seen before this round's rings were drained
        bool replaced = false;    // by a program that it executed itself
        bool info_changed = true;
        bool answered = false;  // a call of it succeeded: it had the driver
        Losses freed;           // of its rings that are free again
        std::uint64_t rings_damaged = 0;
        std::uint64_t records_refused = 0;
        trace::Loss loss;  // latest totals
    };
    struct Ring {
        wire::RingReader reader;
        std::optional<std::uint32_t> process;  // index in processes_
        std::int32_t thread = 0;
        bool damaged = false;
        std::uint64_t last_sequence = 0;
        TextAssembly text;
    };

    void find_processes(std::uint64_t now_ns);
    void attach(std::uint32_t slot, const wire::ProcessSlot& seen, wire::SlotState state);
    std::size_t drain_rings(std::uint64_t now_ns);
    bool bind(std::uint32_t ring, wire::SlotState state);
    std::size_t drain_ring(Ring& ring, Process& process, std::uint64_t now_ns);
    void take_text(const Text& text, const Ring& ring, Process& process);
    void take(const wire::Record& record, Ring& ring, Process& process, std::uint64_t now_ns);
    void free_ring(std::uint32_t ring);
    void free_dead_threads();
    void release(std::uint32_t process, std::uint64_t now_ns, bool all);
    void emit(std::uint32_t process, const SequenceMerge::Held& held);
    std::string function_name(const Process& process, std::uint16_t function) const;
    void count_losses(Process& process);
    void write_state(Process& process);
    void end_process(std::uint32_t process, const std::string& how);
    void flush(std::uint64_t now_ns);
    void finish_process(std::uint32_t process, const std::string& how);

    RingHost& host_;
    TraceWriter& writer_;
    TickConverter converter_;
    std::vector<Process> processes_;
    std::vector<std::optional<std::uint32_t>> by_slot_;
    std::vector<Ring> rings_;
    std::uint64_t last_flush_ns_ = 0;
    std::uint64_t last_liveness_ns_ = 0;
    std::uint32_t next_thread_check_ = 0;
};

}  // namespace fragscope::collector
