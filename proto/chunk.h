// How chunks lie in a trace file: the two fixed headers, their checksums, and the limits that hold for every
// file. The grammar, the encoding of the content and the version table: FORMAT.md. Little-endian, and only
// little-endian machines write or read it.
#pragma once

#include <xxhash.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fragscope::trace {

static_assert(std::endian::native == std::endian::little,
              "the trace file's headers are written as they lie in memory");

// The newest version that this program writes and reads; see the table in FORMAT.md before changing it.
inline constexpr std::uint32_t kFormatVersion = 4;

// First bytes of every trace file of any version. The bytes around the name show up transfers that change
// line ends or strip the high bit.
inline constexpr unsigned char kFileMagic[8] = {0x89, 'F', 'S', 'T', '\r', '\n', 0x1a, '\n'};
inline constexpr std::uint32_t kChunkMagic = 0x4b435346;  // "FSCK" in memory order

// This header keeps its size and its fields in every version, so that a newer file can be refused by name.
struct FileHeader {
    unsigned char magic[8];
    std::uint32_t version;
    std::uint32_t header_bytes;  // where the first chunk starts
    std::uint64_t reserved;      // zero
    std::uint64_t checksum;      // file_checksum()
};
static_assert(sizeof(FileHeader) == 32);

// The number of the member of trace::Chunk's `body` that the chunk holds.
enum class ChunkKind : std::uint16_t {
    kSession = 1,
    kProcess = 2,
    kEvents = 3,
    kLoss = 4,
    kEnd = 5,
    kNames = 6,
    kReadings = 7,
};
inline constexpr ChunkKind kLastChunkKind = ChunkKind::kReadings;

struct ChunkHeader {
    std::uint32_t magic;
    std::uint16_t version;  // of the file header
    ChunkKind kind;
    std::uint32_t stored_bytes;  // that follow this header
    std::uint32_t
        raw_bytes;           // of the trace::Chunk message; equal to stored_bytes: stored as it is, else zstd
    std::uint64_t number;    // 0, 1, … in the file
    std::uint64_t checksum;  // chunk_checksum()
};
static_assert(sizeof(ChunkHeader) == 32);

// Limits. A writer keeps them, a reader refuses what breaks them: they bound what a small file can make a
// reader hold.
inline constexpr std::uint32_t kMaxEventsPerBatch = 1u << 16;
inline constexpr std::uint32_t kMaxRawEventBytes = 16u << 20;
inline constexpr std::uint32_t kMaxRawOtherBytes = 1u << 20;
inline constexpr std::uint32_t kMaxProcesses = 1u << 16;
// Numbers of one process, from 1 to below these.
inline constexpr std::uint32_t kMaxModules = 1u << 16;
inline constexpr std::uint32_t kMaxTexts = 1u << 20;
inline constexpr std::uint32_t kMaxStacks = 1u << 22;
constexpr std::uint32_t max_raw_bytes(ChunkKind kind) {
    return kind == ChunkKind::kEvents ? kMaxRawEventBytes : kMaxRawOtherBytes;
}
// A chunk that would compress further than this is stored uncompressed.
constexpr std::uint64_t max_raw_bytes_of_stored(std::uint64_t stored_bytes) {
    return 4096 + 64 * stored_bytes;
}
constexpr std::uint64_t max_events_of_stored(std::uint64_t stored_bytes) { return 64 + 4 * stored_bytes; }

inline std::uint64_t file_checksum(const FileHeader& header) {
    return XXH3_64bits(&header, offsetof(FileHeader, checksum));
}
// Over the header's fields and the stored bytes.
inline std::uint64_t chunk_checksum(const ChunkHeader& header, std::span<const std::byte> stored) {
    return XXH3_64bits_withSeed(stored.data(), stored.size(),
                                XXH3_64bits(&header, offsetof(ChunkHeader, checksum)));
}

}  // namespace fragscope::trace
