// The bytes of device memory, kept only where something was written, so that a large simulated device costs
// little. What was never written reads as zero. A fill of whole chunks is kept as its pattern.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

namespace fragscope::sim {

class Backing {
  public:
    // All offsets are bytes from the start of the allocation. write() and fill() may throw std::bad_alloc.
    void write(std::uint64_t offset, const void* from, std::uint64_t bytes);
    void read(std::uint64_t offset, void* to, std::uint64_t bytes) const;
    // Repeats the 4 bytes of `pattern`; its phase is that of `offset`, modulo 4, at the pattern's byte 0 for
    // multiples of 4.
    void fill(std::uint64_t offset, std::uint32_t pattern, std::uint64_t bytes);

  private:
    static constexpr std::uint64_t kChunk = 64 << 10;
    struct Chunk {
        std::uint32_t pattern = 0;
        std::unique_ptr<unsigned char[]> bytes;  // null: all of it is `pattern`
    };
    unsigned char* materialise(std::uint64_t index);

    std::unordered_map<std::uint64_t, Chunk> chunks_;
};

}  // namespace fragscope::sim
