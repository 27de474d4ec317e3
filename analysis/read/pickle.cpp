// The pickle machine's values, its memo and its bytes; what each opcode does with them is in pickle_opcodes.cpp.
#include "analysis/read/pickle.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <random>

namespace fragscope::analysis {

using Kind = PickleValue::Kind;

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr std::size_t kFirstStringPlaces = 1024;
constexpr PickleValue kNothingMemoized{Kind::kNone, 1};  // no opcode makes it

bool is_container(Kind kind) {
    return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kDict || kind == Kind::kSet;
}

// Strings that were chosen to lie in one place lie there under one seed only.
std::uint64_t hash_of(std::string_view text) {
    static const std::uint64_t kSeed = std::random_device{}();
    return XXH3_64bits_withSeed(text.data(), text.size(), kSeed);
}

}  // namespace

std::string_view kind_in_words(Kind kind) {
    switch (kind) {
        case Kind::kNone:
            return "None";
        case Kind::kBool:
            return "True or False";
        case Kind::kInt:
        case Kind::kBigInt:
            return "a whole number";
        case Kind::kHugeInt:
            return "a number of more than 64 bits";
        case Kind::kFloat:
            return "a number";
        case Kind::kString:
            return "a string";
        case Kind::kBytes:
            return "bytes";
        case Kind::kList:
            return "a list";
        case Kind::kTuple:
            return "a tuple";
        case Kind::kDict:
            return "a dictionary";
        case Kind::kSet:
            return "a set";
        case Kind::kMade:
            return "a record";
    }
    return "";
}

PickleReader::PickleReader(Source source, PickleClient& client)
    : source_(std::move(source)), client_(client), buffer_(kBufferBytes), string_places_(kFirstStringPlaces) {}

PickleReader::~PickleReader() = default;

std::optional<PickleValue> PickleReader::read() {
    try {
        while (!step()) {
        }
        return settled(pop());
    } catch (const PickleMismatch& wrong) {
        problem_ = fmt::format("at offset {}: {}", opcode_at_, wrong.what());
        return std::nullopt;
    }
}

void PickleReader::fail(const std::string& what) { throw PickleMismatch(what); }

// ------------------------------------------------------------------------------------------------------ bytes

std::uint64_t PickleReader::offset() const { return before_ + at_; }

bool PickleReader::fill() {
    if (at_ < filled_) return true;
    before_ += filled_;
    at_ = 0;
    filled_ = source_(buffer_);
    return filled_ != 0;
}

bool PickleReader::more_follows() { return fill(); }

unsigned char PickleReader::byte() {
    if (!fill()) fail(fmt::format("the file ends at offset {}, inside the pickle: expected more of it", offset()));
    return static_cast<unsigned char>(buffer_[at_++]);
}

std::uint64_t PickleReader::little(unsigned bytes) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(byte()) << (8 * i);
    return value;
}

const std::string& PickleReader::line() {
    constexpr std::size_t kMaxLine = std::size_t{1} << 20;
    scratch_.clear();
    for (unsigned char c = byte(); c != '\n'; c = byte()) {
        if (scratch_.size() == kMaxLine) fail(fmt::format("a line of more than {} bytes", kMaxLine));
        scratch_ += static_cast<char>(c);
    }
    return scratch_;
}

void PickleReader::take(std::uint64_t bytes, std::string& to) {
    to.clear();
    while (bytes != 0) {
        if (!fill()) byte();
        const std::uint64_t part = std::min<std::uint64_t>(bytes, filled_ - at_);
        to.append(buffer_.data() + at_, part);
        at_ += part;
        bytes -= part;
    }
}

void PickleReader::skip(std::uint64_t bytes) {
    while (bytes != 0) {
        if (!fill()) byte();
        const std::uint64_t part = std::min<std::uint64_t>(bytes, filled_ - at_);
        at_ += part;
        bytes -= part;
    }
}

// ------------------------------------------------------------------------------------------------------ stack

void PickleReader::push(PickleValue value) { stack_.push_back(value); }

PickleValue PickleReader::top() {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) fail("the pickle's stack is empty: expected a value on it");
    return stack_.back();
}

PickleValue PickleReader::pop() {
    const PickleValue value = top();
    stack_.pop_back();
    return value;
}

std::size_t PickleReader::mark() {
    if (marks_.empty()) fail("no MARK before it: expected one");
    const std::size_t from = marks_.back();
    marks_.pop_back();
    return from;
}

// ---------------------------------------------------------------------------------------------------- numbers

void PickleReader::push_integer(bool negative, std::uint64_t magnitude) {
    constexpr std::uint64_t kHalf = std::uint64_t{1} << 59;
    if (magnitude < kHalf) {
        const auto value = static_cast<std::int64_t>(magnitude);
        return push({Kind::kInt, static_cast<std::uint64_t>(negative ? -value : value)});
    }
    big_ints_.push_back({negative, magnitude});
    push({Kind::kBigInt, big_ints_.size() - 1});
}

std::optional<std::uint64_t> PickleReader::unsigned_number(PickleValue value) const {
    if (value.is(Kind::kBool)) return value.number();
    if (value.is(Kind::kInt)) {
        const auto number = signed_number(value);
        return *number < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(*number));
    }
    if (!value.is(Kind::kBigInt) || big_ints_[value.number()].negative) return std::nullopt;
    return big_ints_[value.number()].magnitude;
}

std::optional<std::int64_t> PickleReader::signed_number(PickleValue value) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (value.is(Kind::kBool)) return static_cast<std::int64_t>(value.number());
    // Its sign is the highest of 60 bits.
    if (value.is(Kind::kInt)) return static_cast<std::int64_t>(value.number() << 4) >> 4;
    if (!value.is(Kind::kBigInt)) return std::nullopt;
    const BigInt& big = big_ints_[value.number()];
    if (big.magnitude > kMost + (big.negative ? 1 : 0)) return std::nullopt;
    return static_cast<std::int64_t>(big.negative ? 0 - big.magnitude : big.magnitude);
}

std::optional<double> PickleReader::real_number(PickleValue value) const {
    if (value.is(Kind::kFloat)) return floats_[value.number()];
    if (const auto number = signed_number(value)) return static_cast<double>(*number);
    return std::nullopt;
}

// ---------------------------------------------------------------------------------------------------- strings

PickleValue PickleReader::string(std::string_view text) {
    if ((strings_.size() + 1) * 2 > string_places_.size()) {
        std::vector<std::uint32_t> wider(string_places_.size() * 2);
        for (std::uint32_t i = 0; i < strings_.size(); ++i) {
            std::size_t place = hash_of(this->text({Kind::kString, i})) & (wider.size() - 1);
            while (wider[place] != 0) place = (place + 1) & (wider.size() - 1);
            wider[place] = i + 1;
        }
        string_places_ = std::move(wider);
    }
    std::size_t place = hash_of(text) & (string_places_.size() - 1);
    for (; string_places_[place] != 0; place = (place + 1) & (string_places_.size() - 1)) {
        const PickleValue known{Kind::kString, string_places_[place] - 1};
        if (this->text(known) == text) return known;
    }
    if (strings_.size() + 1 >= std::numeric_limits<std::uint32_t>::max() ||
        text.size() > std::numeric_limits<std::uint32_t>::max())
        fail("more or longer strings than are read here");
    strings_.push_back({texts_.size(), static_cast<std::uint32_t>(text.size())});
    texts_ += text;
    string_places_[place] = static_cast<std::uint32_t>(strings_.size());
    return {Kind::kString, strings_.size() - 1};
}

std::string_view PickleReader::text(PickleValue string) const {
    if (!string.is(Kind::kString)) return {};
    const Text& at = strings_[string.number()];
    return std::string_view(texts_).substr(at.begin, at.bytes);
}

// ------------------------------------------------------------------------------------------------- containers

PickleReader::Object& PickleReader::object(PickleValue value) { return objects_[value.number()]; }
const PickleReader::Object& PickleReader::object(PickleValue value) const { return objects_[value.number()]; }

std::span<const PickleValue> PickleReader::items(PickleValue container) const {
    if (!is_container(container.kind())) return {};
    return object(container).items;
}

PickleValue PickleReader::new_object(Kind kind) {
    if (unused_objects_.empty()) {
        if (objects_.size() >= std::numeric_limits<std::uint32_t>::max())
            fail("more lists and dictionaries than are read here");
        objects_.emplace_back().kind = kind;
        return {kind, objects_.size() - 1};
    }
    const std::uint32_t number = unused_objects_.back();
    unused_objects_.pop_back();
    objects_[number] = {};
    objects_[number].kind = kind;
    return {kind, number};
}

void PickleReader::push_container(Kind kind, std::size_t from) {
    const PickleValue made = new_object(kind);
    object(made).items.assign(stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    stack_.resize(from);
    push(made);
}

void PickleReader::append_items(std::size_t from, Kind kind) {
    const std::span<const PickleValue> added = std::span(stack_).subspan(from);
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (from <= floor) fail(fmt::format("nothing to add to: expected {} before the items", kind_in_words(kind)));
    const PickleValue to = stack_[from - 1];
    if (!to.is(kind))
        fail(fmt::format("items for {}: expected {}", kind_in_words(to.kind()), kind_in_words(kind)));
    for (std::size_t i = from; i < stack_.size(); ++i) stack_[i] = settled(stack_[i]);
    std::vector<PickleValue>& items = object(to).items;
    items.insert(items.end(), added.begin(), added.end());
    stack_.resize(from);
}

PickleValue PickleReader::settled(PickleValue value) {
    if (!value.is(Kind::kDict) || !object(value).open) return value;
    object(value).open = false;
    const PickleValue instead = client_.filled(*this, value);
    if (instead != value) replace(value, instead);
    return instead;
}

void PickleReader::set_items(std::size_t from, Items how) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (from <= floor || (stack_.size() - from) % 2 != 0)
        fail("items for a dictionary: expected the dictionary and pairs of a key and a value");
    const PickleValue to = stack_[from - 1];
    if (!to.is(Kind::kDict))
        fail(fmt::format("items for {}: expected a dictionary that is not yet part of another value",
                         kind_in_words(to.kind())));
    for (std::size_t i = from; i < stack_.size(); i += 2) {
        stack_[i + 1] = settled(stack_[i + 1]);
        if (!stack_[i].is(Kind::kString)) continue;
        const PickleValue instead = client_.under(*this, stack_[i], stack_[i + 1]);
        if (instead == stack_[i + 1]) continue;
        replace(stack_[i + 1], instead);
        stack_[i + 1] = instead;
    }
    std::vector<PickleValue>& items = object(to).items;
    items.insert(items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    stack_.resize(from);
    object(to).open = true;
    // What gets its items one by one has them all when it becomes part of something.
    if (how == Items::kAll) stack_.back() = settled(to);
}

void PickleReader::replace(PickleValue value, PickleValue instead) {
    if (!is_container(value.kind())) return;
    Object& old = object(value);
    if (old.memo != 0 && memo_[old.memo - 1] == value) memo_[old.memo - 1] = instead;
    if (old.shared) return;
    std::vector<PickleValue>().swap(old.items);
    unused_objects_.push_back(static_cast<std::uint32_t>(value.number()));
}

// ------------------------------------------------------------------------------------------------------- memo

void PickleReader::memoize(std::uint64_t slot) {
    const PickleValue value = top();
    // Each slot took at least the byte of its opcode, so that an honest number is below the offset.
    if (slot >= opcode_at_ + 1)
        fail(fmt::format("memo number {}: expected one below the opcodes read so far", slot));
    if (slot >= memo_.size()) memo_.resize(slot + 1, kNothingMemoized);
    if (memo_[slot] == kNothingMemoized) ++memoized_;
    memo_[slot] = value;
    if (!is_container(value.kind())) return;
    Object& memoized = object(value);
    memoized.shared = memoized.shared || memoized.memo != 0 || slot >= 0xffffffffU;
    memoized.memo = static_cast<std::uint32_t>(slot + 1);
}

void PickleReader::recall(std::uint64_t slot) {
    if (slot >= memo_.size() || memo_[slot] == kNothingMemoized)
        fail(fmt::format("memo number {}: nothing was stored under it", slot));
    push(seen_again(memo_[slot]));
}

PickleValue PickleReader::seen_again(PickleValue value) {
    if (is_container(value.kind())) object(value).shared = true;
    return value;
}

}  // namespace fragscope::analysis
