// NVTX: the shim as the injection library that programs' copies of NVTX load (NVTX_INJECTION64_PATH). The
// tool that the variable named before, if any, is in FRAGSCOPE_NVTX_CHAIN: it is loaded in our place, takes
// what functions it likes, and ours call them. It sees no handle and no id but its own: beside it ours begin
// no range, create no domain and register no text that it does not. Without it such ids are ours, where
// without any tool they would be 0.
//
// Structures, ids and the order of loading are those of NVTX 3, nvtx3/nvtxDetail/nvtxTypes.h and nvtxInit.h
// of https://github.com/NVIDIA/NVTX (Apache-2.0 with LLVM exceptions); tests/preload/nvtx_layout.cpp compares
// them where the headers are at hand.
#include "interpose/nvtx.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "interpose/doors.h"
#include "interpose/marks.h"

namespace fragscope::interpose::nvtx {

namespace {

// ------------------------------------------------------------------------------------------------------------
// names

// Texts of the handles that the program has for domains and registered strings: ours or the other tool's.
constexpr std::uint32_t kHandles = 4096;
struct NamedHandle {
    std::atomic<std::uint64_t> handle;
    std::atomic<std::uint32_t> text;
};
constinit NamedHandle handles[kHandles];

NamedHandle* find_handle(const void* handle, bool enter) {
    const auto value = reinterpret_cast<std::uint64_t>(handle);
    if (value == 0) return nullptr;
    const auto first = static_cast<std::uint32_t>((value * 0x9e3779b97f4a7c15u) >> 40);
    for (std::uint32_t step = 0; step < 64; ++step) {
        NamedHandle& place = handles[(first + step) % kHandles];
        std::uint64_t known = place.handle.load(std::memory_order_acquire);
        if (known == 0 && (!enter || place.handle.compare_exchange_strong(known, value)))
            return enter ? &place : nullptr;
        if (known == value) return &place;
    }
    return nullptr;
}

std::uint32_t text_of(const void* handle) {
    const NamedHandle* known = find_handle(handle, false);
    return known != nullptr ? known->text.load(std::memory_order_acquire) : 0;
}

// A handle of ours is the place of its text.
const void* own_handle(std::uint32_t text) { return text != 0 ? string_text(text).text : nullptr; }

const void* named(const void* handle, std::uint32_t text) {
    if (NamedHandle* place = find_handle(handle, true); place != nullptr)
        place->text.store(text, std::memory_order_release);
    return handle;
}

// A text that is only kept: to be told once something is said with it.
std::uint32_t kept(const char* text) { return intern(text, bounded_length(text)); }
std::uint32_t told(const char* text) { return told_string(text, bounded_length(text)); }

// wchar_t has 32 bits here. What is no character becomes U+FFFD; 1 KiB is kept.
struct Utf8 {
    char bytes[1024];
    std::size_t length = 0;
    explicit Utf8(const wchar_t* text) {
        for (; text != nullptr && *text != 0 && length + 4 <= sizeof bytes; ++text) {
            auto c = static_cast<std::uint32_t>(*text);
            if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
            const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            constexpr std::uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
            put(kLead[more] | (c >> (6 * more)));
            for (int i = more - 1; i >= 0; --i) put(0x80 | ((c >> (6 * i)) & 0x3f));
        }
    }
    void put(std::uint32_t byte) { bytes[length++] = static_cast<char>(byte); }
};
std::uint32_t kept(const wchar_t* text) {
    const Utf8 converted(text);
    return intern(converted.bytes, converted.length);
}
std::uint32_t told(const wchar_t* text) {
    const Utf8 converted(text);
    return told_string(converted.bytes, converted.length);
}

std::uint32_t message_of(const Attributes* attributes) {
    if (attributes == nullptr || attributes->size < sizeof(Attributes)) return 0;
    switch (attributes->message_type) {
        case kAscii:
            return told(static_cast<const char*>(attributes->message));
        case kUnicode:
            return told(static_cast<const wchar_t*>(attributes->message));
        case kRegistered:
            return text_of(attributes->message);
        default:
            return 0;
    }
}

std::uint64_t payload_of(const Attributes* attributes) {
    if (attributes == nullptr || attributes->size < sizeof(Attributes)) return 0;
    std::uint64_t bits = 0;
    std::memcpy(&bits, &attributes->payload, sizeof bits);
    switch (attributes->payload_type) {
        case kUnsigned64:
        case kSigned64:
        case kDouble:
            return bits;
        case kUnsigned32:
        case kFloat:
            return bits & 0xffffffffu;
        case kSigned32:
            return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(bits)));
        default:
            return 0;
    }
}

// ------------------------------------------------------------------------------------------------ the tool
// before us

// What the other tool put into the tables of the program's copies of NVTX. All copies get the same ones from
// the same tool; a table that holds another one is left as it is.
constinit std::atomic<Generic> next_core[kCoreSize];
constinit std::atomic<Generic> next_core2[kCore2Size];

template <typename Function>
Function next(const std::atomic<Generic>& slot) {
    return reinterpret_cast<Function>(slot.load(std::memory_order_acquire));
}

// ------------------------------------------------------------------------------------------------- what
// programs call

// Ranges that were started where no other tool counts them.
constinit std::atomic<std::uint64_t> ranges{0};
std::uint64_t new_range() { return ranges.fetch_add(1, std::memory_order_relaxed) + 1; }

void started(std::uint32_t domain, std::uint32_t text, std::uint64_t payload, std::uint64_t range) {
    // 0, the other tool's word for none, would be a range that was pushed.
    if (range != 0) said(Kind::kRangeBegun, HookId::kNvtxRangeStart, domain, text, payload, range);
}

// Each function in two forms: `kChained`, where the other tool has one of its own, and where it has not.
template <bool kChained>
struct Functions {
    template <typename Text>
    static void mark(CoreId id, const Text* text) {
        if (attached()) said(Kind::kMark, HookId::kNvtxMark, 0, told(text), 0, 0);
        if constexpr (kChained) next<void (*)(const Text*)>(next_core[id])(text);
    }
    static void mark_a(const char* text) { mark(kMarkA, text); }
    static void mark_w(const wchar_t* text) { mark(kMarkW, text); }
    static void mark_ex(const Attributes* what) {
        if (attached()) said(Kind::kMark, HookId::kNvtxMark, 0, message_of(what), payload_of(what), 0);
        if constexpr (kChained) next<decltype(&mark_ex)>(next_core[kMarkEx])(what);
    }

    template <typename Text>
    static int push(CoreId id, const Text* text) {
        if (attached()) said(Kind::kRangeBegun, HookId::kNvtxRangePush, 0, told(text), 0, 0);
        if constexpr (kChained) return next<int (*)(const Text*)>(next_core[id])(text);
        return kNoTracking;
    }
    static int push_a(const char* text) { return push(kRangePushA, text); }
    static int push_w(const wchar_t* text) { return push(kRangePushW, text); }
    static int push_ex(const Attributes* what) {
        if (attached())
            said(Kind::kRangeBegun, HookId::kNvtxRangePush, 0, message_of(what), payload_of(what), 0);
        if constexpr (kChained) return next<decltype(&push_ex)>(next_core[kRangePushEx])(what);
        return kNoTracking;
    }
    static int pop() {
        range_ended(HookId::kNvtxRangePop, 0, 0);
        if constexpr (kChained) return next<decltype(&pop)>(next_core[kRangePop])();
        return kNoTracking;
    }

    template <typename Text>
    static std::uint64_t start(CoreId id, const Text* text) {
        std::uint64_t range = 0;
        if constexpr (kChained)
            range = next<std::uint64_t (*)(const Text*)>(next_core[id])(text);
        else
            range = new_range();
        if (attached()) started(0, told(text), 0, range);
        return range;
    }
    static std::uint64_t start_a(const char* text) { return start(kRangeStartA, text); }
    static std::uint64_t start_w(const wchar_t* text) { return start(kRangeStartW, text); }
    static std::uint64_t start_ex(const Attributes* what) {
        std::uint64_t range = 0;
        if constexpr (kChained)
            range = next<decltype(&start_ex)>(next_core[kRangeStartEx])(what);
        else
            range = new_range();
        if (attached()) started(0, message_of(what), payload_of(what), range);
        return range;
    }
    static void end(std::uint64_t range) {
        range_ended(HookId::kNvtxRangeEnd, 0, range);
        if constexpr (kChained) next<decltype(&end)>(next_core[kRangeEnd])(range);
    }

    // Only the calling thread can be named: its ring is the one that a name is sent by.
    static void name_thread_a(std::uint32_t thread, const char* name) {
        const int saved = errno;
        if (attached() && thread == static_cast<std::uint32_t>(syscall(SYS_gettid)))
            emit_text(wire::TextKind::kThreadName, 0, name, bounded_length(name));
        errno = saved;
        if constexpr (kChained) next<decltype(&name_thread_a)>(next_core[kNameOsThreadA])(thread, name);
    }
    static void name_thread_w(std::uint32_t thread, const wchar_t* name) {
        const int saved = errno;
        if (attached() && thread == static_cast<std::uint32_t>(syscall(SYS_gettid))) {
            const Utf8 converted(name);
            emit_text(wire::TextKind::kThreadName, 0, converted.bytes, converted.length);
        }
        errno = saved;
        if constexpr (kChained) next<decltype(&name_thread_w)>(next_core[kNameOsThreadW])(thread, name);
    }

    static void domain_mark(const void* domain, const Attributes* what) {
        if (attached())
            said(Kind::kMark, HookId::kNvtxMark, text_of(domain), message_of(what), payload_of(what), 0);
        if constexpr (kChained) next<decltype(&domain_mark)>(next_core2[kDomainMarkEx])(domain, what);
    }
    static int domain_push(const void* domain, const Attributes* what) {
        if (attached())
            said(Kind::kRangeBegun, HookId::kNvtxRangePush, text_of(domain), message_of(what),
                 payload_of(what), 0);
        if constexpr (kChained)
            return next<decltype(&domain_push)>(next_core2[kDomainRangePushEx])(domain, what);
        return kNoTracking;
    }
    static int domain_pop(const void* domain) {
        if (attached()) range_ended(HookId::kNvtxRangePop, text_of(domain), 0);
        if constexpr (kChained) return next<decltype(&domain_pop)>(next_core2[kDomainRangePop])(domain);
        return kNoTracking;
    }
    static std::uint64_t domain_start(const void* domain, const Attributes* what) {
        std::uint64_t range = 0;
        if constexpr (kChained)
            range = next<decltype(&domain_start)>(next_core2[kDomainRangeStartEx])(domain, what);
        else
            range = new_range();
        if (attached()) started(text_of(domain), message_of(what), payload_of(what), range);
        return range;
    }
    static void domain_end(const void* domain, std::uint64_t range) {
        if (attached()) range_ended(HookId::kNvtxRangeEnd, text_of(domain), range);
        if constexpr (kChained) next<decltype(&domain_end)>(next_core2[kDomainRangeEnd])(domain, range);
    }

    template <typename Text>
    static const void* string(Core2Id id, const void* domain, const Text* text) {
        const std::uint32_t number = kept(text);
        if constexpr (kChained)
            return named(next<const void* (*)(const void*, const Text*)>(next_core2[id])(domain, text),
                         number);
        return named(own_handle(number), number);
    }
    static const void* string_a(const void* domain, const char* text) {
        return string(kDomainRegisterStringA, domain, text);
    }
    static const void* string_w(const void* domain, const wchar_t* text) {
        return string(kDomainRegisterStringW, domain, text);
    }
    template <typename Text>
    static const void* domain(Core2Id id, const Text* text) {
        const std::uint32_t number = kept(text);
        if constexpr (kChained)
            return named(next<const void* (*)(const Text*)>(next_core2[id])(text), number);
        return named(own_handle(number), number);
    }
    static const void* domain_a(const char* text) { return domain(kDomainCreateA, text); }
    static const void* domain_w(const wchar_t* text) { return domain(kDomainCreateW, text); }
};

template <typename Function>
Generic generic(Function function) {
    return reinterpret_cast<Generic>(function);
}

// Those that answer with a handle or an id, which other functions of the tool would be given.
bool core_answers(std::uint32_t id) {
    return id == kRangeStartEx || id == kRangeStartA || id == kRangeStartW;
}
bool core2_answers(std::uint32_t id) {
    return id == kDomainRangeStartEx || id == kDomainRegisterStringA || id == kDomainRegisterStringW ||
           id == kDomainCreateA || id == kDomainCreateW;
}

// Our functions by module and id; null: none.
template <bool kChained>
Generic core_function(std::uint32_t id) {
    using Ours = Functions<kChained>;
    switch (id) {
        case kMarkEx:
            return generic(&Ours::mark_ex);
        case kMarkA:
            return generic(&Ours::mark_a);
        case kMarkW:
            return generic(&Ours::mark_w);
        case kRangeStartEx:
            return generic(&Ours::start_ex);
        case kRangeStartA:
            return generic(&Ours::start_a);
        case kRangeStartW:
            return generic(&Ours::start_w);
        case kRangeEnd:
            return generic(&Ours::end);
        case kRangePushEx:
            return generic(&Ours::push_ex);
        case kRangePushA:
            return generic(&Ours::push_a);
        case kRangePushW:
            return generic(&Ours::push_w);
        case kRangePop:
            return generic(&Ours::pop);
        case kNameOsThreadA:
            return generic(&Ours::name_thread_a);
        case kNameOsThreadW:
            return generic(&Ours::name_thread_w);
        default:
            return nullptr;
    }
}

template <bool kChained>
Generic core2_function(std::uint32_t id) {
    using Ours = Functions<kChained>;
    switch (id) {
        case kDomainMarkEx:
            return generic(&Ours::domain_mark);
        case kDomainRangeStartEx:
            return generic(&Ours::domain_start);
        case kDomainRangeEnd:
            return generic(&Ours::domain_end);
        case kDomainRangePushEx:
            return generic(&Ours::domain_push);
        case kDomainRangePop:
            return generic(&Ours::domain_pop);
        case kDomainRegisterStringA:
            return generic(&Ours::string_a);
        case kDomainRegisterStringW:
            return generic(&Ours::string_w);
        case kDomainCreateA:
            return generic(&Ours::domain_a);
        case kDomainCreateW:
            return generic(&Ours::domain_w);
        default:
            return nullptr;
    }
}

// --------------------------------------------------------------------------------------------------------
// installing

constexpr std::uint32_t kMostFunctions = 32;

// A module's table: `table[id]` points to the pointer that the program's NVTX calls by.
struct Table {
    Generic** entries = nullptr;
    std::uint32_t size = 0;
    Generic before[kMostFunctions] = {};
};

bool read_table(const Callbacks& callbacks, std::uint32_t module, Table& table) {
    unsigned size = 0;
    if (callbacks.module_functions(static_cast<int>(module), &table.entries, &size) == 0 ||
        table.entries == nullptr)
        return false;
    table.size = size < kMostFunctions ? size : kMostFunctions;
    for (std::uint32_t id = 1; id < table.size; ++id)
        if (table.entries[id] != nullptr) table.before[id] = *table.entries[id];
    return true;
}

struct Module {
    std::uint32_t number, known;
    std::atomic<Generic>* next;
    Generic (*alone)(std::uint32_t id);
    Generic (*chained)(std::uint32_t id);
    bool (*answers)(std::uint32_t id);
};
constexpr Module kOurs[] = {
    {kCore, kCoreSize, next_core, &core_function<false>, &core_function<true>, &core_answers},
    {kCore2, kCore2Size, next_core2, &core2_function<false>, &core2_function<true>, &core2_answers},
};

void install(const Module& module, const Table& table, bool beside_other) {
    for (std::uint32_t id = 1; id < table.size && id < module.known; ++id) {
        Generic* entry = table.entries[id];
        if (entry == nullptr || module.alone(id) == nullptr) continue;
        if (*entry == table.before[id] || *entry == nullptr) {
            if (!beside_other || !module.answers(id)) *entry = module.alone(id);
            continue;
        }
        Generic none = nullptr;
        if (module.next[id].compare_exchange_strong(none, *entry) || none == *entry)
            *entry = module.chained(id);
    }
}

// The other tool's library, loaded at most once; null: there is none, or it cannot be loaded.
void* other_tool() {
    static constinit std::atomic<void*> loaded{nullptr};
    void* library = loaded.load(std::memory_order_acquire);
    if (library != nullptr) return library;
    const char* path = getenv(kChainVariable);
    if (path == nullptr || path[0] == '\0') return nullptr;
    library = dlopen(path, RTLD_LAZY);
    loaded.store(library, std::memory_order_release);
    return library;
}

template <typename Function>
Function of_other_tool(const char* name, Function ours) {
    void* library = other_tool();
    if (library == nullptr) return nullptr;
    const auto found = reinterpret_cast<Function>(dlsym(library, name));
    return found != ours ? found : nullptr;
}

}  // namespace

}  // namespace fragscope::interpose::nvtx

using namespace fragscope::interpose;
using namespace fragscope::interpose::nvtx;

extern "C" {

// Called by each copy of NVTX in the process at its first use. 0: nobody listens, and NVTX does nothing.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(GetExportTable get_table) {
    if (get_table == nullptr) return 0;
    const auto* callbacks = static_cast<const Callbacks*>(get_table(kCallbacksTable));
    const auto other = of_other_tool<Initialize>("InitializeInjectionNvtx2", &InitializeInjectionNvtx2);
    const bool listen = getenv(fragscope::wire::kSessionVariable) != nullptr && !recording_off() &&
                        callbacks != nullptr && callbacks->struct_size >= sizeof(Callbacks) &&
                        callbacks->module_functions != nullptr;
    if (!listen) return other != nullptr ? other(get_table) : 0;

    Table tables[kModules];
    bool there[kModules] = {};
    for (std::uint32_t module = 1; module < kModules; ++module)
        there[module] = read_table(*callbacks, module, tables[module]);
    const bool beside_other = other != nullptr && other(get_table) != 0;
    if (!beside_other)
        // As without us: nothing is called that a tool which failed has left behind.
        for (const Table& table : tables)
            for (std::uint32_t id = 1; id < table.size; ++id)
                if (table.entries[id] != nullptr) *table.entries[id] = table.before[id];
    for (const Module& module : kOurs)
        if (there[module.number]) install(module, tables[module.number], beside_other);
    return 1;
}

// Of these the shim takes nothing itself: they lead to the tool before it.
__attribute__((visibility("default"))) int InitializeInjectionNvtx(GetExportTable get_table) {
    const auto other = of_other_tool<Initialize>("InitializeInjectionNvtx", &InitializeInjectionNvtx);
    return other != nullptr ? other(get_table) : 0;
}
__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(void* module) {
    const auto other = of_other_tool<InitializeExtension>("InitializeInjectionNvtxExtension",
                                                          &InitializeInjectionNvtxExtension);
    return other != nullptr ? other(module) : 0;
}

}  // extern "C"
