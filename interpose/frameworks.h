// What frameworks' own allocators say of the blocks that they cut out of driver memory: the functions of
// frameworks.def, passed on unchanged. A report is made with the allocator's lock held, after a block was
// taken or given back, so the number drawn here is in the allocator's own order; and a segment is taken from
// the driver before the first report of a block in it, and given back after the last one.
//
// The lock is also why nothing here asks the loader by dlopen or dlsym, whose own lock another thread may
// hold that waits for the allocator's.
#pragma once

#include <cstdint>

namespace fragscope::interpose {

enum FrameworkRow : std::uint32_t {
#define FRAMEWORK(function, symbol, parameters, arguments, event) kRow_##function,
#define FRAMEWORK_STREAM(function, symbol) kRow_##function,
#include "interpose/frameworks.def"
    kFrameworkRows
};
inline constexpr FrameworkRow kStreamRow = kRow_stream;  // the last one

// The function that a call from `caller` would reach without the shim; nullptr: there is none.
void* real_of(FrameworkRow row, const void* caller);

// `name` is a row of frameworks.def.
bool is_framework_row(const char* name);
bool is_framework_wrapper(const void* address);
// What a program should get for `found`, the function by that name (a row's): our wrapper if it would call
// just that one, else `found`.
void* substitute_framework(const char* name, void* found);

}  // namespace fragscope::interpose
