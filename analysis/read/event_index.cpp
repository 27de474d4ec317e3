#include "analysis/read/event_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/beside.h"

namespace fragscope::analysis {

namespace {

// A part of one batch, by index in it.
struct Slice {
    std::uint32_t batch = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
};

class FileSource : public EventSource {
  public:
    FileSource(std::shared_ptr<EventFile> file, std::vector<BatchPlace> batches);
    ~FileSource() override { file_->forget(this); }
    FileSource(const FileSource&) = delete;
    FileSource& operator=(const FileSource&) = delete;
    std::span<const BlockFacts> blocks() const override { return blocks_; }
    std::shared_ptr<const std::vector<Event>> load(std::size_t block) const override;

  private:
    void add_blocks();
    void add_group(std::size_t begin, std::size_t end);
    void add_large_group(std::size_t begin, std::size_t end);
    std::vector<std::uint64_t> cuts_of(std::size_t begin, std::size_t end) const;
    void add_slice(const Slice& slice);
    void end_block();
    void fill(std::size_t block, BatchFile& file, std::vector<Event>& events) const;

    std::shared_ptr<EventFile> file_;
    std::vector<BatchPlace> batches_;
    std::vector<BlockFacts> blocks_;
    std::vector<std::size_t> slices_end_;  // by block: behind its last slice
    std::vector<Slice> slices_;
    BlockFacts open_;  // the block that is being made
};

FileSource::FileSource(std::shared_ptr<EventFile> file, std::vector<BatchPlace> batches)
    : file_(std::move(file)), batches_(std::move(batches)) {
    add_blocks();
    for (BatchPlace& batch : batches_) batch.facts.samples = {};
}

// Consecutive batches are a group if all that stands before them in the file comes before them, and all
// behind them after.
void FileSource::add_blocks() {
    std::vector<std::uint64_t> lowest_behind(batches_.size() + 1, UINT64_MAX);
    for (std::size_t i = batches_.size(); i-- > 0;)
        lowest_behind[i] = std::min(lowest_behind[i + 1], batches_[i].facts.first);
    std::uint64_t highest = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < batches_.size(); ++i) {
        highest = std::max(highest, batches_[i].facts.last);
        if (highest > lowest_behind[i + 1]) continue;
        add_group(begin, i + 1);
        begin = i + 1;
    }
    end_block();
}

void FileSource::add_slice(const Slice& slice) {
    const BlockFacts& facts = batches_[slice.batch].facts.block;
    open_.count += slice.to - slice.from;
    open_.kinds |= facts.kinds;
    open_.flags = static_cast<std::uint16_t>(open_.flags | facts.flags);
    open_.failures |= facts.failures;
    open_.earliest_acquired_ns = std::min(open_.earliest_acquired_ns, facts.earliest_acquired_ns);
    open_.latest_ns = std::max(open_.latest_ns, facts.latest_ns);
    slices_.push_back(slice);
}

void FileSource::end_block() {
    if (open_.count == 0) return;
    blocks_.push_back(open_);
    slices_end_.push_back(slices_.size());
    BlockFacts next;
    next.first = open_.first + open_.count;
    open_ = next;
}

void FileSource::add_group(std::size_t begin, std::size_t end) {
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; ++i) count += batches_[i].facts.block.count;
    if (open_.count + count > kBlockEvents) end_block();
    if (end - begin > 1 && count > kBlockEvents) return add_large_group(begin, end);
    for (std::size_t i = begin; i < end; ++i)
        add_slice(
            {static_cast<std::uint32_t>(i), 0, static_cast<std::uint32_t>(batches_[i].facts.block.count)});
}

// Sequence numbers between which about as many events lie as a block holds.
std::vector<std::uint64_t> FileSource::cuts_of(std::size_t begin, std::size_t end) const {
    std::vector<std::uint64_t> samples;
    for (std::size_t i = begin; i < end; ++i)
        samples.insert(samples.end(), batches_[i].facts.samples.begin(), batches_[i].facts.samples.end());
    std::sort(samples.begin(), samples.end());
    std::vector<std::uint64_t> cuts;
    constexpr std::size_t kSamples = kBlockEvents / kSampled;
    for (std::size_t i = kSamples; i < samples.size(); i += kSamples)
        if (cuts.empty() ? samples[i] > samples[0] : samples[i] > cuts.back()) cuts.push_back(samples[i]);
    return cuts;
}

void FileSource::add_large_group(std::size_t begin, std::size_t end) {
    const std::vector<std::uint64_t> cuts = cuts_of(begin, end);
    std::vector<std::vector<Slice>> by_block(cuts.size() + 1);
    for (std::size_t i = begin; i < end; ++i) {
        const std::vector<std::uint64_t> sequences = sequences_of(file_->read(batches_[i]));
        std::size_t from = 0;
        while (from < sequences.size()) {
            // Of many blocks a batch lies in few: the block of its next event is looked up.
            const auto block = static_cast<std::size_t>(
                std::upper_bound(cuts.begin(), cuts.end(), sequences[from]) - cuts.begin());
            std::size_t to = sequences.size();
            if (block < cuts.size()) {
                const auto behind = std::lower_bound(sequences.begin(), sequences.end(), cuts[block]);
                to = static_cast<std::size_t>(behind - sequences.begin());
            }
            by_block[block].push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(from),
                                       static_cast<std::uint32_t>(to)});
            from = to;
        }
    }
    for (const std::vector<Slice>& slices : by_block) {
        for (const Slice& slice : slices) add_slice(slice);
        end_block();
    }
}

void FileSource::fill(std::size_t block, BatchFile& file, std::vector<Event>& events) const {
    Event* out = events.data();
    bool in_order = true;
    std::uint64_t last = 0;
    for (std::size_t i = block == 0 ? 0 : slices_end_[block - 1]; i < slices_end_[block]; ++i) {
        const Slice& slice = slices_[i];
        const std::size_t count = slice.to - slice.from;
        file.decode(batches_[slice.batch], slice.from, slice.to, out);
        in_order &= out->sequence.value >= last;
        out += count;
        last = (out - 1)->sequence.value;
    }
    if (!in_order)
        std::stable_sort(events.begin(), events.end(),
                         [](const Event& a, const Event& b) { return a.sequence < b.sequence; });
}

std::shared_ptr<const std::vector<Event>> FileSource::load(std::size_t block) const {
    const auto filled = [this](std::size_t which) {
        return [this, which](BatchFile& file, std::vector<Event>& events) { fill(which, file, events); };
    };
    const bool ahead = block + 1 < blocks_.size() && file_->wants_ahead(this, block);
    auto out = file_->block(this, block, blocks_[block].count, filled(block));
    if (ahead) file_->decode_ahead(this, block + 1, blocks_[block + 1].count, filled(block + 1));
    return out;
}

}  // namespace

BatchFile::BatchFile(std::shared_ptr<const FileBytes> file, FunctionNames names)
    : file_(std::move(file)), names_(std::move(names)) {}

const BatchColumns& BatchFile::read(const BatchPlace& place) {
    if (at_ == place.offset) return columns_;
    at_ = UINT64_MAX;
    trace::ChunkHeader header{};
    std::string wrong = file_->read_at(place.offset, &header, sizeof header);
    // What the header says was checked when the file was opened.
    if (wrong.empty() && header.checksum != place.checksum) wrong = "another chunk is there";
    if (wrong.empty() && (header.raw_bytes > trace::kMaxRawEventBytes ||
                          header.raw_bytes > trace::max_raw_bytes_of_stored(header.stored_bytes) ||
                          header.stored_bytes > header.raw_bytes))
        wrong = "another chunk is there";
    if (wrong.empty()) wrong = unpacker_.read(*file_, place.offset, header);
    if (wrong.empty() && take_apart(unpacker_.raw(), columns_) != Taken::kDone)
        wrong = "the chunk's content is no events any more";
    if (wrong.empty())
        wrong = check_batch(columns_, trace::max_events_of_stored(header.stored_bytes), nullptr);
    if (wrong.empty() && columns_.count != place.facts.block.count) wrong = "other events are there";
    if (!wrong.empty())
        throw EventsLost(fmt::format("{} has changed since it was opened: at offset {}: {}", file_->path(),
                                     place.offset, wrong));
    functions_.clear();
    for (const std::string_view name : columns_.functions) functions_.push_back(names_.intern(name));
    at_ = place.offset;
    return columns_;
}

void BatchFile::decode(const BatchPlace& place, std::size_t from, std::size_t to, Event* out) {
    decode_batch(read(place), functions_, from, to, out);
}

EventFile::EventFile(std::shared_ptr<const FileBytes> file, const FunctionNames& names, std::size_t processes)
    : here_(file, names),
      ahead_(file, names),
      // A process is followed at up to two places at a time: as the one in question and as another's
      // neighbour.
      most_kept_(std::clamp<std::size_t>(2 + 2 * processes, 4, 32)) {}

std::shared_ptr<const std::vector<Event>> EventFile::block(const void* owner, std::size_t block,
                                                           std::size_t count, const Fill& fill) {
    last_ = {owner, block, nullptr};
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& each) {
        return each.owner == owner && each.block == block;
    });
    if (found != kept_.end()) {
        kept_.splice(kept_.begin(), kept_, found);
        return found->events;
    }
    Events events;
    if (coming_.owner == owner && coming_.block == block && coming_.events != nullptr) {
        events = std::exchange(coming_, {}).events;
        done_.get();
    } else {
        if (coming_.events != nullptr) ++passed_over_;
        events = make_room(count);
        fill(here_, *events);
    }
    kept_.push_front({owner, block, events});
    return events;
}

bool EventFile::wants_ahead(const void* owner, std::size_t block) const {
    // What nobody has asked for during so many blocks nobody will.
    constexpr std::size_t kPatience = 16;
    if (processors() == 1 || last_.owner != owner || block != last_.block + 1) return false;
    if (coming_.events == nullptr || passed_over_ >= kPatience) return true;
    return coming_.owner == owner && coming_.block == block;
}

void EventFile::forget(const void* owner) {
    if (coming_.owner == owner) {
        if (done_.valid()) done_.wait();
        coming_ = {};
    }
    kept_.remove_if([&](const Kept& each) { return each.owner == owner; });
}

void EventFile::decode_ahead(const void* owner, std::size_t block, std::size_t count, const Fill& fill) {
    if (done_.valid()) done_.wait();
    passed_over_ = 0;
    coming_ = {owner, block, make_room(count)};
    done_ = beside([this, fill, events = coming_.events] { fill(ahead_, *events); });
}

EventFile::Events EventFile::make_room(std::size_t count) {
    if (kept_.size() >= most_kept_) {
        // Fresh memory costs as much as decoding into it.
        if (kept_.back().events.use_count() == 1) spare_ = std::move(*kept_.back().events);
        kept_.pop_back();
    }
    auto out = std::make_shared<std::vector<Event>>(std::exchange(spare_, {}));
    out->resize(count);
    return out;
}

std::shared_ptr<const EventSource> source_of(std::shared_ptr<EventFile> file,
                                             std::vector<BatchPlace> batches) {
    return std::make_shared<FileSource>(std::move(file), std::move(batches));
}

}  // namespace fragscope::analysis
