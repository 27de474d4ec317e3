#include "analysis/read/proto_fields.h"

#include <fmt/format.h>

namespace fragscope::analysis {

bool ProtoFields::fail(const char* expected) {
    problem_ = fmt::format("at offset {} there is no {}", offset_, expected);
    rest_ = {};
    return false;
}

void ProtoFields::drop(std::size_t bytes) {
    rest_.remove_prefix(bytes);
    offset_ += bytes;
}

bool ProtoFields::take_number(std::uint64_t& value) {
    value = 0;
    for (unsigned i = 0; i < rest_.size() && i < 10; ++i) {
        const auto byte = static_cast<unsigned char>(rest_[i]);
        if (i == 9 && byte > 1) return false;  // more than 64 bits
        value |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            drop(i + 1);
            return true;
        }
    }
    return false;
}

bool ProtoFields::next() {
    if (rest_.empty()) return false;
    field_offset_ = offset_;
    std::uint64_t tag = 0;
    if (!take_number(tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return fail("protobuf field, expected one");
    number_ = static_cast<std::uint32_t>(tag >> 3);
    bytes_ = {};
    value_ = 0;
    switch (tag & 7) {
        case 0:
            wire_ = Wire::kNumber;
            return take_number(value_) || fail("end of a number, expected one within 10 bytes");
        case 1:
        case 5: {
            wire_ = (tag & 7) == 1 ? Wire::kEightBytes : Wire::kFourBytes;
            const std::size_t bytes = wire_ == Wire::kEightBytes ? 8 : 4;
            if (rest_.size() < bytes) return fail("room for the number that a field begins");
            drop(bytes);
            return true;
        }
        case 2: {
            wire_ = Wire::kBytes;
            std::uint64_t length = 0;
            if (!take_number(length) || length > rest_.size())
                return fail("room for the bytes that a field says it has");
            content_offset_ = offset_;
            bytes_ = rest_.substr(0, static_cast<std::size_t>(length));
            drop(bytes_.size());
            return true;
        }
        default:
            return fail("protobuf field of a known type, expected one");
    }
}

bool ProtoFields::next_packed(std::uint64_t& value) {
    if (rest_.empty()) return false;
    return take_number(value) || fail("end of a number, expected one within 10 bytes");
}

}  // namespace fragscope::analysis
