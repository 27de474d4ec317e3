#include "analysis/read/clean_text.h"

#include <cstdint>

namespace fragscope::analysis {

std::size_t utf8_until(std::string_view text) {
    std::size_t at = 0;
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : std::uint8_t{0};
    };
    while (at < text.size()) {
        const std::uint8_t first = byte(at);
        if (first < 0x80) {
            ++at;
            continue;
        }
        const std::size_t more = first < 0xC2   ? 0
                                 : first < 0xE0 ? 1
                                 : first < 0xF0 ? 2
                                 : first < 0xF5 ? 3
                                                : 0;
        if (more == 0) return at;
        const std::uint8_t second = byte(at + 1);
        const std::uint8_t least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        const std::uint8_t most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (second < least || second > most) return at;
        for (std::size_t i = 2; i <= more; ++i) {
            if (byte(at + i) < 0x80 || byte(at + i) > 0xBF) return at;
        }
        at += more + 1;
    }
    return at;
}

std::string clean_text(std::string_view text, std::size_t most) {
    const bool cut = text.size() > most;
    if (cut) {
        // Not inside of a character.
        while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
        text = text.substr(0, most);
    }
    std::string out;
    while (!text.empty()) {
        const std::size_t good = utf8_until(text);
        for (const char c : text.substr(0, good)) {
            const bool control = (c >= 0 && c < ' ') || c == 0x7f;
            out += control ? '?' : c;
        }
        text.remove_prefix(good);
        if (text.empty()) break;
        out += '?';
        text.remove_prefix(1);
    }
    return cut ? out + "…" : out;
}

}  // namespace fragscope::analysis
