// Lines of a log or of pasted text, as the readers of messages want them: without colours, carriage returns and
// other control characters, with line breaks that a structured log has escaped ("\n") taken as such, and UTF-16
// (what PowerShell writes) as plain characters. A line of any length comes in pieces of bounded length, so that
// a message inside of ten megabytes without a line end is found too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/importer.h"

namespace fragscope::analysis {

class TextLines {
  public:
    static constexpr std::size_t kMaxPiece = 16384;  // bytes

    explicit TextLines(ImportSource& source) : source_(source), buffer_(1 << 16) {}

    // False: there are no more, or the file cannot be read (ImportSource::problem).
    bool next();
    std::string_view text() const { return text_; }  // until the next call of next()
    std::uint64_t number() const { return number_; }  // of the line in the file, from 1
    bool begins() const { return begins_; }           // the piece begins a line; else it continues the last one
    std::uint64_t lines() const { return line_ends_ + (any_since_end_ ? 1 : 0); }
    bool ended_in_line() const { return any_since_end_; }  // at the end: no line end behind the last line

  private:
    int next_byte();  // -1: none
    int next_character();
    bool put(int c);  // true: the piece is complete

    ImportSource& source_;
    std::vector<char> buffer_;
    std::size_t at_ = 0;
    std::size_t filled_ = 0;
    enum class Wide : std::uint8_t { kUnknown, kNo, kLittle, kBig } wide_ = Wide::kUnknown;
    int held_ = -1;  // a character that was looked at and comes again
    std::string text_;
    std::uint64_t number_ = 1;
    std::uint64_t line_ends_ = 0;
    bool any_since_end_ = false;
    bool begins_ = true;
    bool next_begins_ = true;
};

// Whether a file that begins so may be text: no more than a few bytes of it are control characters.
bool looks_like_text(std::string_view head);

}  // namespace fragscope::analysis
