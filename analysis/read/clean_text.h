// Text of strangers' files, made fit for messages: these must be UTF-8, and pages print them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fragscope::analysis {

// Where the text stops being UTF-8 (Unicode, table 3-7); its length: nowhere.
std::size_t utf8_until(std::string_view text);

// At most `most` bytes of it and the mark of what was cut off ("…"); control characters and bytes that are no
// part of a well-formed character become '?'.
std::string clean_text(std::string_view text, std::size_t most = 1024);

}  // namespace fragscope::analysis
