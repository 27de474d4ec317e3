// The two doors through which a program fetches driver functions by name: dlsym and cuGetProcAddress. Both
// ask the real one first and then swap the pointer that came back, never a name (names have versions,
// pointers have one meaning).
#pragma once

#include "interpose/rows.h"

namespace fragscope::interpose {

// What a program looked up and the real resolver answered with: our wrapper of it, or `found` unchanged.
// Counts it.
void* answer(void* found, const void* caller);

// A look-up by cuGetProcAddress(_v2) that found nothing: counted, so that the count is what the program
// asked.
void found_nothing(const void* caller);

// dlsym(RTLD_NEXT, name) as the shim itself sees it: what would be found if the shim were not there.
void* look_up_after_us(const char* name);
// As the object that `caller` lies in would find it in itself and what it needs; nullptr: not there.
void* look_up_in_scope_of(const void* caller, const char* name);
// dlsym(handle, name), by what the program would use without the shim.
void* look_up_as_asked(void* handle, const char* name);

}  // namespace fragscope::interpose
