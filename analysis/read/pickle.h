// A reader of Python's pickles that takes data and nothing else: numbers, strings, lists, tuples, dictionaries,
// sets. A pickle is a program for a stack machine; the opcodes that import, call or build something are refused
// by name, with their offset, and there is no code here that could carry them out.
//
// Protocols 0 to 5 (read off CPython's pickletools, which describes every opcode). The pickle is read once from
// its beginning, in pieces. Its reader sees each dictionary as soon as it is filled and may put a number of its
// own in its place, so that a long list of alike dictionaries is never held as one. Equal strings are held once.
//
// The bytes are hostile. What is held is bounded: at most kPickleHeldPerByte bytes for each byte read (a one-byte
// opcode can make an empty list, and a memo's slot) beside what the client keeps, so that no length or
// count in the file is believed before its bytes have come. Containers open at one time: kMaxPickleDepth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fragscope::analysis {

inline constexpr std::size_t kPickleHeldPerByte = 128;
inline constexpr std::size_t kMaxPickleDepth = 1000;

// A value, or the number of one that the reader holds. Valid for as long as its reader, and until the client gave
// another one for it.
class PickleValue {
  public:
    enum class Kind : std::uint8_t {
        kNone,
        kBool,
        kInt,     // of at most 60 bits with its sign
        kBigInt,  // of more; number: which
        kHugeInt,  // beyond 64 bits: not kept
        kFloat,   // number: which
        kString,  // number: which; equal strings have equal numbers
        kBytes,   // not kept
        kList,
        kTuple,
        kDict,
        kSet,
        kMade,    // the client's own
    };

    constexpr PickleValue() = default;
    constexpr PickleValue(Kind kind, std::uint64_t number)
        : bits_((static_cast<std::uint64_t>(kind) << 60) | (number & kNumber)) {}
    // `tag`: the client's, below 16; `number` below 2^56.
    static constexpr PickleValue made(unsigned tag, std::uint64_t number) {
        return {Kind::kMade, (static_cast<std::uint64_t>(tag & 15U) << 56) | (number & (kNumber >> 4))};
    }

    constexpr Kind kind() const { return static_cast<Kind>(bits_ >> 60); }
    constexpr std::uint64_t number() const { return bits_ & kNumber; }
    constexpr bool is(Kind kind) const { return this->kind() == kind; }
    constexpr bool is_made(unsigned tag) const {
        return is(Kind::kMade) && ((bits_ >> 56) & 15U) == tag;
    }
    constexpr std::uint64_t made_number() const { return bits_ & (kNumber >> 4); }
    constexpr bool operator==(const PickleValue&) const = default;

  private:
    static constexpr std::uint64_t kNumber = (std::uint64_t{1} << 60) - 1;
    std::uint64_t bits_ = 0;  // kNone
};

// "a list", "a whole number": for messages.
std::string_view kind_in_words(PickleValue::Kind kind);

// What a client throws where a value is not what it has to be: what() says what was found and expected, without
// a place and full stop. The reader catches it and adds the place.
class PickleMismatch : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

class PickleReader;

// Who looks at the values while they are read.
class PickleClient {
  public:
    PickleClient() = default;
    PickleClient(const PickleClient&) = delete;
    PickleClient& operator=(const PickleClient&) = delete;
    virtual ~PickleClient() = default;
    // `dict` has got its items, or more of them. Another value than `dict` takes its place everywhere, and the
    // pickle may not change it any more.
    virtual PickleValue filled(PickleReader& reader, PickleValue dict) = 0;
    // `value` is about to stand under `key`, a string. Another value takes its place.
    virtual PickleValue under(PickleReader& reader, PickleValue key, PickleValue value) = 0;
};

class PickleReader {
  public:
    // Gives more bytes of the pickle, at least one; 0: it ends.
    using Source = std::function<std::size_t(std::span<char>)>;
    PickleReader(Source source, PickleClient& client);
    ~PickleReader();
    PickleReader(const PickleReader&) = delete;
    PickleReader& operator=(const PickleReader&) = delete;

    // Nothing: refused, see problem().
    std::optional<PickleValue> read();
    // Why, with the offset of the opcode: no name of a file, no full stop.
    const std::string& problem() const { return problem_; }
    // Of the pickle's bytes, so many were read; after read(), whether more follow its end.
    std::uint64_t offset() const;
    bool more_follows();

    // The number of this string, for comparisons with those of the pickle.
    PickleValue string(std::string_view text);
    std::string_view text(PickleValue string) const;
    // Of a list, tuple or set: its items; of a dictionary: key, value, key, value, …, a later key over an
    // earlier one of the same name.
    std::span<const PickleValue> items(PickleValue container) const;
    std::size_t strings() const { return strings_.size(); }

    // As numbers; nothing: it is none, or not one of that range. True and false are 1 and 0, as in Python.
    std::optional<std::uint64_t> unsigned_number(PickleValue value) const;
    std::optional<std::int64_t> signed_number(PickleValue value) const;
    std::optional<double> real_number(PickleValue value) const;

  private:
    struct Object {
        std::vector<PickleValue> items;
        std::uint32_t memo = 0;  // its slot + 1
        PickleValue::Kind kind = PickleValue::Kind::kNone;
        bool shared = false;  // it may be met again otherwise than through that slot
        bool open = false;    // a dictionary whose items come one by one: the client has not seen it yet
    };
    struct BigInt {
        bool negative = false;
        std::uint64_t magnitude = 0;
    };
    struct Text {
        std::uint64_t begin = 0;
        std::uint32_t bytes = 0;
    };

    // One opcode; true: it was STOP. Each of the others is true if the opcode is one of its own.
    bool step();
    bool step_number(unsigned char opcode);
    bool step_text(unsigned char opcode);
    bool step_stack(unsigned char opcode);
    bool step_container(unsigned char opcode);
    bool step_memo(unsigned char opcode);
    [[noreturn]] void refuse_opcode(unsigned char opcode);
    [[noreturn]] static void fail(const std::string& what);

    bool fill();
    unsigned char byte();
    std::uint64_t little(unsigned bytes);
    // Up to and without the next line feed; until the next call.
    const std::string& line();
    void take(std::uint64_t bytes, std::string& to);
    void skip(std::uint64_t bytes);

    void push(PickleValue value);
    PickleValue pop();
    PickleValue top();
    // Values above the last mark: an opcode takes no others.
    std::size_t above_mark() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
    // Where the items since the last mark begin on the stack; the mark is gone then.
    std::size_t mark();
    void push_long(std::uint64_t bytes);
    void push_decimal(std::string_view digits);
    void push_integer(bool negative, std::uint64_t magnitude);
    void push_float(double value);
    void push_text(std::uint64_t bytes);
    void push_bytes(std::uint64_t bytes);
    // Of what lies on the stack from there on.
    void push_container(PickleValue::Kind kind, std::size_t from);
    Object& object(PickleValue value);
    const Object& object(PickleValue value) const;
    enum class Items : std::uint8_t { kAll, kOne };
    void set_items(std::size_t from, Items items);
    // What `value` is once it becomes part of another.
    PickleValue settled(PickleValue value);
    void append_items(std::size_t from, PickleValue::Kind kind);
    void memoize(std::uint64_t slot);
    void recall(std::uint64_t slot);
    PickleValue seen_again(PickleValue value);
    // `value` is not met any more, `instead` is.
    void replace(PickleValue value, PickleValue instead);
    PickleValue new_object(PickleValue::Kind kind);

    Source source_;
    PickleClient& client_;
    std::vector<char> buffer_;
    std::size_t at_ = 0;
    std::size_t filled_ = 0;
    std::uint64_t before_ = 0;  // bytes of the pickle in front of the buffer
    std::uint64_t opcode_at_ = 0;
    std::string problem_;
    std::string scratch_;

    std::vector<PickleValue> stack_;
    std::vector<std::size_t> marks_;
    std::vector<PickleValue> memo_;
    std::uint64_t memoized_ = 0;  // the number that MEMOIZE gives next: how many there are
    std::vector<Object> objects_;
    std::vector<std::uint32_t> unused_objects_;
    std::vector<BigInt> big_ints_;
    std::vector<double> floats_;
    std::string texts_;
    std::vector<Text> strings_;
    // Open addressing: a string's number + 1, 0 for an empty place; a power of two.
    std::vector<std::uint32_t> string_places_;
};

}  // namespace fragscope::analysis
