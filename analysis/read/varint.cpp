#include "analysis/read/varint.h"

namespace fragscope::analysis {

std::size_t count_varints(std::span<const unsigned char> bytes) {
    if (bytes.empty()) return 0;
    if (bytes.back() >= 0x80) return SIZE_MAX;
    std::size_t count = 0;
    std::size_t open = 0;  // bytes so far of the number that has not ended yet
    std::size_t longest = 0;
    std::size_t at = 0;
    for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t ends = ~load_word(bytes.data() + at) & kHighBits;
        if (ends == kHighBits && open == 0) {
            count += sizeof(std::uint64_t);
            continue;
        }
        // Inside a word no number is longer than seven bytes.
        open += static_cast<std::size_t>(std::countr_zero(ends)) / 8;
        longest = open > longest ? open : longest;
        if (ends == 0) continue;
        // One bit in each byte that ends a number: their sum is the highest byte of the product.
        count += static_cast<std::size_t>(((ends >> 7) * 0x0101010101010101) >> 56);
        open = static_cast<std::size_t>(std::countl_zero(ends)) / 8;
    }
    for (; at < bytes.size(); ++at) {
        if (bytes[at] >= 0x80) {
            ++open;
            continue;
        }
        longest = open > longest ? open : longest;
        ++count;
        open = 0;
    }
    return longest < kLongestVarint ? count : SIZE_MAX;
}

}  // namespace fragscope::analysis
