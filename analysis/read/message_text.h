// What the readers of messages have in common: text without its white space, so that a message reads the same
// however a terminal or a logger has wrapped it, a cursor over it, and amounts as intervals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/quantity.h"

namespace fragscope::analysis {

// Where a line of a log begins behind what loggers and terminals put before it: times, levels, "[rank0]:",
// "(Worker pid=12)", "file.py:123]", quotation marks.
std::string_view without_log_prefix(std::string_view line);

// Without white space, bars and whatever is not ASCII (frames around tracebacks): no message has any of it.
void append_squeezed(std::string& out, std::string_view line);

// How units without an "i" are meant: "MB" as 1024² bytes or as 1000².
enum class Units : std::uint8_t { kBinary, kDecimal };

// "23.69GiB", "0bytes", "1900,00MiB", "8.41G", "1075072515" (bytes): every amount that is written so when it is
// rounded to that decimal place. Moves `text` behind it; where it is none, or is not below 2^64 bytes, nothing
// moves.
std::optional<Interval> take_amount(std::string_view& text, Units units = Units::kBinary);
std::optional<std::uint64_t> take_number(std::string_view& text);

// Both statements are true. Nothing: they contradict each other.
std::optional<Interval> both(const Interval& a, const Interval& b);
// The middle of it, as a person would have written it.
std::string in_short(const Interval& amount);
// a - b where b is part of a; nothing: it cannot be.
std::optional<Interval> part_left(const Interval& a, const Interval& b);

// Squeezed text that is read from left to right.
class Cursor {
  public:
    explicit Cursor(std::string_view text) : text_(text), whole_(text) {}
    bool literal(std::string_view word);  // it stands here, and is passed
    bool amount(Interval& out, Units units = Units::kBinary);
    bool number(std::uint64_t& out);
    bool find(std::string_view word, std::size_t within);  // passes it; the first one that begins within so many bytes
    void skip(std::size_t bytes) { text_.remove_prefix(bytes < text_.size() ? bytes : text_.size()); }
    bool at_end() const { return text_.empty(); }
    std::string_view rest() const { return text_; }
    std::size_t position() const { return whole_.size() - text_.size(); }
    void back_to(std::size_t position) { text_ = whole_.substr(position); }

  private:
    std::string_view text_;
    std::string_view whole_;
};

}  // namespace fragscope::analysis
