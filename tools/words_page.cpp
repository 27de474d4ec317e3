// Page: paragraphs, items and tables within a width. See words.h.
#include <algorithm>
#include <numeric>

#include "tools/words.h"

namespace fragscope::tools {
namespace {

constexpr std::size_t kColumnGap = 2;
constexpr std::size_t kNarrowestColumn = 12;
constexpr int kNoteIndent = 2;  // beyond the table's own

std::string spaces(std::size_t count) { return std::string(count, ' '); }

std::size_t as_size(int value) { return static_cast<std::size_t>(std::max(value, 0)); }

std::string aligned(const std::string& text, std::size_t width, Table::Align align) {
    const std::size_t used = std::min(display_width(text), width);
    return align == Table::Align::kRight ? spaces(width - used) + text : text + spaces(width - used);
}

std::string trimmed_right(std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

const char* escape_of(Page::Tone tone) {
    switch (tone) {
        case Page::Tone::kPlain:
            return "";
        case Page::Tone::kStrong:
            return "\x1b[1m";
        case Page::Tone::kGood:
            return "\x1b[32m";
        case Page::Tone::kBad:
            return "\x1b[1;31m";
        case Page::Tone::kWarning:
            return "\x1b[33m";
        case Page::Tone::kQuiet:
            return "\x1b[2m";
    }
    return "";
}

// Widths of the columns, or an empty vector when the table does not fit into `room` columns at all.
std::vector<std::size_t> column_widths(const Table& table, std::size_t room) {
    std::vector<std::size_t> widths;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
        std::size_t width = display_width(table.columns[c].header);
        for (const Table::Row& row : table.rows) width = std::max(width, display_width(row.cells.at(c)));
        widths.push_back(width);
    }
    const auto total = [&] {
        return std::accumulate(widths.begin(), widths.end(), kColumnGap * (widths.size() - 1));
    };
    while (total() > room) {  // take from the widest column that may wrap
        std::size_t widest = widths.size();
        for (std::size_t c = 0; c < widths.size(); ++c) {
            if (!table.columns[c].wraps || widths[c] <= kNarrowestColumn) continue;
            if (widest == widths.size() || widths[c] > widths[widest]) widest = c;
        }
        if (widest == widths.size()) return {};
        --widths[widest];
    }
    return widths;
}

}  // namespace

void Page::put(std::string_view line, Tone tone) {
    if (style_.colour && tone != Tone::kPlain) {
        text_ += escape_of(tone);
        text_ += line;
        text_ += "\x1b[0m";
    } else {
        text_ += line;
    }
    text_ += '\n';
}

void Page::gap() {
    if (!text_.empty() && !text_.ends_with("\n\n")) text_ += '\n';
}

void Page::line(std::string_view text, Tone tone) { put(text, tone); }

void Page::title(std::string_view text) { paragraph(text, 0, Tone::kStrong); }

void Page::heading(std::string_view text) {
    gap();
    paragraph(text, 0, Tone::kStrong);
}

void Page::paragraph(std::string_view text, int indent, Tone tone) {
    for (const std::string& part : wrap(clean(text), as_size(style_.width - indent))) {
        put(spaces(as_size(indent)) + part, tone);
    }
}

void Page::item(std::string_view mark, std::string_view text, int indent, Tone tone) {
    const std::size_t hang = as_size(indent) + display_width(mark) + 1;
    std::string start = spaces(as_size(indent)) + std::string(mark) + " ";
    for (const std::string& part : wrap(clean(text), as_size(style_.width - static_cast<int>(hang)))) {
        put(start + part, tone);
        start = spaces(hang);
    }
}

void Page::table(const Table& raw, int indent) {
    Table table = raw;
    for (Table::Row& row : table.rows) {
        for (std::string& cell : row.cells) cell = clean(cell);
    }
    const std::vector<std::size_t> widths = column_widths(table, as_size(style_.width - indent));
    if (widths.empty()) return table_stacked(table, indent);

    const auto put_row = [&](const std::vector<std::string>& cells, Tone tone) {
        std::vector<std::vector<std::string>> parts;
        std::size_t height = 1;
        for (std::size_t c = 0; c < cells.size(); ++c) {
            parts.push_back(wrap(cells[c], widths[c]));
            height = std::max(height, parts.back().size());
        }
        for (std::size_t h = 0; h < height; ++h) {
            std::string out = spaces(as_size(indent));
            for (std::size_t c = 0; c < cells.size(); ++c) {
                if (c != 0) out += spaces(kColumnGap);
                out += aligned(h < parts[c].size() ? parts[c][h] : "", widths[c], table.columns[c].align);
            }
            put(trimmed_right(out), tone);
        }
    };
    std::vector<std::string> headers;
    for (const Table::Column& column : table.columns) headers.push_back(column.header);
    put_row(headers, Tone::kQuiet);
    for (const Table::Row& row : table.rows) {
        put_row(row.cells, row.emphasised ? Tone::kStrong : Tone::kPlain);
        for (const std::string& note : row.notes) paragraph(note, indent + kNoteIndent, Tone::kQuiet);
    }
}

// For pages narrower than the table: one line per cell.
void Page::table_stacked(const Table& table, int indent) {
    for (const Table::Row& row : table.rows) {
        for (std::size_t c = 0; c < row.cells.size(); ++c) {
            if (row.cells[c].empty()) continue;
            const std::string& header = table.columns[c].header;
            const std::string text = header.empty() || c == 0 ? row.cells[c] : header + ": " + row.cells[c];
            item(c == 0 ? "-" : " ", text, indent, row.emphasised ? Tone::kStrong : Tone::kPlain);
        }
        for (const std::string& note : row.notes) paragraph(note, indent + 2 * kNoteIndent, Tone::kQuiet);
    }
}

}  // namespace fragscope::tools
