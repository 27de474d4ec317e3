// Finds the word "free" where nothing says what is free: the one thing that no text of Fragscope may do.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

namespace fragscope {

// The first offending place with a little around it; empty when there is none. "free" counts as a word of its
// own only: not in cuMemFree, freed, cuMemFreeAsync. Said properly: "eligible free memory", "device-free
// memory", "pool-free".
inline std::string unqualified_free(std::string_view text) {
    constexpr std::array<std::string_view, 8> kQualifiers = {
        "device-", "Device-", "eligible ", "Eligible ", "pool-", "Pool-", "allocator-", "Allocator-"};
    const auto in_word = [&](std::size_t at) {
        return at < text.size() &&
               (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
    };
    for (std::size_t ree = text.find("ree"); ree != std::string_view::npos; ree = text.find("ree", ree + 1)) {
        if (ree == 0 || (text[ree - 1] != 'f' && text[ree - 1] != 'F')) continue;
        const std::size_t at = ree - 1;
        if ((at != 0 && in_word(at - 1)) || in_word(at + 4)) continue;
        const std::string_view before = text.substr(0, at);
        if (std::any_of(kQualifiers.begin(), kQualifiers.end(),
                        [&](std::string_view each) { return before.ends_with(each); }))
            continue;
        return std::string(text.substr(at < 30 ? 0 : at - 30, 60));
    }
    return {};
}

}  // namespace fragscope
