#include "analysis/read/chunk_reader.h"

#include <fmt/format.h>
#include <zstd.h>

#include <cstring>
#include <new>

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
    offset_ = header.header_bytes;
    return "";
}

ChunkReader::Next ChunkReader::fail(std::string what) {
    problem_ = fmt::format("at offset {}: {}", chunk_start_, what);
    return Next::kProblem;
}

ChunkReader::Next ChunkReader::next() {
    chunk_start_ = offset_;
    const std::uint64_t left = file_->size() - offset_;
    if (left == 0) return Next::kAtEnd;
    if (left < sizeof header_)
        return fail(fmt::format("expected a chunk header of {} bytes, found only {}", sizeof header_, left));
    if (std::string wrong = file_->read_at(offset_, &header_, sizeof header_); !wrong.empty())
        return fail(std::move(wrong));
    if (header_.magic != trace::kChunkMagic)
        return fail(fmt::format("expected the start of a chunk, found {:#010x}", header_.magic));
    if (header_.version == 0 || header_.version > trace::kFormatVersion)
        return fail(fmt::format("a chunk of format version {}, expected at most {}", header_.version,
                                trace::kFormatVersion));
    if (header_.kind < trace::ChunkKind::kSession || header_.kind > trace::kLastChunkKind)
        return fail(fmt::format("a chunk of kind {}, expected 1 to {}", static_cast<unsigned>(header_.kind),
                                static_cast<unsigned>(trace::kLastChunkKind)));
    const std::uint64_t stored = header_.stored_bytes;
    if (stored > left - sizeof header_)
        return fail(
            fmt::format("expected a chunk of {} bytes, found only {}", stored, left - sizeof header_));
    const std::uint64_t raw = header_.raw_bytes;
    if (raw > trace::max_raw_bytes(header_.kind) || raw > trace::max_raw_bytes_of_stored(stored) ||
        stored > raw)
        return fail(
            fmt::format("a chunk of {} bytes that unpacks to {}, which no writer makes", stored, raw));
    if (header_.number != number_)
        return fail(fmt::format("chunk number {}, expected {}", header_.number, number_));
    if (std::string wrong = unpacker_.read(*file_, offset_, header_); !wrong.empty())
        return fail(std::move(wrong));
    const Next out = take_content();
    if (out == Next::kProblem) return out;
    offset_ += sizeof header_ + stored;
    ++number_;
    return out;
}

const trace::Chunk& ChunkReader::chunk() {
    const PaddedBytes& raw = unpacker_.raw();
    if (!parsed_) parsed_ = chunk_.ParseFromArray(raw.data(), static_cast<int>(raw.size()));
    return chunk_;
}

ChunkReader::Next ChunkReader::take_content() {
    PaddedBytes& raw = unpacker_.raw();
    parsed_ = false;
    if (header_.kind == trace::ChunkKind::kEvents && take_apart(raw, events_) == Taken::kDone)
        return Next::kEvents;
    parsed_ = chunk_.ParseFromArray(raw.data(), static_cast<int>(raw.size()));
    if (!parsed_) return fail("the chunk's content is not a trace message");
    if (static_cast<int>(chunk_.body_case()) != static_cast<int>(header_.kind))
        return fail(fmt::format("a chunk of kind {} holds a message of kind {}",
                                static_cast<unsigned>(header_.kind), static_cast<int>(chunk_.body_case())));
    return Next::kChunk;
}

}  // namespace fragscope::analysis
