// Puts the texts of one ring together from their parts. The parts are hostile: a text is only whole if its
// parts came in order and fill exactly the length that the first one stated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/wire.h"

namespace fragscope::collector {

struct Text {
    wire::TextKind kind;
    std::uint16_t subject;
    std::uint32_t id;  // see wire::TextKind
    std::string text;  // of some kinds a payload that is no text at all
};

class TextAssembly {
  public:
    enum class Took { kPart, kWhole, kRefused };

    // kWhole: text() holds it. kRefused: the part made no sense here; what had gathered is dropped.
    Took take(const wire::TextRecord& part);
    const Text& text() const { return text_; }

  private:
    Text text_{};
    std::uint32_t total_ = 0;
    std::uint32_t next_part_ = 0;  // 0: none has begun
};

}  // namespace fragscope::collector
