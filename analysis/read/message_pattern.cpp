#include "analysis/read/message_pattern.h"

#include <algorithm>
#include <string>

#include "analysis/read/message_text.h"

namespace fragscope::analysis {

namespace {

constexpr std::size_t kMostBetween = 200;  // that %* stands for

std::string_view literal_of(std::string_view pattern) { return pattern.substr(0, pattern.find('%')); }

// "67.24" and no unit: GiB.
std::optional<Interval> take_gigabytes(std::string_view& text) {
    std::size_t length = 0;
    while (length < text.size() && (text[length] == '.' || (text[length] >= '0' && text[length] <= '9'))) ++length;
    if (length == 0 || length > 24) return std::nullopt;
    std::string with_unit(text.substr(0, length));
    with_unit += "GiB";
    std::string_view rest = with_unit;
    const auto out = take_amount(rest);
    if (!out || !rest.empty()) return std::nullopt;
    text.remove_prefix(length);
    return out;
}

std::optional<Interval>* place_of(char role, PatternAmounts& out) {
    switch (role) {
        case 'r':
        case 'R':
            return &out.request;
        case 'f':
        case 'F':
            return &out.device_free;
        case 'c':
        case 'C':
            return &out.capacity;
        case 'l':
            return &out.limit;
        case 'u':
            return &out.held;
        case 'i':
            return &out.in_blocks;
        case 'h':
        case 'H':
            return &out.host;
        case 'x':
            return &out.taken;
        default:
            return nullptr;
    }
}

// Of an amount that ends its line the unit may stand on the next one, but nothing else that looks like one.
std::optional<Interval> take_amount_in_line(std::string_view& text, std::size_t line_left) {
    std::string_view line = text.substr(0, line_left);
    auto out = take_amount(line);
    if (!out || !line.empty() || line_left >= text.size()) {
        if (out) text.remove_prefix(std::min(line_left, text.size()) - line.size());
        return out;
    }
    const std::string_view behind = text.substr(line_left);
    const bool has_unit = line_left != 0 && (text[line_left - 1] < '0' || text[line_left - 1] > '9');
    for (const std::string_view unit : {"bytes", "KiB", "MiB", "GiB", "TiB", "MB", "GB"}) {
        if (has_unit || !behind.starts_with(unit)) continue;
        std::string_view both_lines = text;
        if (const auto whole = take_amount(both_lines)) {
            text = both_lines;
            return whole;
        }
    }
    text.remove_prefix(line_left);
    return out;
}

bool take_role(char role, std::string_view& text, std::size_t line_left, PatternAmounts& out) {
    if (role == '%') {
        if (!text.starts_with('%')) return false;
        text.remove_prefix(1);
        return true;
    }
    if (role == 'd') {
        std::string_view line = text.substr(0, line_left);
        const std::size_t before = line.size();
        out.device = take_number(line);
        text.remove_prefix(before - line.size());
        return out.device.has_value();
    }
    const bool gigabytes = role >= 'A' && role <= 'Z';
    const auto amount = gigabytes ? take_gigabytes(text) : take_amount_in_line(text, line_left);
    if (!amount) return false;
    std::optional<Interval>* place = place_of(role, out);
    if (place == nullptr) return true;
    const auto same = *place ? both(**place, *amount) : amount;
    out.contradicts = out.contradicts || !same;
    *place = same.value_or(*amount);
    return true;
}

}  // namespace

std::optional<std::size_t> match_pattern(std::string_view pattern, std::string_view squeezed,
                                         std::span<const std::size_t> breaks, PatternAmounts& out) {
    std::string_view text = squeezed;
    while (!pattern.empty()) {
        const std::string_view literal = literal_of(pattern);
        if (!text.starts_with(literal)) return std::nullopt;
        text.remove_prefix(literal.size());
        pattern.remove_prefix(literal.size());
        if (pattern.size() < 2) break;
        const char role = pattern[1];
        pattern.remove_prefix(2);
        if (role != '*') {
            const std::size_t at = squeezed.size() - text.size();
            const auto end = std::upper_bound(breaks.begin(), breaks.end(), at);
            if (!take_role(role, text, end == breaks.end() ? text.size() : *end - at, out)) return std::nullopt;
            continue;
        }
        const std::string_view next = literal_of(pattern);
        const std::size_t at = text.substr(0, kMostBetween + next.size()).find(next);
        if (at == std::string_view::npos) return std::nullopt;
        text.remove_prefix(at);
    }
    return squeezed.size() - text.size();
}

}  // namespace fragscope::analysis
