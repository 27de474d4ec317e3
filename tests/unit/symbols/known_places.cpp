// A program that says where it is: for some calls in it, the address behind the call (less what the loader
// moved the program by), the functions around it and their lines, as the compiler knew them. The test of the
// symbolizer holds its answers against this.
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

std::uintptr_t own_bias = 0;

int take_first(dl_phdr_info* object, std::size_t, void*) {
    own_bias = object->dlpi_addr;
    return 1;
}

}  // namespace

namespace known {

__attribute__((noinline)) void note(const char* function, int line, const char* around, int line_around) {
    const auto behind = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) - own_bias;
    std::printf("%zx %s %d %s %d\n", behind, function, line, around, line_around);
}

static inline __attribute__((always_inline)) void inner(const char* around, int line_around) {
    note("known::inner", __LINE__, around, line_around);
    asm volatile("" ::: "memory");
}

struct Shape {
    __attribute__((noinline)) void outer(int) {
        inner("known::Shape::outer", __LINE__);
        asm volatile("" ::: "memory");
    }
};

__attribute__((noinline)) void plain() {
    note("known::plain", __LINE__, "-", 0);
    asm volatile("" ::: "memory");
}

[[noreturn]] __attribute__((noinline)) void note_and_leave(const char* function, int line) {
    const auto behind = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) - own_bias;
    std::printf("%zx %s %d - 0\n", behind, function, line);
    std::exit(0);
}

// Its call is its last instruction: the address behind it belongs to what follows.
__attribute__((noinline)) void last() { note_and_leave("known::last", __LINE__); }

}  // namespace known

int main(int argc, char**) {
    dl_iterate_phdr(take_first, nullptr);
    known::plain();
    known::Shape{}.outer(argc);
    known::last();
}
