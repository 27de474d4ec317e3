// Numbers as protobuf packs them: seven bits a byte, the lowest first, the high bit set where more follow.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fragscope::analysis {

// A number has at most so many bytes; as many have to be readable behind the last byte of what is decoded.
inline constexpr std::size_t kLongestVarint = 10;

inline std::uint64_t load_word(const unsigned char* at) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
}

inline constexpr std::uint64_t kHighBits = 0x8080808080808080;

// The number at `at`, of which `count_varints` has seen that it ends; moves behind it.
inline std::uint64_t next_varint(const unsigned char*& at) {
    if (*at < 0x80) return *at++;
    const std::uint64_t word = load_word(at);
    const std::uint64_t ends = ~word & kHighBits;
    if (ends == 0) {  // nine or ten bytes
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const std::uint64_t byte = *at++;
            value |= (byte & 0x7f) << shift;
            if (byte < 0x80) break;
        }
        return value;
    }
    const auto bits = static_cast<unsigned>(std::countr_zero(ends)) + 1;  // 16, 24, … 64
    at += bits / 8;
    std::uint64_t value = word & (UINT64_MAX >> (64 - bits)) & ~kHighBits;
    // Pairs of groups of 7, then of 14, then of 28 bits move together.
    value = (value & 0x007f007f007f007f) | ((value & 0x7f007f007f007f00) >> 1);
    value = (value & 0x00003fff00003fff) | ((value & 0x3fff00003fff0000) >> 2);
    return (value & 0x000000000fffffff) | ((value & 0x0fffffff00000000) >> 4);
}

constexpr std::int64_t unzigzag(std::uint64_t value) {
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// How many numbers the bytes hold; SIZE_MAX if they are not numbers from end to end.
std::size_t count_varints(std::span<const unsigned char> bytes);

}  // namespace fragscope::analysis
