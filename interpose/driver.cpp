#include "interpose/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "interpose/doors.h"
#include "interpose/objects.h"

namespace fragscope::interpose {

constinit Driver driver;
constinit Next next;

// In hooks.cpp.
namespace straight {
#define HOOK(symbol, parameters, arguments, numbered, event) CUresult symbol parameters;
#include "interpose/hooks.def"
}  // namespace straight

namespace {

// Bounds of the driver's mapping; `end` is stored last.
constinit std::atomic<std::uintptr_t> driver_begin{0};
constinit std::atomic<std::uintptr_t> driver_end{0};

constexpr Wanted kRows[] = {
#define HOOK(symbol, parameters, arguments, numbered, event) wanted(#symbol),
#include "interpose/hooks.def"
};

template <typename Function>
void store(std::atomic<Function>& slot, void* address) {
    if (address != nullptr) slot.store(reinterpret_cast<Function>(address), std::memory_order_release);
}

void copy_text(const char* from, char* out, std::size_t size) {
    std::size_t i = 0;
    for (; i + 1 < size && from[i] != '\0'; ++i) out[i] = from[i];
    out[i] = '\0';
}

template <typename Function>
void* load(const std::atomic<Function>& slot) {
    return reinterpret_cast<void*>(slot.load(std::memory_order_acquire));
}

struct Hook {
    void* wrapper;
    void* straight;
    void* (*own)();
    void* (*next)();
    void (*set_next)(void*);
};

const Hook kHooks[] = {
#define HOOK(symbol, parameters, arguments, numbered, event)                         \
    {reinterpret_cast<void*>(&::symbol), reinterpret_cast<void*>(&straight::symbol), \
     [] { return load(driver.symbol); }, [] { return load(next.symbol); },           \
     [](void* function) { store(next.symbol, function); }},
#include "interpose/hooks.def"
};

// Libraries whose functions are some row's next ones. More preloaded tools for the driver than this nobody
// has; from the ninth on one is treated as part of the program.
constexpr std::size_t kMaxOthers = 8;
struct Range {
    std::atomic<std::uintptr_t> begin, end;
};
constinit Range others[kMaxOthers];
constinit std::atomic<std::size_t> other_count{0};

bool inside(const Range& range, const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= range.begin.load(std::memory_order_relaxed) &&
           at < range.end.load(std::memory_order_relaxed);
}

// What other libraries export between the shim and the driver, in the order of loading.
struct Between {
    bool after_us = false;
    void* found[kHookCount] = {};
    std::uintptr_t begin[kMaxOthers] = {}, end[kMaxOthers] = {};
    std::size_t objects = 0;
};

int look_between(dl_phdr_info* info, std::size_t, void* data) {
    auto& between = *static_cast<Between*>(data);
    Object object;
    if (!describe(*info, object)) return 0;
    const auto here = reinterpret_cast<std::uintptr_t>(&driver);
    if (here >= object.begin && here < object.end) {
        between.after_us = true;
        return 0;
    }
    if (!between.after_us) return 0;
    if (named(object.soname, "libcuda.so")) return 1;
    bool any = false;
    for (std::uint32_t row = 0; row < kHookCount; ++row)
        if (between.found[row] == nullptr) {
            between.found[row] = find_symbol(object, kRows[row]);
            any = any || between.found[row] != nullptr;
        }
    if (any && between.objects < kMaxOthers) {
        between.begin[between.objects] = object.begin;
        between.end[between.objects++] = object.end;
    }
    return 0;
}

// Decides what each wrapper calls. Only where a library between us and the driver has such a function is the
// loader asked, which knows whether the program's calls would lead there: asking costs a pending dlerror().
void find_next() {
    Between between;
    dl_iterate_phdr(look_between, &between);
    bool any = false;
    for (std::uint32_t row = 0; row < kHookCount; ++row) {
        void* own = kHooks[row].own();
        void* other = between.found[row];
        const bool reached = other != nullptr && look_up_after_us(kRows[row].name) == other;
        any = any || reached;
        kHooks[row].set_next(reached ? other : own);
    }
    // Several threads may be here at once; all store the same values.
    for (std::size_t i = 0; i < between.objects && any; ++i) {
        others[i].begin.store(between.begin[i], std::memory_order_relaxed);
        others[i].end.store(between.end[i], std::memory_order_relaxed);
    }
    if (any) other_count.store(between.objects, std::memory_order_release);
}

// Number of the row with that name; kHookCount: none.
std::uint32_t row_of(const char* name) {
    std::uint32_t row = 0;
    while (row < kHookCount && std::strcmp(kHookNames[row], name) != 0) ++row;
    return row;
}

}  // namespace

bool driver_found() { return driver_end.load(std::memory_order_acquire) != 0; }

bool in_driver(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at < driver_end.load(std::memory_order_acquire) &&
           at >= driver_begin.load(std::memory_order_relaxed);
}

bool find_driver() {
    if (driver_found()) return true;
    Object object;
    if (!find_object("libcuda.so", object)) return false;
    // Several threads may come here at once: all but those that saw another libcuda store the same values.
    std::uintptr_t none = 0;
    if (!driver_begin.compare_exchange_strong(none, object.begin) && none != object.begin)
        return driver_found();
#define HOOK(symbol, parameters, arguments, numbered, event) \
    store(driver.symbol, find_symbol(object, kRows[number(HookId::k_##symbol)]));
#define ASK(name) store(driver.name, find_symbol(object, wanted(#name)));
#include "interpose/hooks.def"
    find_next();
    driver_end.store(object.end, std::memory_order_release);
    return true;
}

bool is_driver_export(const void* address) {
    Dl_info info;
    return dladdr(address, &info) != 0 && info.dli_saddr == address;
}

void driver_path(char* out, std::size_t size) {
    Object object;
    copy_text(find_object("libcuda.so", object) ? object.path : "", out, size);
}

int runtime_path(char* out, std::size_t size) {
    Object object;
    const bool found = find_object("libcudart.so", object);
    copy_text(found ? object.path : "", out, size);
    if (!found) return 0;
    char target[512];
    const ssize_t length = readlink(object.path, target, sizeof target - 1);
    if (length > 0) target[length] = '\0';
    const char* file = length > 0 ? target : object.path;
    const char* version = std::strstr(file, "libcudart.so.");
    if (version == nullptr) return 0;
    char* rest = nullptr;
    const long major = std::strtol(version + std::strlen("libcudart.so."), &rest, 10);
    if (*rest != '.' || major < 1 || major > 1000) return 0;
    const long minor = std::strtol(rest + 1, &rest, 10);
    return minor < 0 || minor > 99 ? 0 : static_cast<int>(major * 1000 + minor * 10);
}

void* resolve(HookId id) {
    const Hook& hook = kHooks[number(id)];
    if (find_driver()) return hook.next();
    // No libcuda by that name: whoever else exports the function, as if we were not there.
    void* other = look_up_after_us(name(id));
    return other == hook.wrapper ? nullptr : other;
}

bool others_stand_between() { return other_count.load(std::memory_order_acquire) != 0; }

bool in_other(const void* address) {
    for (std::size_t i = 0; i < other_count.load(std::memory_order_acquire); ++i)
        if (inside(others[i], address)) return true;
    return false;
}

void* next_of(const char* name) {
    const std::uint32_t row = row_of(name);
    return row != kHookCount ? kHooks[row].next() : nullptr;
}

void* substitute(void* found) {
    for (const Hook& hook : kHooks) {
        if (hook.next() == found) return hook.wrapper;
        if (hook.own() == found) return hook.straight;
    }
    return found;
}

bool is_wrapper(const void* address) {
    for (const Hook& hook : kHooks)
        if (hook.wrapper == address || hook.straight == address) return true;
    return false;
}

bool is_row(const char* name) { return row_of(name) != kHookCount; }

bool is_missing(const char* name) {
    const std::uint32_t row = row_of(name);
    return row != kHookCount && (!find_driver() || kHooks[row].next() == nullptr);
}

}  // namespace fragscope::interpose
