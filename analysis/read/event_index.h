// The events of a trace file, without holding them: where each batch lies, in which order their events come,
// and a few decoded blocks.
//
// Batches of one process overlap where a record came late. So a block is made of slices of batches: those
// that hold its range of sequence numbers. Slices that overlap are merged when the block is decoded; events
// of the same number keep the order of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
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

// Reads batches of the file. Several may do so at a time, each in a thread of its own.
class BatchFile {
  public:
    BatchFile(std::shared_ptr<const FileBytes> file, FunctionNames names);

    // The batch, checked again. Throws EventsLost.
    const BatchColumns& read(const BatchPlace& place);
    // Events `from` to `to` (not included) of the batch, to `out` on. Throws EventsLost.
    void decode(const BatchPlace& place, std::size_t from, std::size_t to, Event* out);

  private:
    std::shared_ptr<const FileBytes> file_;
    FunctionNames names_;
    Unpacker unpacker_;
    BatchColumns columns_;
    std::uint64_t at_ = UINT64_MAX;  // where the batch in `columns_` lies
    std::vector<FunctionId> functions_;
};

// The file and the blocks of it that were decoded last, for all processes together. Whoever goes through a
// log from block to block finds the next one decoded: a second thread does it meanwhile, where there is a
// processor for it.
class EventFile {
  public:
    EventFile(std::shared_ptr<const FileBytes> file, const FunctionNames& names, std::size_t processes);

    using Events = std::shared_ptr<std::vector<Event>>;
    using Fill = std::function<void(BatchFile&, std::vector<Event>&)>;

    const BatchColumns& read(const BatchPlace& place) { return here_.read(place); }
    // The block, of so many events, which `fill` decodes if it is not here any more. Throws what `fill`
    // throws.
    std::shared_ptr<const std::vector<Event>> block(const void* owner, std::size_t block, std::size_t count,
                                                    const Fill& fill);
    // Whether the owner's block behind this one is worth decoding already: it goes from block to block, and
    // nothing else is under way.
    bool wants_ahead(const void* owner, std::size_t block) const;
    void decode_ahead(const void* owner, std::size_t block, std::size_t count, const Fill& fill);
    // The owner is gone: nothing is done for it any more when this returns.
    void forget(const void* owner);

  private:
    Events make_room(std::size_t count);
    struct Kept {
        const void* owner = nullptr;
        std::size_t block = 0;
        Events events;
    };
    BatchFile here_;
    BatchFile ahead_;  // for the other thread
    std::size_t most_kept_;
    std::list<Kept> kept_;  // latest first
    std::vector<Event> spare_;
    Kept last_;                    // the block that was asked for last
    Kept coming_;                  // the block that is decoded ahead
    std::size_t passed_over_ = 0;  // blocks that were asked for since, and were others
    std::future<void> done_;       // of `coming_`; it uses all of the above, so it is destroyed first
};

// The events of one process. Makes the source of its log; `batches` are in the order of the file. Reads those
// that overlap again, so it throws EventsLost where the file changed meanwhile.
std::shared_ptr<const EventSource> source_of(std::shared_ptr<EventFile> file,
                                             std::vector<BatchPlace> batches);

}  // namespace fragscope::analysis
