#include "shapes.h"

#include <alloca.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace {

// Keeps what was computed, so that frames are what they look like.
volatile int sink;

[[gnu::noinline]] void straight(Leaf leaf) {
    leaf();
    sink = 1;
}

[[gnu::noinline]] void deep(Leaf leaf, int levels) {
    if (levels == 0)
        leaf();
    else
        deep(leaf, levels - 1);
    sink = levels;
}
void ten(Leaf leaf) { deep(leaf, 10); }
void thousand(Leaf leaf) { deep(leaf, 1000); }

thread_local Leaf sort_leaf;
int compare(const void* a, const void* b) {
    if (sort_leaf != nullptr) {
        const Leaf leaf = sort_leaf;
        sort_leaf = nullptr;
        leaf();
    }
    return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}
void sorting(Leaf leaf) {
    int numbers[] = {3, 1, 2};
    sort_leaf = leaf;
    std::qsort(numbers, 3, sizeof numbers[0], compare);
    sink = numbers[0];
}

[[gnu::noinline]] void large_frame(Leaf leaf) {
    volatile char room[100000];
    room[0] = 1;
    leaf();
    sink = room[0];
}

[[gnu::noinline]] void grown_frame(Leaf leaf, std::size_t bytes) {
    auto* room = static_cast<volatile char*>(alloca(bytes));
    room[0] = 1;
    leaf();
    sink = room[0];
}
void growing(Leaf leaf) { grown_frame(leaf, 777); }

// A stack pointer that is aligned in the middle of a call with arguments on the stack: the frame is found
// through a register that is saved in it.
[[gnu::noinline]] int aligned_frame(Leaf leaf, int a, int b, int c, int d, int e, int f, int g,
                                    std::size_t bytes) {
    alignas(128) volatile char room[256];
    auto* more = static_cast<volatile char*>(alloca(bytes));
    room[0] = 1;
    more[0] = 2;
    leaf();
    return room[0] + more[0] + a + b + c + d + e + f + g;
}
void aligning(Leaf leaf) { sink = aligned_frame(leaf, 1, 2, 3, 4, 5, 6, 7, 100); }

// Registers that callers keep their own values in.
[[gnu::noinline]] void many_registers(Leaf leaf, long a, long b, long c, long d, long e) {
    for (long i = 0; i < 2; ++i) {
        a += b * c;
        b ^= a + d;
        c += e * i;
        if (i == 1) leaf();
        d -= a;
        e += b;
    }
    sink = static_cast<int>(a + b + c + d + e);
}
void registers(Leaf leaf) { many_registers(leaf, 1, 2, 3, 4, 5); }

struct AtEnd {
    Leaf leaf;
    ~AtEnd() { leaf(); }
};
[[gnu::noinline]] void thrower(int what) {
    if (what != 0) throw std::runtime_error("thrown");
    sink = what;
}
[[gnu::noinline]] void unwound(Leaf leaf) {
    const AtEnd end{leaf};
    thrower(1);
}
// While an exception passes.
void passing(Leaf leaf) {
    try {
        unwound(leaf);
    } catch (const std::exception& error) {
        sink = error.what()[0];
    }
}
// While one is handled.
void handling(Leaf leaf) {
    try {
        thrower(2);
    } catch (const std::exception& error) {
        leaf();
        sink = error.what()[0];
    }
}

thread_local Leaf signal_leaf;
void handler(int) { signal_leaf(); }
void signalled(Leaf leaf, int flags) {
    signal_leaf = leaf;
    struct sigaction action {
    }, before{};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, &before);
    raise(SIGUSR1);
    sigaction(SIGUSR1, &before, nullptr);
}
void in_signal(Leaf leaf) { signalled(leaf, 0); }
void on_signal_stack(Leaf leaf) {
    constexpr std::size_t kBytes = 256 * 1024;
    stack_t own{}, before{};
    own.ss_sp = std::malloc(kBytes);
    own.ss_size = kBytes;
    sigaltstack(&own, &before);
    signalled(leaf, SA_ONSTACK);
    sigaltstack(&before, nullptr);
    std::free(own.ss_sp);
}

const Shape kShapes[] = {
    {"straight", straight},   {"ten", ten},
    {"thousand", thousand},   {"sorting", sorting},
    {"large", large_frame},   {"growing", growing},
    {"aligning", aligning},   {"registers", registers},
    {"passing", passing},     {"handling", handling},
    {"in_signal", in_signal}, {"on_signal_stack", on_signal_stack},
    {nullptr, nullptr},
};

}  // namespace

extern "C" const Shape* all_shapes() { return kShapes; }
