// PyTorch's out-of-memory messages: gathered from their lines, and made into states.
//
// What the numbers are, by the allocator's source (CUDACachingAllocator.cpp): "Tried to allocate" is what a new
// segment takes (2 MiB for blocks of up to 1 MiB, 20 MiB for those below 10 MiB, else whole 2 MiB), not what the
// program asked for. "free" is cudaMemGetInfo after it had given back every segment without a block and asked
// again. "allocated in private pools" are the blocks that lie unused in private pools, and they are counted among
// what is allocated. Processes are NVML's, as far as it sees them.
#include "analysis/read/message_torch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/read/message_text.h"
#include "analysis/read/message_torch_clauses.h"
#include "analysis/read/message_torch_state.h"

namespace fragscope::analysis {

namespace {

constexpr std::size_t kMostText = 16384;    // squeezed, of one message: some five hundred processes
constexpr std::uint64_t kMostLines = 400;   // from its first line to its last
constexpr std::size_t kKeptBefore = 96;     // for a message whose first words are on two lines

class TorchReader final : public MessageReader {
  public:
    using MessageReader::MessageReader;

    void line(const TextPiece& piece) override {
        const std::size_t before = text_.size();
        append_squeezed(text_, piece.begins ? without_log_prefix(piece.text) : piece.text);
        if (text_.size() != before) {
            if (lines_.empty() || lines_.back().second != piece.line) lines_.emplace_back(before, piece.line);
        }
        while (step(piece.line, false)) {}
        shorten();
    }

    void end() override {
        while (step(lines_.empty() ? 0 : lines_.back().second, true)) {}
    }

  private:
    // The line of the file that this place of the text is from.
    std::uint64_t line_at(std::size_t place) const {
        std::uint64_t line = lines_.empty() ? 0 : lines_.front().second;
        for (const auto& [begin, number] : lines_)
            if (begin <= place) line = number;
        return line;
    }

    void cut(std::size_t bytes) {
        text_.erase(0, bytes);
        std::pair<std::size_t, std::uint64_t> last{0, 0};
        std::size_t gone = 0;
        for (auto& [begin, number] : lines_) {
            if (begin <= bytes) {
                last = {0, number};
                ++gone;
            } else {
                begin -= bytes;
            }
        }
        if (gone == 0) return;
        lines_.erase(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(gone - 1));
        lines_.front() = last;
    }

    // Takes the next message from the text, if it is there to its end or nothing more of it is to come.
    bool step(std::uint64_t line, bool no_more) {
        const std::size_t begin = torch_message_at(text_, 0);
        if (begin == std::string::npos) return false;
        std::string_view text = std::string_view(text_).substr(begin);
        TorchMessage message = torch_message_in(text);
        // A message does not go on behind the beginning of the next one.
        std::size_t next = torch_message_at(text, std::max<std::size_t>(message_head(message), 1));
        // Its own clause about the capacity, of which the end is still to come.
        constexpr std::string_view kCapacity = "hasatotalcapac";
        if (next != std::string_view::npos && message.tried && !message.total) {
            const std::size_t own = text.find(kCapacity, next);
            if (own != std::string_view::npos && own - next < 8) next = torch_message_at(text, own + kCapacity.size());
        }
        if (next != std::string_view::npos && next < message.used_bytes) {
            message = torch_message_in(text.substr(0, next));
        }
        const bool complete = message.whole || next != std::string_view::npos || no_more ||
                              text.size() - message.used_bytes > kMostText / 8 || text.size() > kMostText ||
                              line - line_at(begin) > kMostLines;
        if (!complete) return false;
        const std::uint64_t first = line_at(begin);
        const std::uint64_t last = line_at(begin + (message.used_bytes == 0 ? 0 : message.used_bytes - 1));
        if (message.tried || message.total) found().add({state_of(message, first), FoundStates::Says::kState, "", last});
        cut(begin + std::max<std::size_t>(message.used_bytes, kBeginning));
        return true;
    }

    // The words that began it are not those of another message.
    static std::size_t message_head(const TorchMessage& message) {
        if (message.wording == TorchMessage::Wording::kAsync) return 60;
        // "…outofmemory.Triedtoallocate158.00MiB.GPU0hasatotalcapacityof"
        return std::max<std::size_t>(message.capacity_end, kBeginning);
    }

    void shorten() {
        if (torch_message_at(text_, 0) == std::string::npos && text_.size() > kKeptBefore)
            cut(text_.size() - kKeptBefore);
    }

    static constexpr std::size_t kBeginning = 24;
    std::string text_;
    std::vector<std::pair<std::size_t, std::uint64_t>> lines_;  // where a line begins in the text, and its number
};

}  // namespace

constinit const MessageKind kTorchMessage{
    "torch-message", "PyTorch's out-of-memory message",
    "\"… out of memory. Tried to allocate …\", \"Allocation on device … would exceed allowed memory\"",
    [](FoundStates& found) -> std::unique_ptr<MessageReader> { return std::make_unique<TorchReader>(found); }};

}  // namespace fragscope::analysis
