#include "analysis/read/chunk_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

namespace fragscope::analysis {

ChunkReader::~ChunkReader() {
    if (fd_ >= 0) ::close(fd_);
}

bool ChunkReader::read_exactly(void* to, std::size_t bytes) {
    char* position = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t n = ::read(fd_, position, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = 0;
            return false;
        }
        position += n;
        bytes -= static_cast<std::size_t>(n);
    }
    return true;
}

std::string ChunkReader::open(const std::string& path) {
    // O_NONBLOCK: opening a pipe that nobody writes to must not wait for ever.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) return fmt::format("cannot read {}: {}", path, std::strerror(errno));
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return fmt::format("cannot read {}: {}", path, std::strerror(errno));
    if (S_ISDIR(status.st_mode))
        return fmt::format("cannot read {}: it is a directory, not a trace file", path);
    if (!S_ISREG(status.st_mode)) return fmt::format("cannot read {}: it is not a regular file", path);
    size_ = static_cast<std::uint64_t>(status.st_size);
    if (size_ == 0) return fmt::format("{} is empty, not a Fragscope trace", path);

    trace::FileHeader header{};
    if (size_ < sizeof header)
        return fmt::format("{} is not a Fragscope trace: it has only {} bytes", path, size_);
    if (!read_exactly(&header, sizeof header))
        return fmt::format("cannot read {}: {}", path,
                           errno != 0 ? std::strerror(errno) : "it became shorter");
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
    const std::uint64_t left = size_ - offset_;
    if (left == 0) return Next::kAtEnd;
    if (left < sizeof header_)
        return fail(fmt::format("expected a chunk header of {} bytes, found only {}", sizeof header_, left));
    const auto unreadable = [&] {
        return fail(errno != 0 ? std::strerror(errno) : "the file became shorter while it was read");
    };
    if (!read_exactly(&header_, sizeof header_)) return unreadable();
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
    stored_.resize(stored);
    if (!read_exactly(stored_.data(), stored)) return unreadable();
    if (header_.checksum != trace::chunk_checksum(header_, stored_))
        return fail(fmt::format("the chunk of {} bytes does not match its checksum", stored));

    raw_.resize(raw);
    if (stored == raw) {
        if (raw != 0) std::memcpy(raw_.data(), stored_.data(), raw);
    } else {
        const std::size_t unpacked = ZSTD_decompress(raw_.data(), raw, stored_.data(), stored);
        if (ZSTD_isError(unpacked) != 0)
            return fail(fmt::format("the chunk does not unpack: {}", ZSTD_getErrorName(unpacked)));
        if (unpacked != raw)
            return fail(fmt::format("the chunk unpacks to {} bytes, expected {}", unpacked, raw));
    }
    if (!chunk_.ParseFromArray(raw_.data(), static_cast<int>(raw)))
        return fail("the chunk's content is not a trace message");
    if (static_cast<int>(chunk_.body_case()) != static_cast<int>(header_.kind))
        return fail(fmt::format("a chunk of kind {} holds a message of kind {}",
                                static_cast<unsigned>(header_.kind), static_cast<int>(chunk_.body_case())));
    offset_ += sizeof header_ + stored;
    ++number_;
    return Next::kChunk;
}

}  // namespace fragscope::analysis
