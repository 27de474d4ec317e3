#include "collector/utf8.h"

#include <cstdint>

namespace fragscope::collector {

namespace {

// Length of the well-formed character (Unicode 15, table 3-7) at the front of `text`; 0: there is none.
std::size_t character_length(std::string_view text) {
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0u;
    };
    const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
    const unsigned first = byte(0);
    const unsigned second = byte(1);
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first < 0xe0) return continues(1) ? 2 : 0;
    if (first >= 0xe0 && first < 0xf0) {
        if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0))
            return 0;  // overlong, surrogate
        return continues(1) && continues(2) ? 3 : 0;
    }
    if (first >= 0xf0 && first < 0xf5) {
        if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90))
            return 0;  // overlong, too large
        return continues(1) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string to_utf8(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::size_t length = character_length(text);
        if (length == 0)
            out += '?';
        else
            out.append(text.substr(0, length));
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

}  // namespace fragscope::collector
