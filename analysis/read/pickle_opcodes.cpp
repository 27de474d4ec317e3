// What each opcode of a pickle does (CPython's Lib/pickletools.py lists them with their arguments), and which
// are refused.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstdlib>

#include "analysis/read/line_reader.h"
#include "analysis/read/pickle.h"

namespace fragscope::analysis {

using Kind = PickleValue::Kind;

namespace {

constexpr unsigned kNewestProtocol = 5;

void add_utf8(std::string& out, std::uint32_t code) {
    const auto part = [&](std::uint32_t bits, std::uint32_t lead) { out += static_cast<char>(lead | bits); };
    if (code < 0x80) return part(code, 0);
    if (code < 0x800) {
        part(code >> 6, 0xc0);
    } else if (code < 0x10000) {
        part(code >> 12, 0xe0);
        part((code >> 6) & 0x3f, 0x80);
    } else {
        part((code >> 18) & 0x07, 0xf0);
        part((code >> 12) & 0x3f, 0x80);
        part((code >> 6) & 0x3f, 0x80);
    }
    part(code & 0x3f, 0x80);
}

// `digits` hexadecimal ones at `at`; nothing: they are none.
std::optional<std::uint32_t> hexadecimal(std::string_view text, std::size_t at, std::size_t digits) {
    std::uint32_t value = 0;
    const std::string_view part = text.substr(std::min(at, text.size()), digits);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value, 16);
    if (error != std::errc() || part.size() != digits || end != part.data() + part.size()) return std::nullopt;
    return value;
}

// Python's raw-unicode-escape: Latin-1, with the rest as \uXXXX and \UXXXXXXXX.
std::string unescaped_unicode(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool escape = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == 'u' || text[i + 1] == 'U');
        const std::size_t digits = escape ? (text[i + 1] == 'u' ? 4 : 8) : 0;
        const auto code = escape ? hexadecimal(text, i + 2, digits) : std::nullopt;
        add_utf8(out, code ? *code : static_cast<unsigned char>(text[i]));
        if (code) i += 1 + digits;
    }
    return out;
}

// The characters of a string as Python's repr() writes it, of the escapes those that it uses.
std::optional<std::string> unescaped_repr(std::string_view text) {
    if (text.size() < 2 || (text.front() != '\'' && text.front() != '"') || text.back() != text.front())
        return std::nullopt;
    text = text.substr(1, text.size() - 2);
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 == text.size()) {
            out += text[i];
            continue;
        }
        const char what = text[++i];
        if (what == 'x') {
            const auto code = hexadecimal(text, i + 1, 2);
            if (!code) return std::nullopt;
            out += static_cast<char>(*code);
            i += 2;
        } else {
            out += what == 'n' ? '\n' : what == 't' ? '\t' : what == 'r' ? '\r' : what;
        }
    }
    return out;
}

struct Refused {
    unsigned char opcode;
    const char* name;
    const char* does;
};
// All opcodes that import, call or build, or that need something from outside of the pickle.
constexpr Refused kRefused[] = {
    {'c', "GLOBAL", "would import"},
    {0x93, "STACK_GLOBAL", "would import"},
    {'i', "INST", "would import and call"},
    {'o', "OBJ", "would call a class"},
    {'R', "REDUCE", "would call a function"},
    {'b', "BUILD", "would change an object by code"},
    {0x81, "NEWOBJ", "would call a class"},
    {0x92, "NEWOBJ_EX", "would call a class"},
    {'P', "PERSID", "asks for an object from outside of the pickle"},
    {'Q', "BINPERSID", "asks for an object from outside of the pickle"},
    {0x82, "EXT1", "would import what a registry names"},
    {0x83, "EXT2", "would import what a registry names"},
    {0x84, "EXT4", "would import what a registry names"},
    {0x97, "NEXT_BUFFER", "asks for a buffer from outside of the pickle"},
    {0x98, "READONLY_BUFFER", "asks for a buffer from outside of the pickle"},
};

}  // namespace

bool PickleReader::step() {
    opcode_at_ = offset();
    const unsigned char opcode = byte();
    if (opcode == '.') return true;
    if (!step_memo(opcode) && !step_number(opcode) && !step_text(opcode) && !step_container(opcode) &&
        !step_stack(opcode))
        refuse_opcode(opcode);
    return false;
}

bool PickleReader::step_memo(unsigned char opcode) {
    const auto decimal = [&] {
        const std::string& digits = line();
        std::uint64_t slot = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slot);
        if (error != std::errc() || end != digits.data() + digits.size())
            fail(fmt::format("{} is no memo number", quoted_text(digits)));
        return slot;
    };
    switch (opcode) {
        case 'h':  // BINGET
            recall(byte());
            return true;
        case 'j':  // LONG_BINGET
            recall(little(4));
            return true;
        case 'g':  // GET
            recall(decimal());
            return true;
        case 0x94:  // MEMOIZE
            memoize(memoized_);
            return true;
        case 'q':  // BINPUT
            memoize(byte());
            return true;
        case 'r':  // LONG_BINPUT
            memoize(little(4));
            return true;
        case 'p':  // PUT
            memoize(decimal());
            return true;
        default:
            return false;
    }
}

bool PickleReader::step_number(unsigned char opcode) {
    switch (opcode) {
        case 'K':  // BININT1
            push_integer(false, byte());
            return true;
        case 'M':  // BININT2
            push_integer(false, little(2));
            return true;
        case 'J': {  // BININT
            const auto value = static_cast<std::int32_t>(static_cast<std::uint32_t>(little(4)));
            push_integer(value < 0, static_cast<std::uint64_t>(std::abs(static_cast<std::int64_t>(value))));
            return true;
        }
        case 0x8a:  // LONG1
            push_long(byte());
            return true;
        case 0x8b:  // LONG4
            push_long(little(4));
            return true;
        case 'I':  // INT; 00 and 01 are truth values
        case 'L':  // LONG
            push_decimal(line());
            return true;
        case 'G':  // BINFLOAT, big-endian
        {
            std::uint64_t bits = 0;
            for (int i = 0; i < 8; ++i) bits = (bits << 8) | byte();
            push_float(std::bit_cast<double>(bits));
            return true;
        }
        case 'F': {  // FLOAT
            const std::string& digits = line();
            double value = 0;
            const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
            if (error != std::errc() || end != digits.data() + digits.size())
                fail(fmt::format("{} is no number", quoted_text(digits)));
            push_float(value);
            return true;
        }
        case 'N':  // NONE
            push({});
            return true;
        case 0x88:  // NEWTRUE
            push({Kind::kBool, 1});
            return true;
        case 0x89:  // NEWFALSE
            push({Kind::kBool, 0});
            return true;
        default:
            return false;
    }
}

void PickleReader::push_long(std::uint64_t bytes) {
    constexpr std::uint64_t kMostKept = 9;  // 64 bits and a sign
    std::uint64_t value = 0;
    unsigned char last = 0;
    bool fits = true;
    for (std::uint64_t i = 0; i < bytes; ++i) {
        last = byte();
        if (i < 8) value |= static_cast<std::uint64_t>(last) << (8 * i);
        fits = fits && (i < kMostKept - 1 || last == 0);
    }
    const bool negative = (last & 0x80U) != 0;
    if (!fits || (negative && bytes > 8)) return push({Kind::kHugeInt, 0});
    if (!negative) return push_integer(false, value);
    if (bytes < 8) value |= ~std::uint64_t{0} << (8 * bytes);
    push_integer(true, ~value + 1);
}

void PickleReader::push_decimal(std::string_view digits) {
    if (digits == "00" || digits == "01") return push({Kind::kBool, digits == "01" ? 1U : 0U});
    const std::string whole(digits);
    if (digits.ends_with('L')) digits.remove_suffix(1);
    const bool negative = digits.starts_with('-');
    if (negative) digits.remove_prefix(1);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (end != digits.data() + digits.size() || digits.empty() || error == std::errc::invalid_argument)
        fail(fmt::format("{} is no whole number", quoted_text(whole)));
    if (error != std::errc()) return push({Kind::kHugeInt, 0});
    push_integer(negative, value);
}

void PickleReader::push_float(double value) {
    floats_.push_back(value);
    push({Kind::kFloat, floats_.size() - 1});
}

bool PickleReader::step_text(unsigned char opcode) {
    switch (opcode) {
        case 0x8c:  // SHORT_BINUNICODE
        case 'U':   // SHORT_BINSTRING: a string of Python 2
            push_text(byte());
            return true;
        case 'X':  // BINUNICODE
        case 'T':  // BINSTRING
            push_text(little(4));
            return true;
        case 0x8d:  // BINUNICODE8
            push_text(little(8));
            return true;
        case 'V':  // UNICODE
            push(string(unescaped_unicode(line())));
            return true;
        case 'S': {  // STRING
            const auto text = unescaped_repr(line());
            if (!text) fail("a string without its quotes: expected them as Python writes them");
            push(string(*text));
            return true;
        }
        case 'C':  // SHORT_BINBYTES
            push_bytes(byte());
            return true;
        case 'B':  // BINBYTES
            push_bytes(little(4));
            return true;
        case 0x8e:  // BINBYTES8
        case 0x96:  // BYTEARRAY8
            push_bytes(little(8));
            return true;
        default:
            return false;
    }
}

void PickleReader::push_text(std::uint64_t bytes) {
    take(bytes, scratch_);
    push(string(scratch_));
}

void PickleReader::push_bytes(std::uint64_t bytes) {
    skip(bytes);
    push({Kind::kBytes, 0});
}

bool PickleReader::step_container(unsigned char opcode) {
    switch (opcode) {
        case ']':  // EMPTY_LIST
            push(new_object(Kind::kList));
            return true;
        case '}':  // EMPTY_DICT
            push(new_object(Kind::kDict));
            return true;
        case ')':  // EMPTY_TUPLE
            push(new_object(Kind::kTuple));
            return true;
        case 0x8f:  // EMPTY_SET
            push(new_object(Kind::kSet));
            return true;
        case 'l':  // LIST
            push_container(Kind::kList, mark());
            return true;
        case 't':  // TUPLE
            push_container(Kind::kTuple, mark());
            return true;
        case 0x91:  // FROZENSET
            push_container(Kind::kSet, mark());
            return true;
        case 0x85:  // TUPLE1
        case 0x86:  // TUPLE2
        case 0x87:  // TUPLE3
        {
            const std::size_t items = opcode - 0x84U;
            if (above_mark() < items) fail(fmt::format("a tuple of {} items: expected as many on the stack", items));
            push_container(Kind::kTuple, stack_.size() - items);
            return true;
        }
        case 'd': {  // DICT
            const std::size_t from = mark();
            const PickleValue made = new_object(Kind::kDict);
            stack_.insert(stack_.begin() + static_cast<std::ptrdiff_t>(from), made);
            set_items(from + 1, Items::kAll);
            return true;
        }
        case 'a':  // APPEND
            top();
            append_items(stack_.size() - 1, Kind::kList);
            return true;
        case 'e':  // APPENDS
            append_items(mark(), Kind::kList);
            return true;
        case 0x90:  // ADDITEMS
            append_items(mark(), Kind::kSet);
            return true;
        case 's':  // SETITEM
            if (above_mark() < 2) fail("an item for a dictionary: expected a key and a value on the stack");
            set_items(stack_.size() - 2, Items::kOne);
            return true;
        case 'u':  // SETITEMS
            set_items(mark(), Items::kAll);
            return true;
        default:
            return false;
    }
}

bool PickleReader::step_stack(unsigned char opcode) {
    switch (opcode) {
        case '(':  // MARK
            if (marks_.size() == kMaxPickleDepth)
                fail(fmt::format("containers in each other {} deep: expected fewer", kMaxPickleDepth));
            marks_.push_back(stack_.size());
            return true;
        case '0':  // POP; where nothing lies above the last mark, that one
            if (above_mark() != 0)
                stack_.pop_back();
            else
                mark();
            return true;
        case '1':  // POP_MARK
            stack_.resize(mark());
            return true;
        case '2':  // DUP
            push(seen_again(top()));
            return true;
        case 0x80:  // PROTO
        {
            const unsigned version = byte();
            if (version > kNewestProtocol)
                fail(fmt::format("pickle protocol {}: expected {} or an older one", version, kNewestProtocol));
            return true;
        }
        case 0x95:  // FRAME: how much to read ahead
            little(8);
            return true;
        default:
            return false;
    }
}

void PickleReader::refuse_opcode(unsigned char opcode) {
    for (const Refused& refused : kRefused) {
        if (refused.opcode != opcode) continue;
        std::string what;
        if (opcode == 'c' || opcode == 'i') {
            what = line();
            what += '.' + line();
        } else if (opcode == 0x93 && above_mark() >= 2) {
            what = std::string(text(stack_[stack_.size() - 2])) + '.' + std::string(text(stack_.back()));
        }
        fail(fmt::format("the opcode {} {}{}: expected data only, and none of it is carried out", refused.name,
                         refused.does, what.empty() ? "" : " " + quoted_text(what)));
    }
    fail(fmt::format("the byte {:#04x} is no opcode of a pickle", opcode));
}

}  // namespace fragscope::analysis
