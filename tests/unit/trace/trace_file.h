// Trace files for tests: made by the real writer, or by hand where no writer would make them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "analysis/read/trace_reader.h"
#include "collector/trace_writer.h"
#include "proto/chunk.h"

namespace fragscope::test {

using Bytes = std::vector<std::byte>;

// A file of these bytes that is gone with the object.
class TemporaryFile {
  public:
    explicit TemporaryFile(const Bytes& bytes);
    ~TemporaryFile();
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

analysis::ReadResult read_bytes(const Bytes& bytes);

// Two processes, some events of different kinds, in several chunks, with its end.
Bytes small_trace();
// `count` events of process 0 with every field in use, different for each `seed`.
std::vector<collector::EventRow> random_rows(std::size_t count, unsigned seed);

// A file made by hand: correct headers and checksums around whatever content.
class HandMade {
  public:
    HandMade();
    // `change` may spoil the header's fields; the checksum is computed after it.
    HandMade& chunk(
        const trace::Chunk& content,
        const std::function<void(trace::ChunkHeader&)>& change = [](trace::ChunkHeader&) {});
    HandMade& raw(trace::ChunkKind kind, const std::string& content, std::uint32_t raw_bytes);
    HandMade& session();
    HandMade& end();
    const Bytes& bytes() const { return bytes_; }

  private:
    void put(trace::ChunkHeader header, const std::string& stored);
    Bytes bytes_;
    std::uint64_t number_ = 0;
};

}  // namespace fragscope::test
