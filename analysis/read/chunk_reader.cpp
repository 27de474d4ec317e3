#include "analysis/read/chunk_reader.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <new>
#include <utility>

#include "analysis/beside.h"

namespace fragscope::analysis {

void Unpacker::Free::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

std::string Unpacker::read(const FileBytes& file, std::uint64_t offset, const trace::ChunkHeader& header) {
    const std::size_t stored = header.stored_bytes;
    const std::size_t raw = header.raw_bytes;
    stored_.resize(stored);
    if (std::string wrong = file.read_at(offset + sizeof header, stored_.data(), stored); !wrong.empty())
        return wrong;
    if (header.checksum != trace::chunk_checksum(header, stored_))
        return fmt::format("the chunk of {} bytes does not match its checksum", stored);
    raw_.resize(raw);
    if (stored == raw) {
        if (raw != 0) std::memcpy(raw_.data(), stored_.data(), raw);
        return "";
    }
    if (context_ == nullptr) context_.reset(ZSTD_createDCtx());
    if (context_ == nullptr) throw std::bad_alloc();
    const std::size_t unpacked =
        ZSTD_decompressDCtx(context_.get(), raw_.data(), raw, stored_.data(), stored);
    if (ZSTD_isError(unpacked) != 0)
        return fmt::format("the chunk does not unpack: {}", ZSTD_getErrorName(unpacked));
    if (unpacked != raw) return fmt::format("the chunk unpacks to {} bytes, expected {}", unpacked, raw);
    return "";
}

namespace {

// So many bytes, unpacked, are under way at a time, if one chunk alone has not more.
constexpr std::uint64_t kMostUnderWay = std::uint64_t{32} << 20;
// A chunk of fewer bytes is not worth a thread.
constexpr std::uint32_t kWorthAThread = 1 << 15;

std::string take_message(ChunkContent& content) {
    PaddedBytes& raw = content.unpacker.raw();
    if (!content.chunk.ParseFromArray(raw.data(), static_cast<int>(raw.size())))
        return "the chunk's content is not a trace message";
    if (static_cast<int>(content.chunk.body_case()) != static_cast<int>(content.header.kind))
        return fmt::format("a chunk of kind {} holds a message of kind {}",
                           static_cast<unsigned>(content.header.kind),
                           static_cast<int>(content.chunk.body_case()));
    return "";
}

void take(const FileBytes& file, ChunkContent& content) {
    content.problem = content.unpacker.read(file, content.offset, content.header);
    if (!content.problem.empty()) return;
    content.is_events = content.header.kind == trace::ChunkKind::kEvents &&
                        take_apart(content.unpacker.raw(), content.events) == Taken::kDone;
    if (!content.is_events) {
        content.problem = take_message(content);
        return;
    }
    content.facts = {};
    content.wrong =
        check_batch(content.events, trace::max_events_of_stored(content.header.stored_bytes), &content.facts);
}

std::size_t most_under_way() { return processors() > 1 ? 2 * std::min<std::size_t>(processors(), 8) : 1; }

}  // namespace

struct ChunkReader::Coming {
    std::unique_ptr<ChunkContent> content;
    std::future<void> done;  // not valid: it is taken apart when its turn comes
};

ChunkReader::ChunkReader() = default;
ChunkReader::~ChunkReader() = default;

std::string ChunkReader::open(const std::string& path) {
    file_ = std::make_shared<FileBytes>();
    if (std::string wrong = file_->open(path); !wrong.empty()) return wrong;
    const std::uint64_t size = file_->size();
    if (size == 0) return fmt::format("{} is empty, not a Fragscope trace", path);
    trace::FileHeader header{};
    if (size < sizeof header)
        return fmt::format("{} is not a Fragscope trace: it has only {} bytes", path, size);
    if (const std::string wrong = file_->read_at(0, &header, sizeof header); !wrong.empty())
        return fmt::format("cannot read {}: {}", path, wrong);
    if (std::memcmp(header.magic, trace::kFileMagic, sizeof header.magic) != 0)
        return fmt::format("{} is not a Fragscope trace: its first 8 bytes are not a trace's", path);
    if (header.checksum != trace::file_checksum(header))
        return fmt::format("{} is damaged at offset 0: the file header does not match its checksum", path);
    if (header.version > trace::kFormatVersion)
        return fmt::format(
            "{} has trace format version {}; this Fragscope reads versions up to {}: use a newer one", path,
            header.version, trace::kFormatVersion);
    if (header.version == 0 || header.header_bytes != sizeof header || header.reserved != 0)
        return fmt::format("{} is damaged at offset 8: version {} with a header of {} bytes cannot be", path,
                           header.version, header.header_bytes);
    offset_ = ahead_ = header.header_bytes;
    return "";
}

ChunkReader::Next ChunkReader::fail(std::string what) {
    problem_ = fmt::format("at offset {}: {}", chunk_start_, what);
    return Next::kProblem;
}

// The header at `ahead_`, to `header_`.
ChunkReader::Found ChunkReader::find_header() {
    const auto wrong = [&](std::string what) {
        found_problem_ = std::move(what);
        return Found::kProblem;
    };
    const std::uint64_t left = file_->size() - ahead_;
    if (left == 0) return Found::kEnd;
    if (left < sizeof header_)
        return wrong(fmt::format("expected a chunk header of {} bytes, found only {}", sizeof header_, left));
    if (std::string problem = file_->read_at(ahead_, &header_, sizeof header_); !problem.empty())
        return wrong(std::move(problem));
    if (header_.magic != trace::kChunkMagic)
        return wrong(fmt::format("expected the start of a chunk, found {:#010x}", header_.magic));
    if (header_.version == 0 || header_.version > trace::kFormatVersion)
        return wrong(fmt::format("a chunk of format version {}, expected at most {}", header_.version,
                                 trace::kFormatVersion));
    if (header_.kind < trace::ChunkKind::kSession || header_.kind > trace::kLastChunkKind)
        return wrong(fmt::format("a chunk of kind {}, expected 1 to {}", static_cast<unsigned>(header_.kind),
                                 static_cast<unsigned>(trace::kLastChunkKind)));
    const std::uint64_t stored = header_.stored_bytes;
    if (stored > left - sizeof header_)
        return wrong(
            fmt::format("expected a chunk of {} bytes, found only {}", stored, left - sizeof header_));
    const std::uint64_t raw = header_.raw_bytes;
    if (raw > trace::max_raw_bytes(header_.kind) || raw > trace::max_raw_bytes_of_stored(stored) ||
        stored > raw)
        return wrong(
            fmt::format("a chunk of {} bytes that unpacks to {}, which no writer makes", stored, raw));
    if (header_.number != number_)
        return wrong(fmt::format("chunk number {}, expected {}", header_.number, number_));
    return Found::kHeader;
}

void ChunkReader::look_ahead() {
    while (found_ == Found::kHeader &&
           (coming_.empty() || (coming_.size() < most_under_way() && bytes_under_way_ < kMostUnderWay))) {
        found_ = find_header();
        if (found_ != Found::kHeader) return;
        std::unique_ptr<ChunkContent> content;
        if (spare_.empty()) {
            content = std::make_unique<ChunkContent>();
        } else {
            content = std::move(spare_.back());
            spare_.pop_back();
        }
        content->header = header_;
        content->offset = ahead_;
        ahead_ += sizeof header_ + header_.stored_bytes;
        ++number_;
        bytes_under_way_ += header_.raw_bytes;
        Coming& coming = coming_.emplace_back();
        coming.content = std::move(content);
        if (header_.raw_bytes < kWorthAThread || most_under_way() == 1) continue;
        coming.done = beside([file = file_, to = coming.content.get()] { take(*file, *to); });
    }
}

ChunkReader::Next ChunkReader::next() {
    if (content_ != nullptr) spare_.push_back(std::move(content_));
    chunk_start_ = offset_;
    look_ahead();
    if (coming_.empty()) return found_ == Found::kEnd ? Next::kAtEnd : fail(found_problem_);
    // The first one stays in its place until nobody works on it any more.
    if (coming_.front().done.valid())
        coming_.front().done.get();
    else
        take(*file_, *coming_.front().content);
    content_ = std::move(coming_.front().content);
    coming_.pop_front();
    bytes_under_way_ -= content_->header.raw_bytes;
    if (!content_->problem.empty()) return fail(content_->problem);
    offset_ += sizeof(trace::ChunkHeader) + content_->header.stored_bytes;
    return content_->is_events ? Next::kEvents : Next::kChunk;
}

const trace::Chunk& ChunkReader::chunk() {
    if (content_->is_events) {
        const PaddedBytes& raw = content_->unpacker.raw();
        content_->chunk.ParseFromArray(raw.data(), static_cast<int>(raw.size()));
    }
    return content_->chunk;
}

}  // namespace fragscope::analysis
