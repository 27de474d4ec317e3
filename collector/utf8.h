// Text from strangers' programs and command lines, made fit for protobuf strings: these must be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace fragscope::collector {

// Each byte that is no part of a well-formed character becomes '?'.
std::string to_utf8(std::string_view text);

}  // namespace fragscope::collector
