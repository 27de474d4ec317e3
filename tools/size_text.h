// Amounts of memory as people type them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fragscope::tools {

// "256MiB", "256 MiB", "256M", "1g" or plain bytes, in binary units; nothing for anything else, and for more
// than 64 bits hold.
std::optional<std::uint64_t> parse_size(const std::string& text);

}  // namespace fragscope::tools
