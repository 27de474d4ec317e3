// Text for JSON that is written by hand, line by line.
#pragma once

#include <fmt/format.h>

#include <string>

namespace fragscope::tools {

// A JSON string. The text must be UTF-8 (see collector::to_utf8), as all text of a trace is.
inline std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += {'\\', c};
        else if (static_cast<unsigned char>(c) < 0x20)
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
            out += c;
    }
    return out + "\"";
}

}  // namespace fragscope::tools
