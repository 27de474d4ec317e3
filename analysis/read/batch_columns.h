// A chunk of events taken apart into its columns, without decoding them: where in the message each lies and
// how many numbers it holds. A message that is encoded otherwise than the writer's protobuf library does it
// (fields twice or not packed, unknown ones) is brought into that form first, so one decoder sees them all.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::analysis {

struct Column {
    const unsigned char* begin = nullptr;
    const unsigned char* end = nullptr;
    std::size_t count = 0;  // of numbers
    bool empty() const { return count == 0; }
};

struct BatchColumns {
    std::uint32_t process = 0;
    std::uint32_t count = 0;
    std::vector<std::string_view> functions;
    std::vector<std::int32_t> threads;
    // By the number of the field in trace::EventBatch. Behind the last byte of a column at least
    // kLongestVarint more can be read.
    static constexpr std::uint32_t kFirst = 5;
    static constexpr std::uint32_t kLast = 18;
    std::array<Column, kLast + 1> columns;
};

// Bytes of a message, with room behind them as BatchColumns wants it.
class PaddedBytes {
  public:
    void resize(std::size_t size);
    char* data() { return bytes_.data(); }
    const char* data() const { return bytes_.data(); }
    std::size_t size() const { return size_; }

  private:
    std::vector<char> bytes_;
    std::size_t size_ = 0;
};

enum class Taken { kDone, kNoMessage, kNoEvents };

// Takes a trace::Chunk apart. `out` points into `message`, which is rewritten where it has to be. kNoEvents:
// a message, and not one of events.
Taken take_apart(PaddedBytes& message, BatchColumns& out);

}  // namespace fragscope::analysis
