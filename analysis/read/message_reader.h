// One kind of message about a failed request for memory, as it stands in logs and in pasted text. All kinds are
// looked for in one pass over the lines (message_log.h).
//
// To add one: a file here that defines a MessageKind, and its row in message_log.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "analysis/imported_state.h"

namespace fragscope::analysis {

// The failures found so far; of very many the last ones.
class FoundStates {
  public:
    static constexpr std::size_t kMost = 1000;
    // How much it says. Of two that stand near each other and can be of one failure, the one that says more counts.
    enum class Says : std::uint8_t {
        kError,    // that memory was short
        kRequest,  // what was asked for
        kState     // what was held then
    };
    struct Found {
        ImportedState state;
        Says says = Says::kState;
        // In what wording. One program says the same failure in several; twice in one wording it is two failures.
        std::string_view wording;
        std::uint64_t last_line = 0;
    };

    void add(Found found);
    std::deque<Found>& all() { return found_; }
    std::uint64_t not_kept() const { return not_kept_; }

  private:
    std::deque<Found> found_;
    std::uint64_t not_kept_ = 0;
};

struct TextPiece {
    std::string_view text;
    std::uint64_t line = 0;  // of the file, from 1
    bool begins = true;      // it begins a line; else it continues a very long one
};

class MessageReader {
  public:
    explicit MessageReader(FoundStates& found) : found_(found) {}
    virtual ~MessageReader() = default;
    MessageReader(const MessageReader&) = delete;
    MessageReader& operator=(const MessageReader&) = delete;

    // Each line, or piece of a very long one, in order.
    virtual void line(const TextPiece& piece) = 0;
    virtual void end() = 0;

  protected:
    FoundStates& found() { return found_; }

  private:
    FoundStates& found_;
};

struct MessageKind {
    const char* kind;        // "torch-message"
    const char* in_words;    // "PyTorch's out-of-memory message"
    const char* looked_for;  // what has to stand in a text for it to be found
    std::unique_ptr<MessageReader> (*reader)(FoundStates& found);
};

}  // namespace fragscope::analysis
