// How Fragscope writes numbers and text for a person: byte counts, durations, wrapped paragraphs, tables.
// Pure functions from values to strings; the terminal is looked at in words_terminal.h only. What the report
// messages mean in words is in words_terms.h.
//
// Texts that come from a trace (command lines, device names, messages) are hostile: Page passes everything it
// prints through printable(), so that no control character of a trace reaches the terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::tools {

// What the place that we print to can show.
struct Style {
    int width = 80;       // columns
    bool utf8 = false;    // may print characters beyond ASCII
    bool colour = false;  // may print ANSI escape sequences
};

// "0 B", "512 B", "2 MiB" where that is exact, otherwise three digits: "1.46 GiB". Binary units.
std::string human_bytes(std::uint64_t bytes);
// "1,572,864 B"
std::string exact_bytes(std::uint64_t bytes);
// human_bytes, with exact_bytes in brackets where the first is rounded.
std::string both_bytes(std::uint64_t bytes);
// With a sign: "+2 MiB", "-1.46 GiB", "0 B".
std::string human_margin(std::int64_t bytes);
// "1,234,567"
std::string grouped(std::uint64_t number);
// "1 call", "3 calls"; `many` is used where it is not one + "s".
std::string counted(std::uint64_t number, std::string_view one, std::string_view many = {});
// "0 s", "850 ns", "1.52 us", "12.3 ms", "4.2 s", "1 h 02 min"
std::string human_duration(std::uint64_t ns);
// "37 %", "0.4 %", "more than 99.9 %" (never "100 %" for less than all, never "0 %" for more than nothing).
std::string human_ratio(double ratio);

std::string upper_first(std::string text);

// The text with control characters and broken UTF-8 as \xNN; without `utf8`, everything beyond ASCII too. A
// line break becomes a space.
std::string printable(std::string_view text, bool utf8);
// Terminal columns of a text without control characters: one per code point.
std::size_t display_width(std::string_view text);
// Lines of at most `width` columns. Breaks at spaces, but not between a number and its unit; a word longer
// than a line is cut. Never returns an empty vector.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

// Rows of cells, some with a note that stands under the row.
struct Table {
    enum class Align { kLeft, kRight };
    struct Column {
        std::string header;
        Align align = Align::kLeft;
        bool wraps = false;  // may be made narrower when the page is too narrow
    };
    struct Row {
        std::vector<std::string> cells;  // as many as columns
        std::vector<std::string> notes;  // a paragraph each
        bool emphasised = false;
    };
    std::vector<Column> columns;
    std::vector<Row> rows;
};

// Text of a whole page, built from the top down. Every argument is plain text: escaping, wrapping,
// indentation and colour are done here.
class Page {
  public:
    explicit Page(Style style) : style_(style) {}

    enum class Tone { kPlain, kStrong, kGood, kBad, kWarning, kQuiet };

    void title(std::string_view text);
    void heading(std::string_view text);  // with an empty line before
    void paragraph(std::string_view text, int indent = 0, Tone tone = Tone::kPlain);
    // A paragraph behind a mark ("-", "!", "1."), its further lines aligned with the first.
    void item(std::string_view mark, std::string_view text, int indent = 2, Tone tone = Tone::kPlain);
    void table(const Table& table, int indent = 2);
    // A line that is laid out already and may hold our own characters beyond ASCII (charts). Not escaped, not
    // wrapped.
    void line(std::string_view text, Tone tone = Tone::kPlain);
    void gap();

    const Style& style() const { return style_; }
    const std::string& text() const { return text_; }

  private:
    void put(std::string_view line, Tone tone);
    void table_stacked(const Table& table, int indent);
    std::string clean(std::string_view text) const { return printable(text, style_.utf8); }

    Style style_;
    std::string text_;
};

}  // namespace fragscope::tools
