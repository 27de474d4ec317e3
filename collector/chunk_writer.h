// Messages and rows to chunks in a sink: encodes, compresses, writes. Not for several threads at once; see
// TraceWriter, whose thread this belongs to. Once the sink refuses a chunk only the last words are tried,
// from the sink's reserve.
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

class ChunkWriter {
  public:
    explicit ChunkWriter(Sink& sink) : sink_(sink) {}

    // The file header and the first chunk. False: the sink refused.
    bool begin(const trace::Session& session);
    // Any chunk but one of events and the end. `last_words`: may use the sink's reserve.
    void message(const trace::Chunk& chunk, bool last_words);
    // A name holds for all batches that are written after it is known.
    void name_function(std::uint32_t process, std::uint16_t function, std::string name) {
        functions_[process][function] = std::move(name);
    }
    // One batch; sorts the rows.
    void events(std::uint32_t process, std::vector<EventRow>& rows, std::uint64_t complete_below);
    // No more events of this process: its memory is freed.
    void forget(std::uint32_t process) { functions_.erase(process); }
    // The last chunk; fills in how many events were written.
    void end(trace::Chunk chunk);

    bool stopped() const { return stopped_; }  // the sink refused
    std::uint64_t events_written() const { return events_written_; }
    std::uint64_t events_lost() const { return events_lost_; }  // came here and are not in the file

  private:
    bool write(const trace::Chunk& chunk, Room room);
    void fill(std::uint32_t process, const std::vector<EventRow>& rows, std::uint64_t complete_below);

    Sink& sink_;
    std::unordered_map<std::uint32_t, std::unordered_map<std::uint16_t, std::string>> functions_;
    std::uint64_t chunks_ = 0;
    bool stopped_ = false;
    std::uint64_t last_words_ = 0;  // bytes written since then
    std::uint64_t events_written_ = 0;
    std::uint64_t events_lost_ = 0;
    trace::Chunk events_chunk_;  // kept, so that its columns keep their memory
    std::string raw_;
    std::vector<std::byte> stored_;
};

}  // namespace fragscope::collector
