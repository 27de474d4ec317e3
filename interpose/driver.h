// The real driver: where it is loaded, and its functions. Found by reading the loaded libcuda's own symbol
// table, so that nothing here loads a library, allocates, or disturbs the program's dlerror().
#pragma once

#include <atomic>
#include <cstddef>

#include "interpose/rows.h"

namespace fragscope::interpose {

// One pointer a function, empty while unknown or when the driver lacks it.
struct Driver {
#define HOOK(symbol, parameters, arguments, numbered, event) std::atomic<decltype(&::symbol)> symbol{nullptr};
#define ASK(name) std::atomic<decltype(&::name)> name{nullptr};
#include "interpose/hooks.def"
};
extern constinit Driver
    driver;  // the driver's own: what the shim asks, and what the program means by a pointer into it

// What a call of each hooked function would reach if the shim were not there. The driver's own function,
// unless another library that was loaded after the shim exports one of that name into the program's global
// scope.
struct Next {
#define HOOK(symbol, parameters, arguments, numbered, event) std::atomic<decltype(&::symbol)> symbol{nullptr};
#include "interpose/hooks.def"
};
extern constinit Next next;

// Looks for a loaded libcuda, once there is one. False: none is loaded yet.
bool find_driver();
bool driver_found();
// An address inside the driver found.
bool in_driver(const void* address);
// True if `address` is exactly what one of the driver's exported symbols stands for.
bool is_driver_export(const void* address);
// The file that the driver was loaded from, cut to `size` with its NUL. Empty if none is found.
void driver_path(char* out, std::size_t size);
// Shared libcudart, if one is loaded: its path; the version from the name of the file ("libcudart.so.13.0.96"
// is 13000), 0 if it does not tell.
int runtime_path(char* out, std::size_t size);

// What the wrapper of `id` calls, or nullptr: asked for when `next` has none yet.
void* resolve(HookId id);

// Some row's next function is not the driver's. All of this holds once the driver is found.
bool others_stand_between();
// An address inside a library between us and the driver that has functions of the driver's names.
bool in_other(const void* address);
// The next function of the row with that name; nullptr: no row, or none.
void* next_of(const char* name);

// What the program should get for `found`: our wrapper if it is a row's own or next function, else `found`.
void* substitute(void* found);
bool is_wrapper(const void* address);
bool is_row(const char* name);
// `name` is a row, and no driver is loaded that has the function.
bool is_missing(const char* name);

}  // namespace fragscope::interpose
