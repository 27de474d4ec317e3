// Takes a trace file apart into checked messages. Knows where things lie; knows nothing of what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/chunk.h"
#include "proto/trace.pb.h"

namespace fragscope::analysis {

class ChunkReader {
  public:
    ChunkReader() = default;
    ~ChunkReader();
    ChunkReader(const ChunkReader&) = delete;
    ChunkReader& operator=(const ChunkReader&) = delete;

    // Opens the file and checks its header. Empty: done; else the reason, in one sentence.
    std::string open(const std::string& path);

    enum class Next {
        kChunk,    // `chunk()` holds it
        kAtEnd,    // the file ends here, behind a whole chunk
        kProblem,  // `problem()` says what is wrong with the bytes from offset() on
    };
    Next next();

    const trace::Chunk& chunk() const { return chunk_; }
    const trace::ChunkHeader& header() const { return header_; }
    std::uint64_t offset() const { return offset_; }             // behind the last whole chunk
    std::uint64_t chunk_offset() const { return chunk_start_; }  // where the last chunk starts
    const std::string& problem() const { return problem_; }

  private:
    Next fail(std::string what);
    bool read_exactly(void* to, std::size_t bytes);

    int fd_ = -1;
    std::uint64_t size_ = 0;
    std::uint64_t offset_ = 0;
    std::uint64_t chunk_start_ = 0;
    std::uint64_t number_ = 0;
    trace::ChunkHeader header_{};
    trace::Chunk chunk_;
    std::vector<std::byte> stored_;
    std::vector<char> raw_;
    std::string problem_;
};

}  // namespace fragscope::analysis
