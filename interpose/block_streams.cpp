#include "interpose/block_streams.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "interpose/emit.h"
#include "interpose/frameworks.h"
#include "interpose/modules.h"
#include "interpose/state.h"
#include "interpose/unwind.h"

namespace c10::cuda {

// c10/cuda/CUDAStream.h; only what its name is made of.
class CUDAStream {
  public:
    [[gnu::visibility("default")]] CUstream stream() const;
};

}  // namespace c10::cuda

namespace fragscope::interpose {

namespace {

using StreamFunction = CUstream (*)(const void*);

// The real function, if its file stays loaded, and the bounds of that file, which are stored first.
constinit std::atomic<StreamFunction> stream_function{nullptr};
constinit std::atomic<std::uintptr_t> library_begin{0}, library_bytes{0};

bool in_library(std::uintptr_t address) {
    return address - library_begin.load(std::memory_order_relaxed) <
           library_bytes.load(std::memory_order_relaxed);
}

[[gnu::noinline, gnu::cold]] StreamFunction find_stream_function(const void* caller) {
    const int saved = errno;
    void* found = real_of(kStreamRow, caller);
    const auto function = reinterpret_cast<StreamFunction>(found);
    const std::uint32_t number = found != nullptr ? module_at(reinterpret_cast<std::uintptr_t>(found)) : 0;
    // Otherwise it is looked for each time, and no streams are told.
    if (number != 0 && module(number).permanent) {
        library_begin.store(module(number).begin, std::memory_order_relaxed);
        library_bytes.store(module(number).end - module(number).begin, std::memory_order_relaxed);
        stream_function.store(function, std::memory_order_release);
    }
    errno = saved;
    return function;
}

struct Note {
    std::uintptr_t sp = 0;  // of the caller, when stream() had returned to it; 0: nothing is kept
    std::uintptr_t pc = 0;  // where it returned to
    std::uint64_t stream = 0;
    std::uint64_t told = 0;     // what this thread's last kBlockStream said, of `device`,
    std::uint32_t told_by = 0;  // in this attachment
    std::uint8_t device = 0;
};
constinit thread_local Note note __attribute__((tls_model("initial-exec")));

// Pairs of places that are known to be in one function, by their distances from the library's beginning.
constexpr std::uint32_t kPairs = 64;
constinit std::atomic<std::uint64_t> known_pairs[kPairs];

bool same_function(std::uintptr_t a, std::uintptr_t b) {
    const std::uintptr_t begin = library_begin.load(std::memory_order_relaxed);
    const std::uint64_t key = ((a - begin) << 32) | ((b - begin) & 0xffffffffu);
    std::atomic<std::uint64_t>& known =
        known_pairs[(key * 0x9e3779b97f4a7c15u) >> (64 - __builtin_ctz(kPairs))];
    if (known.load(std::memory_order_relaxed) == key) return true;
    const std::uint32_t number = module_at(a - 1);
    if (number == 0) return false;
    const UnwindTables& tables = module(number).tables;
    const std::uintptr_t function = function_begin(tables, a - 1);
    if (function == 0 || function != function_begin(tables, b - 1)) return false;
    known.store(key, std::memory_order_relaxed);
    return true;
}

// Whether what is kept was asked by a call that is under way at `sp`.
bool holds(const Note& kept, std::uintptr_t sp) {
    constexpr std::uintptr_t kMostBetween = 65536;
    std::uintptr_t returns_to = 0;
    return kept.sp > sp && kept.sp - sp < kMostBetween &&
           word_on_stack(sp, kept.sp - sizeof(std::uintptr_t), returns_to) && in_library(returns_to) &&
           same_function(kept.pc, returns_to);
}

void keep(std::uintptr_t sp, const void* pc, CUstream stream) {
    Note& kept = note;
    // What the allocator asks further inwards, for ends of its own, is not for whom it was called.
    if (kept.sp > sp && attached()) {
        const int saved = errno;
        const bool under_way = holds(kept, sp);
        errno = saved;
        if (under_way) return;
    }
    kept.sp = sp;
    kept.pc = reinterpret_cast<std::uintptr_t>(pc);
    kept.stream = reinterpret_cast<std::uint64_t>(stream);
}

}  // namespace

void tell_stream(std::uint8_t device) {
    Note& kept = note;
    if (device == wire::kDeviceUnknown) return;
    const auto sp = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::uint64_t stream = kept.sp != 0 && holds(kept, sp) ? kept.stream : wire::kStreamNotTold;
    kept.sp = 0;
    const std::uint32_t attachment = generation();
    if (kept.told_by == attachment && kept.device == device && kept.told == stream) return;
    if (kept.told_by != attachment && stream == wire::kStreamNotTold) return;
    constexpr auto kFunction = static_cast<std::uint16_t>(HookId::k_stream);
    // Whether this one is told will be seen, and then what stands there until the next one is told.
    kept.told_by = attachment;
    kept.device = wire::kDeviceUnknown;
    wire::Record* slot = open_record(kFunction, Kind::kBlockStream, 0, 0);
    if (slot == nullptr) return;
    *slot = {};
    slot->sequence = next_sequence();
    slot->start = now();
    slot->function = kFunction;
    slot->kind = Kind::kBlockStream;
    slot->device = device;
    slot->object = stream;
    thread_state.ring.commit();
    kept.told = stream;
    kept.device = device;
}

const void* stream_wrapper() {
    // The Itanium C++ ABI: a pointer to a member function begins with the function's address.
    const auto member = &c10::cuda::CUDAStream::stream;
    const void* address = nullptr;
    std::memcpy(&address, &member, sizeof address);
    return address;
}

}  // namespace fragscope::interpose

namespace c10::cuda {

using namespace fragscope::interpose;

// Programs come here with each kernel that they launch.
CUstream CUDAStream::stream() const {
    const void* caller = __builtin_return_address(0);
    StreamFunction real = stream_function.load(std::memory_order_acquire);
    if (real == nullptr) [[unlikely]]
        real = find_stream_function(caller);
    if (real == nullptr) [[unlikely]]
        return nullptr;
    if (!in_library(reinterpret_cast<std::uintptr_t>(caller)) || recording_off()) return real(this);
    const CUstream found = real(this);
    // Where the caller's stack pointer is once this has returned.
    keep(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) + 2 * sizeof(std::uintptr_t), caller,
         found);
    return found;
}

}  // namespace c10::cuda
