// Writes a trace: messages and events in, a file out. What comes in only gathers here; a thread of its own
// encodes, compresses and writes it, so that who drains the rings never waits for the disk.
//
// Everything reaches the file in the order in which it came, except that the events and the names of a
// process gather in batches; names stand before the events that came after them. All functions are for one
// thread, the same for all calls. Memory: what gathers and waits is bounded where the caller keeps to
// backlogged(). Once the sink refuses a chunk the writer only counts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collector/chunk_writer.h"
#include "collector/sink.h"
#include "proto/trace.pb.h"

namespace fragscope::collector {

// So many events wait for the disk at most before the caller should bring no more: 80 MiB.
inline constexpr std::size_t kMaxRowsWaiting = std::size_t{1} << 20;

class TraceWriter {
  public:
    explicit TraceWriter(Sink& sink) : chunks_(sink) {}
    ~TraceWriter();  // without end(): what waits is dropped
    TraceWriter(const TraceWriter&) = delete;
    TraceWriter& operator=(const TraceWriter&) = delete;

    // Writes the file header and the first chunk, at once. False: the sink refused, and nothing more may be
    // called.
    bool begin(const trace::Session& session);
    void process(const trace::Process& process);
    void loss(const trace::Loss& loss);
    void readings(const trace::Readings& readings);
    // Gathers as events do.
    void names(std::uint32_t process, const trace::Names& names);
    // A name holds for all events that are flushed after it is known.
    void name_function(std::uint32_t process, std::uint16_t function, std::string name);
    void event(std::uint32_t process, const EventRow& row);

    // Hands over what has gathered. `complete_below` as in trace::EventBatch.
    void set_complete_below(std::uint32_t process, std::uint64_t sequence) {
        batches_[process].complete_below = sequence;
    }
    void flush(std::uint32_t process);
    void flush_all();
    // No more events of this process: its memory is freed.
    void forget(std::uint32_t process);
    // True: the disk does not keep up. Bring no more events for now.
    bool backlogged() const { return rows_waiting_.load(std::memory_order_relaxed) >= kMaxRowsWaiting; }
    // Returns when everything that was handed over is written or refused. Until the next call the sink is at
    // rest.
    void settle();
    // The last chunk; fills in what was counted (events, failures, events_not_written). Settles.
    void end(trace::SessionEnd end);

    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }  // the sink refused
    // Of the file as it is: settle first.
    std::uint64_t events_written() const { return chunks_.events_written(); }
    std::uint64_t events_not_written() const { return chunks_.events_lost() + events_passed_over_; }
    std::uint64_t failures_seen() const { return failures_; }
    std::uint64_t out_of_memory_seen() const { return out_of_memory_; }  // of them, refused for want of memory

  private:
    struct Batch {
        std::vector<EventRow> rows;
        trace::Chunk names;  // those that came since the last flush
        std::size_t names_bytes = 0;
        std::uint64_t complete_below = 0;
    };
    // What the writing thread does next, in this order.
    struct Job {
        enum class What { kMessage, kLastWords, kFunction, kEvents, kForget, kEnd };
        What what;
        std::uint32_t process = 0;
        std::uint16_t function = 0;
        std::uint64_t complete_below = 0;
        std::string name;
        trace::Chunk chunk;
        std::vector<EventRow> rows;
    };
    void post(Job job);
    void post_names(Batch& batch);
    void work();
    void carry_out(Job& job);
    std::vector<EventRow> empty_rows();

    ChunkWriter chunks_;  // the writing thread's, while it is not at rest
    std::unordered_map<std::uint32_t, Batch> batches_;
    std::size_t rows_gathered_ = 0;
    std::uint64_t failures_ = 0;
    std::uint64_t out_of_memory_ = 0;
    std::uint64_t events_passed_over_ = 0;  // after the sink had refused a chunk

    std::thread thread_;
    std::atomic<bool> stopped_{false};
    std::atomic<std::size_t> rows_waiting_{0};
    std::mutex mutex_;  // of all below
    std::condition_variable wake_;
    std::condition_variable settled_;
    std::deque<Job> jobs_;
    std::vector<std::vector<EventRow>> spare_rows_;  // their memory is used again
    bool busy_ = false;
    bool leave_ = false;
};

// A failed call of the program itself; what the shim asked by itself and further records of one call do not
// count.
bool is_program_failure(std::uint16_t result, std::uint16_t flags);

}  // namespace fragscope::collector
