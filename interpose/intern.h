// Texts of the process by number: names of marks, ranges and threads' functions, places of Python code. A
// text is kept in the shim's own memory for good and has the same number for all threads and, after a fork,
// in the child; the collector is told it once by each attachment, as a text of kind kString.
//
// Lock-free, bounded, nothing to undo: a thread that is lost in a fork half-way leaves at most unused bytes
// behind.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fragscope::interpose {

inline constexpr std::uint32_t kMaxStrings = 32768;
inline constexpr std::size_t kStringMemory = std::size_t{2} << 20;

// A text of the table, without NUL; `bytes` 0: there is none of that number.
struct StringText {
    const char* text = nullptr;
    std::size_t bytes = 0;
};

// The number of the text, cut to wire::kMaxTextBytes; from 1. 0: it is empty, or the table is full. Sends
// nothing.
std::uint32_t intern(const char* text, std::size_t bytes);
StringText string_text(std::uint32_t id);

// Sends the text of `id` into this thread's ring unless this attachment has it. To be called before each
// record that names it; nothing for 0 and outside of an attachment.
void tell_string(std::uint32_t id);

// For a record: intern() and tell_string(). A text that found no place is counted as a lost kText.
std::uint32_t told_string(const char* text, std::size_t bytes);

}  // namespace fragscope::interpose
