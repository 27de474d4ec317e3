#include "interpose/driver.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "interpose/doors.h"

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

// A loaded object as its dynamic section describes it.
struct Object {
    std::uintptr_t base = 0;
    std::uintptr_t begin = 0, end = 0;
    const char* path = "";
    const char* soname = "";
    const char* strings = nullptr;
    const ElfW(Sym) * symbols = nullptr;
    const std::uint32_t* gnu_hash = nullptr;
    const std::uint32_t* hash = nullptr;
};

bool describe(const dl_phdr_info& info, Object& object) {
    object = {};
    object.base = info.dlpi_addr;
    object.path = info.dlpi_name;
    object.begin = UINTPTR_MAX;
    const ElfW(Dyn)* dynamic = nullptr;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = info.dlpi_phdr[i];
        const std::uintptr_t start = info.dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(start);
        if (segment.p_type != PT_LOAD) continue;
        if (start < object.begin) object.begin = start;
        if (start + segment.p_memsz > object.end) object.end = start + segment.p_memsz;
    }
    if (dynamic == nullptr) return false;
    std::size_t soname = 0;
    bool has_soname = false;
    for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
        // The loader has made these addresses absolute on some machines and not on others.
        const std::uintptr_t raw = entry->d_un.d_ptr;
        const std::uintptr_t at = raw < info.dlpi_addr ? info.dlpi_addr + raw : raw;
        switch (entry->d_tag) {
            case DT_STRTAB:
                object.strings = reinterpret_cast<const char*>(at);
                break;
            case DT_SYMTAB:
                object.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
                break;
            case DT_GNU_HASH:
                object.gnu_hash = reinterpret_cast<const std::uint32_t*>(at);
                break;
            case DT_HASH:
                object.hash = reinterpret_cast<const std::uint32_t*>(at);
                break;
            case DT_SONAME:
                soname = entry->d_un.d_val;
                has_soname = true;
                break;
            default:
                break;
        }
    }
    if (object.strings == nullptr || object.symbols == nullptr) return false;
    if (has_soname) object.soname = object.strings + soname;
    return true;
}

// Is `soname` `stem` itself, or `stem` with a version?
bool named(const char* soname, const char* stem) {
    const std::size_t length = std::strlen(stem);
    return std::strncmp(soname, stem, length) == 0 && (soname[length] == '\0' || soname[length] == '.');
}

struct Search {
    const char* stem;
    Object object;
};

// The first loaded object with that name. A search takes the loader's own lock for its length, as unwinding
// does.
bool find_object(const char* stem, Object& out) {
    Search search{stem, {}};
    const int found = dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& wanted = *static_cast<Search*>(data);
            return describe(*info, wanted.object) && named(wanted.object.soname, wanted.stem) ? 1 : 0;
        },
        &search);
    out = search.object;
    return found != 0;
}

bool exported(const Object& object, std::uint32_t index) {
    const ElfW(Sym)& symbol = object.symbols[index];
    const unsigned type = symbol.st_info & 0xf;
    return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 && (type == STT_FUNC || type == STT_NOTYPE);
}

constexpr std::uint32_t gnu_hash_of(const char* name) {
    std::uint32_t h = 5381;
    for (const char* c = name; *c != '\0'; ++c) h = h * 33 + static_cast<unsigned char>(*c);
    return h;
}

// A name with its hash.
struct Wanted {
    const char* name;
    std::uint32_t hash;
};
constexpr Wanted wanted(const char* name) { return {name, gnu_hash_of(name)}; }
constexpr Wanted kRows[] = {
#define HOOK(symbol, parameters, arguments, numbered, event) wanted(#symbol),
#include "interpose/hooks.def"
};

// Calls `visit(index)` for the symbols that may be called `name` until it returns true (GNU hash table, or
// the older one).
template <typename Visit>
void visit_candidates(const Object& object, const Wanted& symbol, Visit&& visit) {
    if (object.gnu_hash != nullptr) {
        const std::uint32_t h = symbol.hash;
        const std::uint32_t buckets = object.gnu_hash[0], first = object.gnu_hash[1],
                            bloom = object.gnu_hash[2], shift = object.gnu_hash[3];
        constexpr std::uint32_t kBits = sizeof(std::uintptr_t) * 8;
        const auto* filter = reinterpret_cast<const std::uintptr_t*>(object.gnu_hash + 4);
        const auto* bucket = reinterpret_cast<const std::uint32_t*>(filter + bloom);
        if (buckets == 0 || bloom == 0) return;
        const std::uintptr_t word = filter[(h / kBits) % bloom];
        if (((word >> (h % kBits)) & (word >> ((h >> shift) % kBits)) & 1) == 0) return;
        std::uint32_t index = bucket[h % buckets];
        if (index < first) return;
        for (const std::uint32_t* chain = bucket + buckets;; ++index) {
            const std::uint32_t link = chain[index - first];
            if ((link | 1) == (h | 1) && visit(index)) return;
            if ((link & 1) != 0) return;
        }
    }
    if (object.hash == nullptr) return;
    std::uint32_t h = 0;
    for (const char* c = symbol.name; *c != '\0'; ++c) {
        h = (h << 4) + static_cast<unsigned char>(*c);
        h = (h ^ ((h & 0xf0000000u) >> 24)) & 0x0fffffffu;
    }
    const std::uint32_t buckets = object.hash[0];
    if (buckets == 0) return;
    for (std::uint32_t index = object.hash[2 + h % buckets]; index != 0;
         index = object.hash[2 + buckets + index])
        if (visit(index)) return;
}

void* find_symbol(const Object& object, const Wanted& symbol) {
    void* found = nullptr;
    visit_candidates(object, symbol, [&](std::uint32_t index) {
        if (!exported(object, index) ||
            std::strcmp(object.strings + object.symbols[index].st_name, symbol.name) != 0)
            return false;
        found = reinterpret_cast<void*>(object.base + object.symbols[index].st_value);
        return true;
    });
    return found;
}

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
