#include "analysis/read/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "analysis/read/clean_text.h"

namespace fragscope::analysis {
namespace {

using Kind = JsonValue::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, std::uint32_t point) {
    const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (point < 0x80) {
        put(point);
    } else if (point < 0x800) {
        put(0xC0 | point >> 6);
        put(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        put(0xE0 | point >> 12);
        put(0x80 | (point >> 6 & 0x3F));
        put(0x80 | (point & 0x3F));
    } else {
        put(0xF0 | point >> 18);
        put(0x80 | (point >> 12 & 0x3F));
        put(0x80 | (point >> 6 & 0x3F));
        put(0x80 | (point & 0x3F));
    }
}

class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    JsonText whole() {
        JsonText out;
        if (const std::size_t end = utf8_until(text_); end != text_.size()) {
            out.problem = "expected UTF-8";
            out.column = end + 1;
            return out;
        }
        JsonValue value;
        skip_space();
        if (read(value, 0)) {
            skip_space();
            if (at_ == text_.size()) {
                out.value = std::move(value);
                return out;
            }
            fail("expected the end of the line behind the object");
        }
        out.problem = std::move(problem_);
        out.column = problem_at_ + 1;
        return out;
    }

  private:
    bool fail(std::string problem) {
        problem_ = std::move(problem);
        problem_at_ = at_;
        return false;
    }
    bool more() const { return at_ < text_.size(); }
    void skip_space() {
        while (more() &&
               (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n'))
            ++at_;
    }
    bool take(char c) {
        if (!more() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    bool read(JsonValue& out, std::size_t depth) {
        out.column = at_ + 1;
        if (depth >= kMaxJsonDepth)
            return fail(fmt::format("values are nested more than {} deep", kMaxJsonDepth));
        if (++values_ > kMaxJsonValues)
            return fail(fmt::format("there are more than {} values in this line", kMaxJsonValues));
        if (!more()) return fail("expected a value, and the line ends");
        switch (text_[at_]) {
            case '{':
                return object(out, depth);
            case '[':
                return array(out, depth);
            case '"':
                out.kind = Kind::kString;
                return string(out.text);
            case 't':
                return word("true", Kind::kTrue, out);
            case 'f':
                return word("false", Kind::kFalse, out);
            case 'n':
                return word("null", Kind::kNull, out);
            default:
                return number(out);
        }
    }

    bool word(std::string_view expected, Kind kind, JsonValue& out) {
        if (text_.substr(at_, expected.size()) != expected) return fail("expected a value");
        at_ += expected.size();
        out.kind = kind;
        return true;
    }

    bool digits() {
        const std::size_t begin = at_;
        while (more() && is_digit(text_[at_])) ++at_;
        return at_ != begin;
    }

    bool number(JsonValue& out) {
        const std::size_t begin = at_;
        take('-');
        if (!more() || !is_digit(text_[at_])) {
            at_ = begin;
            return fail("expected a value");
        }
        if (!take('0')) digits();
        if (take('.') && !digits()) return fail("expected digits behind the point");
        if (take('e') || take('E')) {
            if (!take('+')) take('-');
            if (!digits()) return fail("expected digits in the exponent");
        }
        if (more() && is_digit(text_[at_])) return fail("a number begins with no superfluous 0");
        out.kind = Kind::kNumber;
        out.text = text_.substr(begin, at_ - begin);
        return true;
    }

    bool four_hex(std::uint32_t& out) {
        if (text_.size() - at_ < 4) return fail("expected four hexadecimal digits");
        const char* begin = text_.data() + at_;
        const auto [end, error] = std::from_chars(begin, begin + 4, out, 16);
        if (error != std::errc() || end != begin + 4) return fail("expected four hexadecimal digits");
        at_ += 4;
        return true;
    }

    bool escape(std::string& out) {
        if (!more()) return fail("the line ends inside a string");
        constexpr std::string_view kNames = "\"\\/bfnrt";
        constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
        const char c = text_[at_++];
        if (const std::size_t named = kNames.find(c); named != std::string_view::npos) {
            out += kMeant[named];
            return true;
        }
        if (c != 'u') {
            --at_;
            return fail("expected an escape that JSON has");
        }
        std::uint32_t point = 0;
        if (!four_hex(point)) return false;
        if (point >= 0xDC00 && point <= 0xDFFF) return fail("half of a character stands alone");
        if (point >= 0xD800 && point <= 0xDBFF) {
            std::uint32_t low = 0;
            if (!take('\\') || !take('u') || !four_hex(low) || low < 0xDC00 || low > 0xDFFF)
                return fail("half of a character stands alone");
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        }
        append_utf8(out, point);
        return true;
    }

    bool string(std::string& out) {
        if (!take('"')) return fail("expected a name in quotation marks");
        while (more()) {
            const char c = text_[at_];
            if (c == '"') {
                ++at_;
                return true;
            }
            if (static_cast<unsigned char>(c) < ' ') return fail("a control character stands in a string");
            ++at_;
            if (c != '\\') {
                out += c;
            } else if (!escape(out)) {
                return false;
            }
        }
        return fail("the line ends inside a string");
    }

    bool array(JsonValue& out, std::size_t depth) {
        out.kind = Kind::kArray;
        take('[');
        skip_space();
        if (take(']')) return true;
        for (;;) {
            skip_space();
            if (!read(out.items.emplace_back(), depth + 1)) return false;
            skip_space();
            if (take(']')) return true;
            if (!take(',')) return fail("expected ',' or ']'");
        }
    }

    bool object(JsonValue& out, std::size_t depth) {
        out.kind = Kind::kObject;
        take('{');
        skip_space();
        if (take('}')) return true;
        for (;;) {
            skip_space();
            JsonMember member;
            const std::size_t begin = at_;
            if (!string(member.name)) return false;
            if (out.members.size() >= kMaxMembers) {
                at_ = begin;
                return fail(fmt::format("an object has more than {} members", kMaxMembers));
            }
            if (out.find(member.name) != nullptr) {
                at_ = begin;
                return fail("a name is given twice in one object");
            }
            skip_space();
            if (!take(':')) return fail("expected ':' behind a name");
            skip_space();
            if (!read(member.value, depth + 1)) return false;
            out.members.push_back(std::move(member));
            skip_space();
            if (take('}')) return true;
            if (!take(',')) return fail("expected ',' or '}'");
        }
    }

    // Looking for a name given twice goes over all of them.
    static constexpr std::size_t kMaxMembers = 64;

    std::string_view text_;
    std::size_t at_ = 0;
    std::size_t values_ = 0;
    std::string problem_;
    std::size_t problem_at_ = 0;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
    const auto found = std::find_if(members.begin(), members.end(),
                                    [&](const JsonMember& member) { return member.name == name; });
    return found == members.end() ? nullptr : &found->value;
}

JsonText read_json(std::string_view text) { return Reader(text).whole(); }

std::string_view kind_in_words(Kind kind) {
    switch (kind) {
        case Kind::kNull:
            return "null";
        case Kind::kTrue:
        case Kind::kFalse:
            return "true or false";
        case Kind::kNumber:
            return "a number";
        case Kind::kString:
            return "a string";
        case Kind::kArray:
            return "a list";
        case Kind::kObject:
            return "an object";
    }
    return "a value";
}

std::optional<std::uint64_t> whole_number(const JsonValue& value) {
    if (value.kind != Kind::kNumber) return std::nullopt;
    std::uint64_t out = 0;
    const char* end = value.text.data() + value.text.size();
    const auto [stop, error] = std::from_chars(value.text.data(), end, out);
    if (error != std::errc() || stop != end) return std::nullopt;
    return out;
}

}  // namespace fragscope::analysis
