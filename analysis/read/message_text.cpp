#include "analysis/read/message_text.h"

#include <algorithm>
#include <array>
#include <limits>

namespace fragscope::analysis {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t'; }

void skip_spaces(std::string_view& text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
}

// "2024-06-01", "12:00:01,123", "06-01", "I0601", "20240601T120001Z": what loggers write for a time. An amount
// has none of its separators.
bool is_time(std::string_view word) {
    if (!word.empty() && (word.front() == 'I' || word.front() == 'W' || word.front() == 'E' || word.front() == 'F'))
        word.remove_prefix(1);
    if (word.size() < 4 || !is_digit(word.front())) return false;
    const bool all = std::all_of(word.begin(), word.end(), [](char c) {
        return is_digit(c) || c == '-' || c == ':' || c == '.' || c == ',' || c == '/' || c == 'T' || c == 'Z' ||
               c == '+';
    });
    if (!all) return false;
    if (word.find(':') != std::string_view::npos) return word.back() != ':' || word.size() > 5;
    return std::count(word.begin(), word.end(), '-') >= 1 || std::count(word.begin(), word.end(), '/') == 2 ||
           word.find('T') != std::string_view::npos;
}

bool is_level(std::string_view word) {
    constexpr std::array<std::string_view, 14> kLevels = {"DEBUG", "INFO",  "WARN", "WARNING",  "ERROR",
                                                          "FATAL", "TRACE", "E",    "W",        "I",
                                                          "stdout", "stderr", "F",  "CRITICAL"};
    while (!word.empty() && (word.back() == ':' || word.back() == '|' || word.back() == '-')) word.remove_suffix(1);
    return std::find(kLevels.begin(), kLevels.end(), word) != kLevels.end();
}

bool take_prefix(std::string_view& line) {
    skip_spaces(line);
    if (line.empty()) return false;
    constexpr std::size_t kMost = 100;
    const char first = line.front();
    if (first == '>' || first == '|' || first == '#' || first == '*') {
        line.remove_prefix(1);
        return true;
    }
    // RMM's own fields are in brackets too, from the action on.
    if (line.starts_with("[A]") || line.starts_with("[Upstream")) return false;
    if (first == '[' || first == '<' || first == '(') {
        const char last = first == '[' ? ']' : first == '<' ? '>' : ')';
        const std::size_t end = line.substr(0, kMost).find(last);
        if (end == std::string_view::npos) return false;
        // Parentheses are part of many a message; Ray's name a process in them.
        if (first == '(' && line.substr(0, end).find("pid=") == std::string_view::npos) return false;
        line.remove_prefix(end + 1);
        if (!line.empty() && line.front() == ':') line.remove_prefix(1);
        return true;
    }
    const std::size_t length = std::min(line.find_first_of(" \t"), line.size());
    const std::string_view word = line.substr(0, length);
    const bool place = word.size() > 1 && word.back() == ']' && word.find(':') != std::string_view::npos;
    const bool named = word.find("pid=") != std::string_view::npos;
    if (!is_time(word) && !is_level(word) && !place && !named) return false;
    line.remove_prefix(length);
    return true;
}

struct Unit {
    std::string_view name;
    std::uint64_t binary;
    std::uint64_t decimal;
};
// Longer names before those that they begin with.
constexpr std::array<Unit, 18> kUnits = {{
    {"bytes", 1, 1},
    {"byte", 1, 1},
    {"KiB", std::uint64_t{1} << 10, std::uint64_t{1} << 10},
    {"MiB", std::uint64_t{1} << 20, std::uint64_t{1} << 20},
    {"GiB", std::uint64_t{1} << 30, std::uint64_t{1} << 30},
    {"TiB", std::uint64_t{1} << 40, std::uint64_t{1} << 40},
    {"KB", std::uint64_t{1} << 10, 1'000},
    {"kB", std::uint64_t{1} << 10, 1'000},
    {"MB", std::uint64_t{1} << 20, 1'000'000},
    {"GB", std::uint64_t{1} << 30, 1'000'000'000},
    {"TB", std::uint64_t{1} << 40, 1'000'000'000'000},
    {"K", std::uint64_t{1} << 10, 1'000},
    {"k", std::uint64_t{1} << 10, 1'000},
    {"M", std::uint64_t{1} << 20, 1'000'000},
    {"G", std::uint64_t{1} << 30, 1'000'000'000},
    {"T", std::uint64_t{1} << 40, 1'000'000'000'000},
    {"B", 1, 1},
    {"", 1, 1},
}};

__extension__ using Wide = unsigned __int128;

}  // namespace

std::string_view without_log_prefix(std::string_view line) {
    for (int i = 0; i < 12 && take_prefix(line); ++i) {}
    skip_spaces(line);
    return line;
}

void append_squeezed(std::string& out, std::string_view line) {
    for (const char c : line)
        if (c > ' ' && c <= '~' && c != '|') out += c;
}

std::optional<std::uint64_t> take_number(std::string_view& text) {
    std::size_t digits = 0;
    std::uint64_t value = 0;
    while (digits < text.size() && is_digit(text[digits])) {
        const auto digit = static_cast<std::uint64_t>(text[digits] - '0');
        if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) return std::nullopt;
        value = value * 10 + digit;
        ++digits;
    }
    if (digits == 0) return std::nullopt;
    text.remove_prefix(digits);
    return value;
}

std::optional<Interval> take_amount(std::string_view& text, Units units) {
    std::string_view rest = text;
    const auto whole = take_number(rest);
    if (!whole) return std::nullopt;
    // In units of the last decimal place.
    Wide value = *whole;
    Wide scale = 1;
    // "8,589,934,592": commas between groups of three. One with any other number of digits behind it is a decimal one.
    const auto group = [&] {
        return rest.size() > 3 && rest[0] == ',' && is_digit(rest[1]) && is_digit(rest[2]) && is_digit(rest[3]) &&
               (rest.size() == 4 || !is_digit(rest[4]));
    };
    if (*whole != 0 && *whole < 1000) {
        for (int groups = 0; groups < 7 && group(); ++groups) {
            std::string_view digits = rest.substr(1, 3);
            value = value * 1000 + *take_number(digits);
            rest.remove_prefix(4);
        }
    }
    if (rest.size() > 1 && (rest[0] == '.' || rest[0] == ',') && is_digit(rest[1])) {
        rest.remove_prefix(1);
        for (int places = 0; !rest.empty() && is_digit(rest[0]); ++places) {
            if (places < 9) {
                value = value * 10 + static_cast<unsigned>(rest[0] - '0');
                scale *= 10;
            }
            rest.remove_prefix(1);
        }
    }
    const auto unit = std::find_if(kUnits.begin(), kUnits.end(),
                                   [&](const Unit& each) { return rest.starts_with(each.name); });
    rest.remove_prefix(unit->name.size());
    const Wide bytes = units == Units::kBinary ? unit->binary : unit->decimal;
    constexpr Wide kMost = std::numeric_limits<std::uint64_t>::max();
    Interval out;
    if (scale == 1) {
        if (value * bytes > kMost) return std::nullopt;
        out = Interval::exactly(static_cast<std::uint64_t>(value * bytes));
    } else {
        // Half of the last place either way.
        const Wide middle = value * 2 * bytes;
        const Wide low = middle > bytes ? (middle - bytes + 2 * scale - 1) / (2 * scale) : 0;
        const Wide high = (middle + bytes) / (2 * scale);
        if (high > kMost) return std::nullopt;
        out = {static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(std::max(low, high))};
    }
    text = rest;
    return out;
}

std::optional<Interval> both(const Interval& a, const Interval& b) {
    Interval out = a;
    if (b.low) out.low = std::max(out.low.value_or(0), *b.low);
    if (b.high) out.high = out.high ? std::min(*out.high, *b.high) : *b.high;
    if (out.low && out.high && *out.low > *out.high) return std::nullopt;
    return out;
}

std::string in_short(const Interval& amount) {
    if (!amount.low || !amount.high) return in_words(amount);
    return in_words(Interval::exactly(*amount.low + (*amount.high - *amount.low) / 2));
}

std::optional<Interval> part_left(const Interval& a, const Interval& b) {
    if (a.high && b.low && *a.high < *b.low) return std::nullopt;
    Interval out;
    out.low = a.low && b.high ? *a.low - std::min(*a.low, *b.high) : 0;
    if (a.high) out.high = *a.high - b.low.value_or(0);
    return out;
}

bool Cursor::literal(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
}

bool Cursor::amount(Interval& out, Units units) {
    const auto taken = take_amount(text_, units);
    if (taken) out = *taken;
    return taken.has_value();
}

bool Cursor::number(std::uint64_t& out) {
    const auto taken = take_number(text_);
    if (taken) out = *taken;
    return taken.has_value();
}

bool Cursor::find(std::string_view word, std::size_t within) {
    const std::size_t at = text_.substr(0, within + word.size()).find(word);
    if (at == std::string_view::npos) return false;
    text_.remove_prefix(at + word.size());
    return true;
}

}  // namespace fragscope::analysis
