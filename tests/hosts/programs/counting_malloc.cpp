// A preloaded library that stands in for malloc, as allocators and their checkers do: it counts, and looks for the function
// that it replaces by dlsym(RTLD_NEXT, …), from inside of malloc, which may itself be inside of dlsym. What is freed is not
// used again: programs here are short.
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr std::size_t kArena = std::size_t{1} << 30;  // address space; pages are taken as they are touched
constexpr std::size_t kHeader = 16;                   // before each block: its size

std::atomic<unsigned long> calls{0};
std::atomic<char*> arena{nullptr};
std::atomic<std::size_t> used{0};
std::atomic<bool> looked{false};

void* take(std::size_t bytes, std::size_t alignment) {
    ++calls;
    char* base = arena.load();
    if (base == nullptr) {
        void* made = mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED) return nullptr;
        if (!arena.compare_exchange_strong(base, static_cast<char*>(made)))
            munmap(made, kArena);
        else
            base = static_cast<char*>(made);
    }
    if (!looked.exchange(true)) static_cast<void>(dlsym(RTLD_NEXT, "malloc"));
    if (alignment < kHeader) alignment = kHeader;
    if (bytes > kArena / 2) {
        errno = ENOMEM;
        return nullptr;
    }
    const std::size_t whole = (bytes + alignment + kHeader + 15) & ~std::size_t{15};
    const std::size_t at = used.fetch_add(whole);
    if (at + whole > kArena) {
        errno = ENOMEM;
        return nullptr;
    }
    auto block = (reinterpret_cast<std::uintptr_t>(base) + at + kHeader + alignment - 1) & ~(alignment - 1);
    std::memcpy(reinterpret_cast<void*>(block - kHeader), &bytes, sizeof bytes);
    return reinterpret_cast<void*>(block);
}

std::size_t size_of(const void* block) {
    std::size_t bytes = 0;
    std::memcpy(&bytes, static_cast<const char*>(block) - kHeader, sizeof bytes);
    return bytes;
}

bool is_ours(const void* block) {
    const char* base = arena.load();
    return base != nullptr && block >= base && block < base + kArena;
}

}  // namespace

extern "C" {
unsigned long counted_calls() { return calls; }

void* malloc(std::size_t bytes) noexcept { return take(bytes, kHeader); }
void* calloc(std::size_t count, std::size_t bytes) noexcept {
    return bytes != 0 && count > kArena / bytes ? nullptr : take(count * bytes, kHeader);  // never used before: zeros
}
void* realloc(void* block, std::size_t bytes) noexcept {
    void* moved = take(bytes, kHeader);
    // A block of the loader's, from before there was a malloc, has no size that is known here: what it takes is readable.
    if (moved != nullptr && block != nullptr)
        std::memcpy(moved, block, is_ours(block) && size_of(block) < bytes ? size_of(block) : bytes);
    return moved;
}
void free(void*) noexcept {}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept { return take(bytes, alignment); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept { return take(bytes, alignment); }
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) noexcept {
    *out = take(bytes, alignment);
    return *out != nullptr ? 0 : ENOMEM;
}
std::size_t malloc_usable_size(void* block) noexcept { return block != nullptr ? size_of(block) : 0; }
}
