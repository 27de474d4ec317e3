// CUPTI's own account of memory (activity records), beside the intercepted calls: whether it is used in this
// process, its buffers, and giving way to other clients. README.md says what is safe and why.
//
// Layouts and rules are those of the public headers of CUDA 13.0. The library is never linked: its functions
// are found in the one that is mapped. Nothing is ever finalized or closed, nothing is done in a forked
// child of a process that used it, and nothing from within CUPTI's callbacks but handing records over.
#pragma once

#include <cstdint>

#include "proto/wire.h"

namespace fragscope::interpose {

// Where the driver has been initialised, inside the wrapper of the call: decides once in each attachment, and
// says so in a record (kActivityState).
void begin_activity();
// At a moment of samples (no capture runs, the thread is in no other call of the driver's): has CUPTI hand
// over what it has, twice a second at most.
void flush_activity(std::uint64_t now_ns);
// The process is about to end, before the driver's own handlers.
void end_activity();

// Another client of CUPTI shows itself by a call or look-up of the function; `who`: for people. Returns when
// CUPTI is no longer used here, or after two seconds.
void give_way_to(const char* who);

// ------------------------------------------------------------------------------------------------- doors to
// CUPTI

// A look-up by dlsym of a name that begins with "cup": true, and `result`, if it is one of those by which
// clients come.
bool answer_cupti(void* handle, const char* name, const void* caller, void** result);
// An address inside a libcupti: what that looks up in the driver stays its own.
bool in_cupti(const void* address);

}  // namespace fragscope::interpose
