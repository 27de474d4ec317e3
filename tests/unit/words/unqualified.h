// Finds the word "free" where nothing says what is free: the one thing that no text of Fragscope may do.
#pragma once

#include <regex>
#include <string>

namespace fragscope {

// The first offending place with a little around it; empty when there is none. "free" counts as a word of its
// own only: not in cuMemFree, freed, cuMemFreeAsync. Said properly: "eligible free memory", "device-free
// memory", "pool-free".
inline std::string unqualified_free(const std::string& text) {
    static const std::regex word(R"((^|[^A-Za-z0-9_])([Ff]ree)([^A-Za-z0-9_]|$))");
    static const std::regex qualified(R"(([Dd]evice-|[Ee]ligible |[Pp]ool-|[Aa]llocator-)$)");
    for (auto it = std::sregex_iterator(text.begin(), text.end(), word); it != std::sregex_iterator(); ++it) {
        const auto at = static_cast<std::size_t>(it->position(2));
        if (std::regex_search(text.substr(0, at), qualified)) continue;
        return text.substr(at < 30 ? 0 : at - 30, 60);
    }
    return {};
}

}  // namespace fragscope
