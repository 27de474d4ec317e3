// A strict reader of JSON text (RFC 8259) for formats that people write by hand: it keeps what a message
// needs (where each value stands) and what protobuf's own reader loses (integers beyond 2^53, a name given
// twice).
//
// The text is hostile: depth and number of values are bounded, and the reader holds no more than a fixed
// multiple of the text. Pure; no files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::analysis {

struct JsonMember;

struct JsonValue {
    enum class Kind : std::uint8_t { kNull, kTrue, kFalse, kNumber, kString, kArray, kObject };
    Kind kind = Kind::kNull;
    std::size_t column = 1;  // of its first character, in bytes, from 1
    std::string text;        // a number as it was written; a string with its escapes resolved (UTF-8)
    std::vector<JsonValue> items;
    std::vector<JsonMember> members;  // in the order of the text; each name once

    const JsonValue* find(std::string_view name) const;
};

struct JsonMember {
    std::string name;
    JsonValue value;
};

struct JsonText {
    std::optional<JsonValue> value;
    std::string problem;     // what was expected, where there is no value; no full stop
    std::size_t column = 1;  // and where
};

inline constexpr std::size_t kMaxJsonDepth = 32;
inline constexpr std::size_t kMaxJsonValues = std::size_t{1} << 19;

// One value and nothing behind it but white space.
JsonText read_json(std::string_view text);

// "a string", "an object": for messages.
std::string_view kind_in_words(JsonValue::Kind kind);
// The integer that a number's text is, where it is one from 0 to 2^64 - 1.
std::optional<std::uint64_t> whole_number(const JsonValue& value);

}  // namespace fragscope::analysis
