#include "interpose/frameworks.h"

#include <cerrno>
#include <cstring>

#include "interpose/block_streams.h"
#include "interpose/driver.h"
#include "interpose/emit.h"
#include "interpose/modules.h"
#include "interpose/objects.h"
#include "interpose/observe.h"
#include "interpose/session.h"
#include "interpose/stacks.h"
#include "interpose/state.h"
#include "interpose/waits.h"

namespace c10 {

// As in c10/core/Device.h: two bytes in one register.
struct Device {
    std::int8_t type;   // c10::DeviceType
    std::int8_t index;  // as the CUDA runtime counts, which is as the driver does; negative: not said
};

#define FRAMEWORK(function, symbol, parameters, arguments, event) \
    [[gnu::visibility("default")]] void function parameters;
#include "interpose/frameworks.def"

}  // namespace c10

namespace fragscope::interpose {

namespace {

constexpr std::int8_t kCuda = 1;

// ------------------------------------------------------------------------------------------ who is next

using Row = FrameworkRow;

constexpr Wanted kSymbols[] = {
#define FRAMEWORK(function, symbol, parameters, arguments, event) wanted(#symbol),
#define FRAMEWORK_STREAM(function, symbol) wanted(#symbol),
#include "interpose/frameworks.def"
};

// The objects behind us that export a function, in the order of loading.
struct Candidates {
    static constexpr std::uint32_t kMost = 8;
    Wanted symbol;
    std::uintptr_t caller = 0;
    BehindUs behind_us;
    bool after_libc = false;
    std::uint32_t count = 0;
    void* function[kMost] = {};
    const char* soname[kMost] = {};
    bool from_the_start[kMost] = {};  // in the global scope for certain
    bool beside[kMost] = {};          // the caller's own object, or one that it needs
};

int look_for_candidates(dl_phdr_info* info, std::size_t, void* data) {
    auto& all = *static_cast<Candidates*>(data);
    Object object;
    if (!describe(*info, object)) return 0;
    const bool behind_us = all.behind_us.holds(object);
    // Whoever is opened later stands behind the C library.
    if (named(object.soname, "libc.so")) all.after_libc = true;
    if (!behind_us || all.count == Candidates::kMost) return 0;
    void* found = find_symbol(object, all.symbol);
    if (found == nullptr) return 0;
    all.function[all.count] = found;
    all.soname[all.count] = object.soname;
    all.beside[all.count] = all.caller >= object.begin && all.caller < object.end;
    all.from_the_start[all.count++] = !all.after_libc;
    return 0;
}

bool same_name(const char* needed, const char* name) { return std::strcmp(needed, name) == 0; }

int look_beside(dl_phdr_info* info, std::size_t, void* data) {
    auto& all = *static_cast<Candidates*>(data);
    Object object;
    if (!describe(*info, object) || all.caller < object.begin || all.caller >= object.end) return 0;
    for (std::uint32_t i = 0; i < all.count; ++i)
        all.beside[i] = all.beside[i] || needs(*info, object, all.soname[i], same_name);
    return 1;
}

// What a call would reach if we were not there, and how it is known.
struct Reached {
    void* function = nullptr;
    bool only_one = false;  // nobody else has such a function
    bool beside = false;    // it is loaded as long as the caller's file is
};

// A function that was there from the start; else the caller's own or one of what it needs, as a library that
// is opened with RTLD_LOCAL sees it; else the first.
Reached find_real(std::uint32_t row, std::uintptr_t caller) {
    Candidates all;
    all.symbol = kSymbols[row];
    all.caller = caller;
    dl_iterate_phdr(look_for_candidates, &all);
    if (all.count == 0) return {};
    dl_iterate_phdr(look_beside, &all);
    std::uint32_t best = 0;
    if (!all.from_the_start[0])
        while (best + 1 < all.count && !all.beside[best]) ++best;
    if (!all.beside[best] && !all.from_the_start[best]) best = 0;
    return {all.function[best], all.count == 1, all.beside[best] || all.from_the_start[best]};
}

// What was found for a caller: the function (48 bits), its module (15), and whether it stays loaded; else it
// is looked each time whether it is still there. Both words are written without order; a pair that does not
// belong together fits no caller.
struct KeptReal {
    std::atomic<std::uint64_t> key;  // caller ^ value
    std::atomic<std::uint64_t> value;
};
constexpr std::uint32_t kKeptReals = 16;
constinit KeptReal kept_reals[kFrameworkRows][kKeptReals];
constexpr std::uint64_t kStays = std::uint64_t{1} << 63;
static_assert(kMaxModules < 1u << 15);

[[gnu::noinline, gnu::cold]] void* find_and_keep(std::uint32_t row, std::uint64_t caller, KeptReal& kept) {
    const Reached found = find_real(row, caller);
    const auto address = reinterpret_cast<std::uint64_t>(found.function);
    const std::uint64_t number = found.function != nullptr ? module_at(address) : 0;
    if (number == 0 || address >> 48 != 0) return found.function;
    const std::uint32_t callers = module_at(caller);
    const bool stays = module(static_cast<std::uint32_t>(number)).permanent ||
                       (found.beside && callers != 0 && module(callers).permanent);
    const std::uint64_t fresh = (stays ? kStays : 0) | (number << 48) | address;
    kept.value.store(fresh, std::memory_order_relaxed);
    kept.key.store(caller ^ fresh, std::memory_order_relaxed);
    return found.function;
}

}  // namespace

void* real_of(FrameworkRow row, const void* caller) {
    const auto from = reinterpret_cast<std::uint64_t>(caller);
    KeptReal& kept = kept_reals[row][(from * 0x9e3779b97f4a7c15u) >> (64 - __builtin_ctz(kKeptReals))];
    const std::uint64_t value = kept.value.load(std::memory_order_relaxed);
    if ((kept.key.load(std::memory_order_relaxed) ^ value) == from && value != 0) {
        const std::uintptr_t function = value & ((std::uint64_t{1} << 48) - 1);
        if ((value & kStays) != 0 ||
            LoaderState().unchanged(static_cast<std::uint32_t>((value & ~kStays) >> 48), function))
            return reinterpret_cast<void*>(function);
    }
    return find_and_keep(row, from, kept);
}

namespace {

// ---------------------------------------------------------------------------------------------- reports

class BlockReport {
  public:
    BlockReport(HookId function, std::int8_t device, const void* caller)
        : function_(function), device_(device), caller_(caller) {}

    void usage(const void* address, std::int64_t bytes, std::uint64_t allocated, std::uint64_t reserved) {
        if (bytes == 0) return;  // nothing was taken or given back
        note_reporter(caller_);
        ThreadState& thread = thread_state;
        if (bytes > 0) tell_stream(device());
        if (thread.desk != 0) {
            if (bytes < 0)
                tell_waits(thread, caller_, device());
            else
                forget_waits(thread);
        }
        const auto size = static_cast<std::uint64_t>(bytes);
        record(bytes > 0 ? Kind::kBlockAcquired : Kind::kBlockReleased,
               reinterpret_cast<std::uint64_t>(address), bytes > 0 ? size : 0 - size, allocated, reserved);
    }
    void refused(std::int64_t bytes, std::uint64_t allocated, std::uint64_t reserved) {
        record(Kind::kBlockRefused, 0, bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0, allocated,
               reserved);
    }

  private:
    std::uint8_t device() const {
        return device_ < 0 ? wire::kDeviceUnknown : static_cast<std::uint8_t>(device_);
    }
    void record(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t allocated,
                std::uint64_t reserved) {
        wire::Record record{};
        record.sequence = next_sequence();
        record.start = now();
        record.function = static_cast<std::uint16_t>(function_);
        record.kind = kind;
        record.device = device();
        record.flags = device() == wire::kDeviceUnknown ? wire::kUnknownDevice : 0;
        if (captures_running.load(std::memory_order_relaxed) > 0) record.flags |= wire::kDuringCapture;
        if (kind == Kind::kBlockRefused && session.stack_failures) record.stack = call_stack(caller_, true);
        record.address = address;
        record.bytes = bytes;
        record.object = allocated;
        record.extra = reserved;
        emit(record);
    }

    HookId function_;
    std::int8_t device_;
    const void* caller_;
};

// Whether this report is to be recorded now. A process that has not used the driver is left alone; one whose
// allocator reports has, though perhaps past the shim, or before it forked.
bool may_record(ThreadState& thread, c10::Device device, const void* frame, const void* caller) {
    if (device.type != kCuda || recording_off()) return false;
    if (!attached() && !(find_driver() && attach())) return false;
    if (!thread.inside()) return true;
    // In a signal handler, perhaps while a record is being made.
    if (!left_by_jump(thread, frame)) {
        if (!in_driver(caller) && !in_other(caller)) count_untold();
        return false;
    }
    count_untold();
    forget_call(thread);
    thread.gate = thread.gate_when_idle;
    return true;
}

// `frame`: of the wrapper, which returns to `caller`. Returns the real function; nullptr: there is none.
template <typename Event>
[[gnu::always_inline]] inline void* report(Row row, HookId function, c10::Device device, const void* frame,
                                           const void* caller, Event event) {
    const int saved = errno;
    ThreadState& thread = thread_state;
    if (may_record(thread, device, frame, caller)) {
        enter(thread, frame, caller);
        BlockReport told(function, device.index, caller);
        event(told);
        leave(thread);
    }
    void* real = real_of(row, caller);
    errno = saved;
    return real;
}

}  // namespace

}  // namespace fragscope::interpose

namespace c10 {

using namespace fragscope::interpose;

// The record comes first, so that the real function's exceptions meet nothing of ours on their way.
#define FRAMEWORK(function, symbol, parameters, arguments, event)                                 \
    void function parameters {                                                                    \
        void* real = report(                                                                      \
            kRow_##function, HookId::k_##function, device, __builtin_frame_address(0),            \
            __builtin_return_address(0), [=](BlockReport & told) __attribute__((always_inline)) { \
                told.event;                                                                       \
            });                                                                                   \
        if (real != nullptr) return reinterpret_cast<decltype(&function)>(real) arguments;        \
    }
#include "interpose/frameworks.def"

}  // namespace c10

namespace fragscope::interpose {

namespace {

const void* const kWrappers[] = {
#define FRAMEWORK(function, symbol, parameters, arguments, event) \
    reinterpret_cast<const void*>(&c10::function),
#include "interpose/frameworks.def"
};
static_assert(sizeof kWrappers / sizeof kWrappers[0] == kStreamRow);

const void* wrapper_of(std::uint32_t row) { return row == kStreamRow ? stream_wrapper() : kWrappers[row]; }

std::uint32_t row_of(const char* name) {
    std::uint32_t row = 0;
    while (row < kFrameworkRows && std::strcmp(kSymbols[row].name, name) != 0) ++row;
    return row;
}

}  // namespace

bool is_framework_row(const char* name) { return row_of(name) != kFrameworkRows; }

bool is_framework_wrapper(const void* address) {
    for (std::uint32_t row = 0; row < kFrameworkRows; ++row)
        if (wrapper_of(row) == address) return true;
    return false;
}

void* substitute_framework(const char* name, void* found) {
    const std::uint32_t row = row_of(name);
    if (row == kFrameworkRows || found == nullptr) return found;
    const Reached reached = find_real(row, 0);
    return reached.only_one && reached.function == found ? const_cast<void*>(wrapper_of(row)) : found;
}

}  // namespace fragscope::interpose
