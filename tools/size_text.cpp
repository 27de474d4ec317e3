#include "tools/size_text.h"

#include <cctype>
#include <limits>

namespace fragscope::tools {

std::optional<std::uint64_t> parse_size(const std::string& text) {
    std::size_t digits = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
    if (digits == 0 || digits > 15) return std::nullopt;
    const std::uint64_t number = std::stoull(text.substr(0, digits));
    std::string unit = text.substr(digits);
    if (unit.size() > 1 && unit.front() == ' ') unit.erase(0, 1);
    for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (unit.empty() || unit == "b") return number;
    const std::size_t power = std::string("kmgt").find(unit.front());
    const std::string rest = unit.substr(1);
    if (power == std::string::npos || !(rest.empty() || rest == "b" || rest == "ib")) return std::nullopt;
    const std::uint64_t scale = std::uint64_t{1} << (10 * (power + 1));
    if (number > std::numeric_limits<std::uint64_t>::max() / scale) return std::nullopt;
    return number * scale;
}

}  // namespace fragscope::tools
