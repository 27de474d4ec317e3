// What the program says of itself: marks and ranges, by fragscope.h and by NVTX (nvtx.cpp). Recorded only
// once the process is attached, which its first use of the driver brings about: a mark alone is no sign that
// the process will have anything to do with memory, and the shim stays inert in those that have not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/emit.h"
#include "interpose/intern.h"

namespace fragscope::interpose {

// A mark (kMark) or the beginning of a range (kRangeBegun); `domain` is a string's number or 0, `range` the
// id of a range that may end in another thread, 0 if it is ended in the order of nesting.
void said(Kind kind, HookId function, std::uint32_t domain, std::uint32_t text, std::uint64_t payload,
          std::uint64_t range);
void range_ended(HookId function, std::uint32_t domain, std::uint64_t range);

// Length of a text of the program's, which need not end within what is kept of it.
std::size_t bounded_length(const char* text);

}  // namespace fragscope::interpose
