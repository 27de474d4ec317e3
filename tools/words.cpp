// Numbers and plain text for a person: see words.h.
#include "tools/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace fragscope::tools {
namespace {

constexpr std::array<std::string_view, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

// Words that stay on the line of the number before them.
bool is_unit(std::string_view word) {
    while (!word.empty() && std::string_view(".,;:)").find(word.back()) != std::string_view::npos)
        word.remove_suffix(1);
    if (std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end()) return true;
    return word == "ns" || word == "us" || word == "ms" || word == "s" || word == "min" || word == "h" ||
           word == "%";
}

bool ends_in_digit(std::string_view word) {
    return !word.empty() && word.back() >= '0' && word.back() <= '9';
}

// Three digits that matter: 1.46, 14.6, 146.
std::string three_digits(double value) {
    if (value < 9.995) return fmt::format("{:.2f}", value);
    if (value < 99.95) return fmt::format("{:.1f}", value);
    return fmt::format("{:.0f}", value);
}

// The largest unit that the number reaches.
std::size_t unit_of(std::uint64_t bytes) {
    std::size_t unit = 0;
    while (unit + 1 < kUnits.size() && (bytes >> (10 * (unit + 1))) != 0) ++unit;
    return unit;
}

// A whole number of its unit: human_bytes says it exactly.
bool is_whole(std::uint64_t bytes) { return bytes % (std::uint64_t{1} << (10 * unit_of(bytes))) == 0; }

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; }

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text) {
    const auto first = static_cast<unsigned char>(text.front());
    std::size_t length = 0;
    if (first >= 0xc2 && first <= 0xdf)
        length = 2;
    else if (first >= 0xe0 && first <= 0xef)
        length = 3;
    else if (first >= 0xf0 && first <= 0xf4)
        length = 4;
    if (length == 0 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if (!is_continuation(text[i])) return 0;
    }
    const auto second = static_cast<unsigned char>(text[1]);
    if (first == 0xc2 && second < 0xa0) return 0;   // C1 control characters
    if (first == 0xe0 && second < 0xa0) return 0;   // too long an encoding
    if (first == 0xed && second >= 0xa0) return 0;  // surrogates
    if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90)) return 0;
    // Marks that turn the writing direction around could make a line say what it does not.
    if (first == 0xe2 && second == 0x80 && static_cast<unsigned char>(text[2]) >= 0xaa &&
        static_cast<unsigned char>(text[2]) <= 0xae) {
        return 0;
    }
    if (first == 0xe2 && second == 0x81 && static_cast<unsigned char>(text[2]) >= 0xa6 &&
        static_cast<unsigned char>(text[2]) <= 0xa9) {
        return 0;
    }
    return length;
}

// The byte position behind the first `count` code points.
std::size_t position_of(std::string_view text, std::size_t count) {
    std::size_t at = 0;
    while (at < text.size() && count > 0) {
        ++at;
        while (at < text.size() && is_continuation(text[at])) ++at;
        --count;
    }
    return at;
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
    std::size_t unit = unit_of(bytes);
    const std::uint64_t one = std::uint64_t{1} << (10 * unit);
    if (bytes % one == 0) return fmt::format("{} {}", bytes / one, kUnits[unit]);
    double value = static_cast<double>(bytes) / static_cast<double>(one);
    if (value >= 1023.5 && unit + 1 < kUnits.size()) {
        ++unit;
        value /= 1024;
    }
    return fmt::format("{} {}", three_digits(value), kUnits[unit]);
}

std::string exact_bytes(std::uint64_t bytes) { return grouped(bytes) + " B"; }

std::string both_bytes(std::uint64_t bytes) {
    const std::string human = human_bytes(bytes);
    if (is_whole(bytes)) return human;
    return fmt::format("{} ({})", human, exact_bytes(bytes));
}

std::string human_margin(std::int64_t bytes) {
    if (bytes == 0) return "0 B";
    const std::uint64_t size =
        bytes < 0 ? ~static_cast<std::uint64_t>(bytes) + 1 : static_cast<std::uint64_t>(bytes);
    return fmt::format("{}{}", bytes < 0 ? '-' : '+', human_bytes(size));
}

std::string grouped(std::uint64_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t at = digits.size(); at > 3;) {
        at -= 3;
        digits.insert(at, 1, ',');
    }
    return digits;
}

std::string counted(std::uint64_t number, std::string_view one, std::string_view many) {
    if (number == 1) return fmt::format("1 {}", one);
    if (many.empty()) return fmt::format("{} {}s", grouped(number), one);
    return fmt::format("{} {}", grouped(number), many);
}

std::string human_duration(std::uint64_t ns) {
    if (ns == 0) return "0 s";
    if (ns < 1000) return fmt::format("{} ns", ns);
    const double value = static_cast<double>(ns);
    if (value < 999.5e3) return three_digits(value / 1e3) + " us";
    if (value < 999.5e6) return three_digits(value / 1e6) + " ms";
    const std::uint64_t seconds = ns / 1'000'000'000;
    if (seconds < 120) return three_digits(value / 1e9) + " s";
    if (seconds < 7200) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
    return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string human_ratio(double ratio) {
    if (!std::isfinite(ratio)) return "not known";
    const double percent = ratio * 100;
    if (percent == 0) return "0 %";
    if (percent > 0 && percent < 0.05) return "less than 0.1 %";
    if (percent < 100 && percent > 99.9) return "more than 99.9 %";
    if (percent < 9.95 || (percent < 100 && percent >= 99)) return fmt::format("{:.1f} %", percent);
    return fmt::format("{:.0f} %", percent);
}

std::string upper_first(std::string text) {
    if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

namespace {

// Stand-ins for the few characters beyond ASCII that our own sentences use.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kPlain = {{{"\u2026", "..."},
                                                                                  {"\u2013", "-"},
                                                                                  {"\u2014", "-"},
                                                                                  {"\u00d7", "x"},
                                                                                  {"\u2264", "<="},
                                                                                  {"\u2265", ">="},
                                                                                  {"\u2019", "'"},
                                                                                  {"\u2212", "-"}}};

std::string_view plain_for(std::string_view character) {
    for (const auto& [from, to] : kPlain) {
        if (from == character) return to;
    }
    return {};
}

}  // namespace

std::string printable(std::string_view text, bool utf8) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const char c = text.front();
        const auto byte = static_cast<unsigned char>(c);
        std::size_t taken = 1;
        if (c == '\n' || c == '\t') {
            out += ' ';
        } else if (byte >= 0x20 && byte < 0x7f) {
            out += c;
        } else if (const std::size_t length = byte >= 0x80 ? utf8_length(text) : 0; length != 0 && utf8) {
            out += text.substr(0, length);
            taken = length;
        } else if (const std::string_view plain = plain_for(text.substr(0, length)); !plain.empty()) {
            out += plain;
            taken = length;
        } else {
            out += fmt::format("\\x{:02x}", byte);
        }
        text.remove_prefix(taken);
    }
    return out;
}

std::size_t display_width(std::string_view text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
    width = std::max<std::size_t>(width, 1);
    std::vector<std::string> words;
    while (!text.empty()) {
        const std::size_t space = text.find(' ');
        const std::string_view word = text.substr(0, space);
        text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
        if (word.empty()) continue;
        if (!words.empty() && is_unit(word) && ends_in_digit(words.back()) &&
            display_width(words.back()) + 1 + display_width(word) <= width) {
            words.back() += ' ';
            words.back() += word;
        } else {
            words.emplace_back(word);
        }
    }
    std::vector<std::string> lines(1);
    for (std::string_view word : words) {
        if (!lines.back().empty() && display_width(lines.back()) + 1 + display_width(word) > width) {
            lines.emplace_back();
        }
        while (lines.back().empty() && display_width(word) > width) {
            const std::size_t cut = position_of(word, width);
            lines.back() = word.substr(0, cut);
            lines.emplace_back();
            word.remove_prefix(cut);
        }
        if (!lines.back().empty()) lines.back() += ' ';
        lines.back() += word;
    }
    return lines;
}

}  // namespace fragscope::tools
