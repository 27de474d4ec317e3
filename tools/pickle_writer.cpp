#include "tools/pickle_writer.h"

#include <utility>

namespace fragscope::tools {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

// Opcodes, as CPython's pickletools names them.
constexpr char kProto = '\x80', kStop = '.', kMark = '(', kEmptyDict = '}', kSetItems = 'u', kEmptyList = ']',
               kAppends = 'e', kBinUnicode = 'X', kBinPut = 'q', kLongBinPut = 'r', kBinGet = 'h', kLongBinGet = 'j',
               kBinInt1 = 'K', kBinInt2 = 'M', kBinInt = 'J', kLong1 = '\x8a', kNewTrue = '\x88', kNewFalse = '\x89',
               kTuple2 = '\x86';

}  // namespace

PickleWriter::PickleWriter(Sink sink) : sink_(std::move(sink)) {
    put(kProto);
    put('\x02');
}

void PickleWriter::flush() {
    if (written_ && !buffer_.empty()) written_ = sink_(buffer_);
    buffer_.clear();
}

void PickleWriter::put(char byte) {
    buffer_ += byte;
    if (buffer_.size() >= kBufferBytes) flush();
}

void PickleWriter::put(std::string_view bytes) {
    buffer_ += bytes;
    if (buffer_.size() >= kBufferBytes) flush();
}

void PickleWriter::put_little(std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) put(static_cast<char>((value >> (8 * i)) & 0xff));
}

std::uint32_t PickleWriter::memoize() {
    constexpr std::uint32_t kShort = 256;
    const bool is_short = memoized_ < kShort;
    put(is_short ? kBinPut : kLongBinPut);
    put_little(memoized_, is_short ? 1 : 4);
    return memoized_++;
}

void PickleWriter::shared(std::uint32_t number) {
    constexpr std::uint32_t kShort = 256;
    put(number < kShort ? kBinGet : kLongBinGet);
    put_little(number, number < kShort ? 1 : 4);
}

void PickleWriter::begin_dict() {
    put(kEmptyDict);
    put(kMark);
}
void PickleWriter::end_dict() { put(kSetItems); }

void PickleWriter::begin_list() {
    put(kEmptyList);
    put(kMark);
}
std::uint32_t PickleWriter::begin_shared_list() {
    put(kEmptyList);
    const std::uint32_t number = memoize();
    put(kMark);
    return number;
}
void PickleWriter::end_list() { put(kAppends); }

void PickleWriter::text(std::string_view text) {
    const auto [known, added] = texts_.try_emplace(std::string(text), memoized_);
    if (!added) return shared(known->second);
    put(kBinUnicode);
    put_little(text.size(), 4);
    put(text);
    memoize();
}

void PickleWriter::number(std::uint64_t value) {
    if (value < 0x100) {
        put(kBinInt1);
        return put_little(value, 1);
    }
    if (value < 0x10000) {
        put(kBinInt2);
        return put_little(value, 2);
    }
    if (value < 0x80000000U) {
        put(kBinInt);
        return put_little(value, 4);
    }
    // As few bytes as hold it with a sign: readers in a browser take at most eight.
    unsigned bytes = 5;
    while (bytes < 9 && (value >> (8 * bytes - 1)) != 0) ++bytes;
    put(kLong1);
    put(static_cast<char>(bytes));
    put_little(value, bytes < 9 ? bytes : 8);
    if (bytes == 9) put('\0');
}

void PickleWriter::truth(bool value) { put(value ? kNewTrue : kNewFalse); }

void PickleWriter::pair(std::uint64_t first, std::uint64_t second) {
    number(first);
    number(second);
    put(kTuple2);
}

bool PickleWriter::finish() {
    put(kStop);
    flush();
    return written_;
}

}  // namespace fragscope::tools
