// Takes a trace file apart into checked messages. Knows where things lie; knows nothing of what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/read/batch_columns.h"
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

class ChunkReader {
  public:
    // Opens the file and checks its header. Empty: done; else the reason, in one sentence.
    std::string open(const std::string& path);

    enum class Next {
        kEvents,   // `events()` holds them, and `chunk()` as a message
        kChunk,    // any other kind: `chunk()` holds it
        kAtEnd,    // the file ends here, behind a whole chunk
        kProblem,  // `problem()` says what is wrong with the bytes from offset() on
    };
    Next next();

    const trace::Chunk& chunk();
    const BatchColumns& events() const { return events_; }  // until the next call of next()
    const trace::ChunkHeader& header() const { return header_; }
    std::uint64_t offset() const { return offset_; }             // behind the last whole chunk
    std::uint64_t chunk_offset() const { return chunk_start_; }  // where the last chunk starts
    const std::string& problem() const { return problem_; }
    std::shared_ptr<const FileBytes> file() const { return file_; }

  private:
    Next fail(std::string what);
    Next take_content();

    std::shared_ptr<FileBytes> file_;
    std::uint64_t offset_ = 0;
    std::uint64_t chunk_start_ = 0;
    std::uint64_t number_ = 0;
    trace::ChunkHeader header_{};
    Unpacker unpacker_;
    trace::Chunk chunk_;
    bool parsed_ = false;  // chunk_ is the one that was read last
    BatchColumns events_;
    std::string problem_;
};

}  // namespace fragscope::analysis
