#include "analysis/read/text_lines.h"

#include <algorithm>

namespace fragscope::analysis {

namespace {

constexpr int kEscape = 0x1b;

}  // namespace

int TextLines::next_byte() {
    if (at_ == filled_) {
        at_ = 0;
        filled_ = source_.read(buffer_);
        if (filled_ == 0) return -1;
    }
    return static_cast<unsigned char>(buffer_[at_++]);
}

// A byte of UTF-8 or of any eight-bit text; of UTF-16 the character where it is one of ASCII, else '?'.
int TextLines::next_character() {
    if (held_ >= 0) {
        const int c = held_;
        held_ = -1;
        return c;
    }
    if (wide_ == Wide::kUnknown) {
        const std::string_view head = source_.head();
        wide_ = head.starts_with("\xff\xfe") ? Wide::kLittle : head.starts_with("\xfe\xff") ? Wide::kBig : Wide::kNo;
        if (wide_ != Wide::kNo) {
            next_byte();
            next_byte();
        }
    }
    const int first = next_byte();
    if (wide_ == Wide::kNo || first < 0) return first;
    const int second = next_byte();
    if (second < 0) return -1;
    const int low = wide_ == Wide::kLittle ? first : second;
    const int high = wide_ == Wide::kLittle ? second : first;
    return high == 0 && low < 0x80 ? low : '?';
}

bool TextLines::put(int c) {
    text_ += static_cast<char>(c);
    return text_.size() >= kMaxPiece;
}

bool TextLines::next() {
    text_.clear();
    begins_ = next_begins_;
    next_begins_ = true;
    number_ = line_ends_ + 1;
    bool any = false;
    for (;;) {
        int c = next_character();
        if (c < 0) return any;
        any = true;
        any_since_end_ = c != '\n';
        if (c == '\n') {
            ++line_ends_;
            return true;
        }
        if (c == '\r') return true;
        if (c == kEscape) {
            // A terminal's sequence: ESC [ parameters and one letter. Anything else after ESC stands.
            c = next_character();
            if (c != '[') {
                held_ = c;
                continue;
            }
            for (int i = 0; i < 32; ++i) {
                c = next_character();
                if (c < 0 || (c >= '@' && c <= '~')) break;
                if (c == '\n') {
                    held_ = c;
                    break;
                }
            }
            continue;
        }
        if (c == '\\') {
            const int after = next_character();
            if (after == 'n' || after == 'r') return true;
            if (after == 't' || after == '"') {
                if (put(after == 't' ? ' ' : after)) break;
                continue;
            }
            held_ = after;
            if (put(c)) break;
            continue;
        }
        if (c < ' ' && c != '\t') continue;
        if (put(c)) break;
    }
    next_begins_ = false;
    return true;
}

bool looks_like_text(std::string_view head) {
    if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) return true;
    const auto strange = std::count_if(head.begin(), head.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < ' ' && byte != '\n' && byte != '\r' && byte != '\t' && byte != kEscape && byte != '\b') ||
               byte == 0x7f;
    });
    return static_cast<std::size_t>(strange) <= head.size() / 64;
}

}  // namespace fragscope::analysis
