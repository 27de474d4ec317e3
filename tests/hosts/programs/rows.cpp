// Calls every function that the recorder has a row for, with arguments made from their types.
//   rows blank     on the driver of ../blank_driver.cpp: all results, all kinds of arguments
//   rows zeros     on any driver: each with nothing but zeros
//   rows alone     the same, each in a process of its own, whose end is printed
//   rows names     the names of the rows;  rows asked: of what the recorder asks by itself
// The list is the recorder's own (interpose/hooks.def), so that a new row is tested from its first day.
#include <sys/mman.h>
#include <sys/wait.h>

#include <tuple>
#include <type_traits>

#include "host.h"

namespace {

enum class Kind { kZeros, kSmall, kHuge };

constexpr std::size_t kRoom = 1024;  // no structure of cuda.h that is passed by pointer is larger
constexpr std::size_t kPage = 4096;
constexpr int kBuffers = 16;

// Each pointer argument gets the last kRoom bytes before a page that cannot be touched.
struct Buffers {
    unsigned char* end[kBuffers];
    int used = 0;
    Buffers() {
        for (auto& each : end) {
            auto* pages = static_cast<unsigned char*>(
                mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            mprotect(pages + kPage, kPage, PROT_NONE);
            each = pages + kPage;
        }
    }
    void fill(unsigned char value) {
        used = 0;
        for (auto* each : end) std::memset(each - kRoom, value, kRoom);
    }
    unsigned char* take() { return end[used++ % kBuffers] - kRoom; }
    std::uint64_t sum() const {
        std::uint64_t hash = 1469598103934665603u;
        for (int i = 0; i < used && i < kBuffers; ++i)
            for (std::size_t b = 0; b < kRoom; ++b) hash = (hash ^ (end[i] - kRoom)[b]) * 1099511628211u;
        return hash;
    }
};
Buffers buffers;

template <typename T>
T make(Kind kind) {
    T value{};
    if (kind == Kind::kZeros) return value;
    if constexpr (std::is_same_v<T, const char*>) {
        return "cuMemAlloc";
    } else if constexpr (std::is_pointer_v<T>) {
        // Handles are pointers to what nobody knows: numbers to the caller. Functions are never called by the drivers here.
        if constexpr (!std::is_function_v<std::remove_pointer_t<T>>) value = reinterpret_cast<T>(buffers.take());
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
        value = static_cast<T>(kind == Kind::kHuge ? -1 : 2);
    } else {
        if (kind == Kind::kHuge) std::memset(static_cast<void*>(&value), 0xff, sizeof value);
    }
    return value;
}

struct Row {
    const char* name;
    CUresult (*call)(Kind kind);
};

template <auto function, typename... Arguments>
CUresult call_with(CUresult (*)(Arguments...), [[maybe_unused]] Kind kind) {
    // In braces: from left to right.
    const std::tuple<Arguments...> arguments{make<Arguments>(kind)...};
    return std::apply(function, arguments);
}

const Row kRows[] = {
#define HOOK(symbol, parameters, arguments, numbered, event) \
    {#symbol, [](Kind kind) { return call_with<&::symbol>(&::symbol, kind); }},
#include "interpose/hooks.def"
};

const char* const kAsked[] = {
#define HOOK(symbol, parameters, arguments, numbered, event)
#define ASK(symbol) #symbol,
#include "interpose/hooks.def"
};

int calls_of(const Row& row, Kind kind, unsigned char fill, bool print) {
    buffers.fill(fill);
    dlopen("/no/such/library", RTLD_LAZY);
    errno = host::kErrno;
    const CUresult result = row.call(kind);
    const int after = errno;
    const bool pending = dlerror() != nullptr;
    if (print)
        std::printf("%s %d: %d errno %d dlerror %d %016llx\n", row.name, static_cast<int>(kind), static_cast<int>(result),
                    after, pending, static_cast<unsigned long long>(buffers.sum()));
    return result;
}

int blank() {
    auto set = reinterpret_cast<void (*)(int, int)>(dlsym(RTLD_DEFAULT, "blank_set"));
    if (set == nullptr) return 2;
    // Out of memory, not initialised, shutting down, no device, no context, an illegal address, and what fits nowhere.
    for (const int result : {0, 1, 2, 3, 4, 100, 201, 700, 801, 999, 123456})
        for (const int rubbish : {-1, 0x00, 0x01, 0xa5}) {
            set(result, rubbish);
            std::printf("result %d rubbish %d\n", result, rubbish);
            for (const Row& row : kRows) {
                calls_of(row, Kind::kZeros, 0, true);
                calls_of(row, Kind::kSmall, 0, true);
                // A driver that accepts a count has read so many: with huge ones, and pointers that lead nowhere inside of
                // structures, it can only refuse.
                if (result != 0) calls_of(row, Kind::kHuge, 0xff, true);
            }
        }
    return 0;
}

int alone() {
    for (const Row& row : kRows) {
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            cuInit(0);
            CUcontext context = nullptr;
            cuDevicePrimaryCtxRetain(&context, 0);
            cuCtxSetCurrent(context);
            _exit(calls_of(row, Kind::kZeros, 0, false) & 0x7f);
        }
        int status = 0;
        waitpid(child, &status, 0);
        std::printf("%s ends %x\n", row.name, static_cast<unsigned>(status));
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    const std::string what = count > 1 ? words[1] : "";
    if (what == "blank") return blank();
    if (what == "alone") return alone();
    if (what == "zeros")
        for (const Row& row : kRows) calls_of(row, Kind::kZeros, 0, true);
    else if (what == "names")
        for (const Row& row : kRows) std::printf("%s\n", row.name);
    else if (what == "asked")
        for (const char* name : kAsked) std::printf("%s\n", name);
    else
        return 2;
    return 0;
}
