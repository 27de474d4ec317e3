// What the rest of the shim needs of interpose/doors.cpp, for a program that carries the shim in itself: a
// dlsym of its own would come in the way of the sanitizers, which look their functions up by it.
#include "interpose/doors.h"

#include <dlfcn.h>

namespace fragscope::interpose {

void* answer(void* found, const void*) { return found; }
void found_nothing(const void*) {}
void* look_up_after_us(const char* name) { return dlsym(RTLD_NEXT, name); }
void* look_up_in_scope_of(const void*, const char* name) { return dlsym(RTLD_DEFAULT, name); }
void* look_up_as_asked(void* handle, const char* name) { return dlsym(handle, name); }

}  // namespace fragscope::interpose
