// Writes a trace: messages in, chunks out to a sink. Events of each process gather in rows and leave as
// columns. Memory is bounded by the batch limits, whatever comes in. Once the sink refuses a chunk the writer
// only counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "collector/sink.h"
#include "proto/chunk.h"
#include "proto/trace.pb.h"
#include "proto/wire.h"

namespace fragscope::collector {

// One event on its way into the file.
struct EventRow {
    std::uint64_t sequence = 0;
    std::uint64_t start_ns = 0;
    std::uint64_t duration_ns = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t object = 0;
    std::uint64_t extra = 0;
    std::int32_t thread = 0;
    std::uint32_t stack = 0;
    std::uint16_t function = 0;  // the shim's number, see name_function()
    std::uint16_t result = 0;
    std::uint16_t flags = 0;
    wire::Kind kind = wire::Kind::kNone;
    std::uint8_t device = wire::kDeviceUnknown;
};

class TraceWriter {
  public:
    explicit TraceWriter(Sink& sink) : sink_(sink) {}

    // The file header and the first chunk. False: the sink refused.
    bool begin(const trace::Session& session);
    void process(const trace::Process& process);
    void loss(const trace::Loss& loss);
    // A name holds for all batches that are written after it is known.
    void name_function(std::uint32_t process, std::uint16_t function, std::string name);
    void event(std::uint32_t process, const EventRow& row);

    // Writes what has gathered. `complete_below` as in trace::EventBatch.
    void set_complete_below(std::uint32_t process, std::uint64_t sequence) {
        batches_[process].complete_below = sequence;
    }
    void flush(std::uint32_t process);
    void flush_all();
    // No more events of this process: its memory is freed.
    void forget(std::uint32_t process);
    // The last chunk; fills in what the writer counted (events, failures, events_not_written).
    void end(trace::SessionEnd end);

    bool stopped() const { return stopped_; }  // the sink refused; everything since is only counted
    std::uint64_t events_written() const { return events_written_; }
    std::uint64_t failures_seen() const { return failures_; }
    std::uint64_t events_not_written() const { return events_lost_; }

  private:
    struct Batch {
        std::vector<EventRow> rows;
        std::unordered_map<std::uint16_t, std::string> names;
        std::uint64_t complete_below = 0;
    };
    bool write(trace::ChunkKind kind, const trace::Chunk& chunk, Room room);
    void fill(const Batch& batch, std::uint32_t process);

    Sink& sink_;
    std::unordered_map<std::uint32_t, Batch> batches_;
    std::size_t rows_held_ = 0;
    std::uint64_t chunks_ = 0;
    bool stopped_ = false;
    std::uint64_t last_words_ = 0;  // bytes written since then
    std::uint64_t events_written_ = 0;
    std::uint64_t events_lost_ = 0;
    std::uint64_t failures_ = 0;
    trace::Chunk events_chunk_;  // kept, so that its columns keep their memory
    std::string raw_;
    std::vector<std::byte> stored_;
};

// A failed call of the program itself; what the shim asked by itself and further records of one call do not
// count.
bool is_program_failure(std::uint16_t result, std::uint16_t flags);

}  // namespace fragscope::collector
