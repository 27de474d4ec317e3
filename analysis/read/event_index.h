// The events of a trace file, without holding them: where each batch lies, in which order their events come,
// and a few decoded blocks.
//
// Batches of one process overlap where a record came late. So a block is made of slices of batches: those
// that hold its range of sequence numbers. Slices that overlap are merged when the block is decoded; events
// of the same number keep the order of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "analysis/event_log.h"
#include "analysis/read/batch_decoder.h"
#include "analysis/read/chunk_reader.h"

namespace fragscope::analysis {

// One chunk of events, as it was when the file was opened.
struct BatchPlace {
    std::uint64_t offset = 0;
    std::uint64_t checksum = 0;  // of its header, which covers all the rest
    BatchFacts facts;
};

// So many events are in a block, if their batches allow it.
inline constexpr std::size_t kBlockEvents = trace::kMaxEventsPerBatch;

// The file and the blocks of it that were decoded last, for all processes together.
class EventFile {
  public:
    EventFile(std::shared_ptr<const FileBytes> file, FunctionNames names, std::size_t processes);

    // The batch, checked again. Throws EventsLost.
    const BatchColumns& read(const BatchPlace& place);
    // Events `from` to `to` (not included) of the batch, to `out` on. Throws EventsLost.
    void decode(const BatchPlace& place, std::size_t from, std::size_t to, Event* out);

    using Events = std::shared_ptr<std::vector<Event>>;
    // The block if it is still here, else nothing.
    std::shared_ptr<const std::vector<Event>> kept(const void* owner, std::size_t block);
    // Room for a new block; the one that was asked for longest ago goes.
    Events make_room(std::size_t count);
    void keep(const void* owner, std::size_t block, Events events);

  private:
    struct Kept {
        const void* owner = nullptr;
        std::size_t block = 0;
        Events events;
    };
    std::shared_ptr<const FileBytes> file_;
    FunctionNames names_;
    Unpacker unpacker_;
    BatchColumns columns_;
    std::uint64_t at_ = UINT64_MAX;  // where the batch in `columns_` lies
    std::vector<FunctionId> functions_;
    std::size_t most_kept_;
    std::list<Kept> kept_;  // latest first
    std::vector<Event> spare_;
};

// The events of one process. Makes the source of its log; `batches` are in the order of the file. Reads those
// that overlap again, so it throws EventsLost where the file changed meanwhile.
std::shared_ptr<const EventSource> source_of(std::shared_ptr<EventFile> file,
                                             std::vector<BatchPlace> batches);

}  // namespace fragscope::analysis
