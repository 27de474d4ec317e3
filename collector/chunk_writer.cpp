#include "collector/chunk_writer.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

namespace fragscope::collector {

namespace {

// Of the sink's reserve, for all that is written after it refused a chunk except the very last one.
constexpr std::uint64_t kLastWordsBytes = 48 * 1024;
constexpr int kCompressionLevel = 1;  // 3 is not smaller on traces, and slower

// Difference to the value before, in two's complement: wraps, and the reader wraps back.
class Delta {
  public:
    std::int64_t operator()(std::uint64_t value) {
        const std::uint64_t difference = value - before_;
        before_ = value;
        return static_cast<std::int64_t>(difference);
    }

  private:
    std::uint64_t before_ = 0;
};

template <typename Column, typename Rows, typename Value>
void fill_column(Column* column, const Rows& rows, Value&& value) {
    column->Clear();
    if (std::all_of(rows.begin(), rows.end(), [&](const EventRow& row) { return value(row) == 0; })) return;
    column->Reserve(static_cast<int>(rows.size()));
    for (const EventRow& row : rows) column->AddAlreadyReserved(value(row));
}

template <typename Column, typename Rows>
void fill_delta_column(Column* column, const Rows& rows, std::uint64_t EventRow::*field) {
    column->Clear();
    if (std::all_of(rows.begin(), rows.end(), [&](const EventRow& row) { return row.*field == 0; })) return;
    column->Reserve(static_cast<int>(rows.size()));
    Delta delta;
    for (const EventRow& row : rows) column->AddAlreadyReserved(delta(row.*field));
}

}  // namespace

bool ChunkWriter::begin(const trace::Session& session) {
    trace::FileHeader header{};
    std::memcpy(header.magic, trace::kFileMagic, sizeof header.magic);
    header.version = trace::kFormatVersion;
    header.header_bytes = sizeof header;
    header.checksum = trace::file_checksum(header);
    if (!sink_.append(std::as_bytes(std::span(&header, 1)), Room::kOrdinary)) {
        stopped_ = true;
        return false;
    }
    trace::Chunk chunk;
    *chunk.mutable_session() = session;
    return write(chunk, Room::kOrdinary);
}

bool ChunkWriter::write(const trace::Chunk& chunk, Room room) {
    const auto kind = static_cast<trace::ChunkKind>(chunk.body_case());
    if (stopped_ && room == Room::kOrdinary) return false;
    raw_.clear();
    if (!chunk.SerializeToString(&raw_) || raw_.size() > trace::max_raw_bytes(kind)) return false;
    constexpr std::size_t kHeader = sizeof(trace::ChunkHeader);
    stored_.resize(kHeader + std::max(ZSTD_compressBound(raw_.size()), raw_.size()));
    std::size_t stored_bytes = ZSTD_compress(stored_.data() + kHeader, stored_.size() - kHeader, raw_.data(),
                                             raw_.size(), kCompressionLevel);
    const std::uint64_t events = chunk.has_events() ? chunk.events().count() : 0;
    if (ZSTD_isError(stored_bytes) != 0 || stored_bytes >= raw_.size() ||
        raw_.size() > trace::max_raw_bytes_of_stored(stored_bytes) ||
        events > trace::max_events_of_stored(stored_bytes)) {
        std::memcpy(stored_.data() + kHeader, raw_.data(), raw_.size());
        stored_bytes = raw_.size();
    }
    trace::ChunkHeader header{};
    header.magic = trace::kChunkMagic;
    header.version = static_cast<std::uint16_t>(trace::kFormatVersion);
    header.kind = kind;
    header.stored_bytes = static_cast<std::uint32_t>(stored_bytes);
    header.raw_bytes = static_cast<std::uint32_t>(raw_.size());
    header.number = chunks_;
    header.checksum = trace::chunk_checksum(header, std::span(stored_).subspan(kHeader, stored_bytes));
    std::memcpy(stored_.data(), &header, kHeader);
    if (stopped_ && kind != trace::ChunkKind::kEnd) {
        if (last_words_ + kHeader + stored_bytes > kLastWordsBytes) return false;
        last_words_ += kHeader + stored_bytes;
    }
    if (!sink_.append(std::span(stored_).first(kHeader + stored_bytes), room)) {
        stopped_ = true;
        return false;
    }
    ++chunks_;
    return true;
}

void ChunkWriter::message(const trace::Chunk& chunk, bool last_words) {
    write(chunk, last_words || (stopped_ && chunk.has_loss()) ? Room::kReserve : Room::kOrdinary);
}

void ChunkWriter::events(std::uint32_t process, std::vector<EventRow>& rows, std::uint64_t complete_below) {
    // Late arrivals stand after what overtook them; inside a batch the order is restored here, across batches
    // by readers.
    const auto by_sequence = [](const EventRow& a, const EventRow& b) { return a.sequence < b.sequence; };
    if (!std::is_sorted(rows.begin(), rows.end(), by_sequence))
        std::stable_sort(rows.begin(), rows.end(), by_sequence);
    fill(process, rows, complete_below);
    if (write(events_chunk_, Room::kOrdinary))
        events_written_ += rows.size();
    else
        events_lost_ += rows.size();
}

void ChunkWriter::end(trace::Chunk chunk) {
    trace::SessionEnd& end = *chunk.mutable_end();
    end.set_events(events_written_);
    end.set_events_not_written(end.events_not_written() + events_lost_);
    write(chunk, Room::kReserve);
    sink_.finish();
}

void ChunkWriter::fill(std::uint32_t process, const std::vector<EventRow>& rows,
                       std::uint64_t complete_below) {
    const std::unordered_map<std::uint16_t, std::string>& names = functions_[process];
    trace::EventBatch& out = *events_chunk_.mutable_events();
    out.set_process(process);
    out.set_count(static_cast<std::uint32_t>(rows.size()));
    out.set_complete_below(complete_below);

    std::unordered_map<std::uint16_t, std::uint32_t> functions;
    std::unordered_map<std::int32_t, std::uint32_t> threads;
    out.clear_function_names();
    out.clear_thread_ids();
    for (const EventRow& row : rows) {
        if (functions.try_emplace(row.function, static_cast<std::uint32_t>(functions.size())).second) {
            const auto name = names.find(row.function);
            out.add_function_names(name != names.end() ? name->second
                                                       : fmt::format("function {}", row.function));
        }
        if (threads.try_emplace(row.thread, static_cast<std::uint32_t>(threads.size())).second)
            out.add_thread_ids(row.thread);
    }
    fill_delta_column(out.mutable_sequence(), rows, &EventRow::sequence);
    fill_delta_column(out.mutable_start_ns(), rows, &EventRow::start_ns);
    fill_column(out.mutable_duration_ns(), rows, [](const EventRow& r) { return r.duration_ns; });
    fill_column(out.mutable_kind(), rows,
                [](const EventRow& r) { return static_cast<std::uint32_t>(r.kind); });
    fill_column(out.mutable_function(), rows,
                [&](const EventRow& r) { return functions.find(r.function)->second; });
    fill_column(out.mutable_thread(), rows,
                [&](const EventRow& r) { return threads.find(r.thread)->second; });
    fill_column(out.mutable_result(), rows, [](const EventRow& r) { return std::uint32_t{r.result}; });
    fill_column(out.mutable_device(), rows,
                [](const EventRow& r) { return r.device == wire::kDeviceUnknown ? 0u : r.device + 1u; });
    fill_column(out.mutable_flags(), rows, [](const EventRow& r) { return std::uint32_t{r.flags}; });
    fill_column(out.mutable_stack(), rows, [](const EventRow& r) { return r.stack; });
    fill_delta_column(out.mutable_address(), rows, &EventRow::address);
    fill_delta_column(out.mutable_bytes(), rows, &EventRow::bytes);
    fill_delta_column(out.mutable_object(), rows, &EventRow::object);
    fill_delta_column(out.mutable_extra(), rows, &EventRow::extra);
}

}  // namespace fragscope::collector
