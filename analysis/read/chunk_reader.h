// Takes a trace file apart into checked messages. Knows where things lie; knows nothing of what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "analysis/read/batch_columns.h"
#include "analysis/read/batch_decoder.h"
#include "analysis/read/file_bytes.h"
#include "proto/chunk.h"
#include "proto/trace.pb.h"

struct ZSTD_DCtx_s;

namespace fragscope::analysis {

// From a chunk's stored bytes to its content.
class Unpacker {
  public:
    // Reads what follows the header at `offset` and unpacks it to `raw()`. Empty: done; else why not.
    std::string read(const FileBytes& file, std::uint64_t offset, const trace::ChunkHeader& header);
    PaddedBytes& raw() { return raw_; }

  private:
    struct Free {
        void operator()(ZSTD_DCtx_s* context) const;
    };
    std::unique_ptr<ZSTD_DCtx_s, Free> context_;
    std::vector<std::byte> stored_;
    PaddedBytes raw_;
};

// What a chunk turned out to hold.
struct ChunkContent {
    trace::ChunkHeader header{};
    std::uint64_t offset = 0;  // of the header
    std::string problem;       // empty: it was taken apart
    Unpacker unpacker;
    bool is_events = false;  // `events` holds them; else `chunk` holds the message
    BatchColumns events;
    trace::Chunk chunk;
    // Of events: see check_batch.
    std::string wrong;
    BatchFacts facts;
};

// Chunk after chunk, in order. Where there are processors for it, the next few are taken apart meanwhile.
class ChunkReader {
  public:
    ChunkReader();
    ~ChunkReader();
    ChunkReader(const ChunkReader&) = delete;
    ChunkReader& operator=(const ChunkReader&) = delete;

    // Opens the file and checks its header. Empty: done; else the reason, in one sentence.
    std::string open(const std::string& path);

    enum class Next {
        kEvents,   // `content().events` holds them
        kChunk,    // any other kind: `content().chunk` holds it
        kAtEnd,    // the file ends here, behind a whole chunk
        kProblem,  // `problem()` says what is wrong with the bytes from offset() on
    };
    Next next();

    const ChunkContent& content() const { return *content_; }    // until the next call of next()
    const trace::Chunk& chunk();                                 // the same as a message, whatever it holds
    std::uint64_t offset() const { return offset_; }             // behind the last whole chunk
    std::uint64_t chunk_offset() const { return chunk_start_; }  // where the last chunk starts
    const std::string& problem() const { return problem_; }
    std::shared_ptr<const FileBytes> file() const { return file_; }

  private:
    struct Coming;
    enum class Found { kHeader, kEnd, kProblem };

    Found find_header();
    void look_ahead();
    Next fail(std::string what);

    std::shared_ptr<FileBytes> file_;
    std::uint64_t offset_ = 0;
    std::uint64_t chunk_start_ = 0;
    std::unique_ptr<ChunkContent> content_;
    std::string problem_;
    // Ahead of all that: where the next header is looked for, and what is under way.
    std::uint64_t ahead_ = 0;
    std::uint64_t number_ = 0;
    trace::ChunkHeader header_{};
    Found found_ = Found::kHeader;  // kHeader: looking goes on
    std::string found_problem_;
    std::uint64_t bytes_under_way_ = 0;  // unpacked
    std::deque<Coming> coming_;
    std::vector<std::unique_ptr<ChunkContent>> spare_;
};

}  // namespace fragscope::analysis
