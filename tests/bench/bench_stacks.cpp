// What a call stack costs, beside glibc's backtrace() at the same place: the shim's whole way from the
// decision to want one to its number, in a process of its own that is attached to a session. The stack was
// told before, as nearly all are. Measures; judges nothing.
#include <execinfo.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../preload/session.h"
#include "interpose/emit.h"
#include "interpose/stacks.h"
#include "interpose/state.h"

namespace fragscope::interpose {

// What emit and session need of the rest of the shim.
void announce_process() {}
void reset_process_state() { forget_names(); }

}  // namespace fragscope::interpose

using namespace fragscope;

namespace {

struct Cost {
    double stack_ns = 0, backtrace_ns = 0;
    int frames = 0;
};

std::uint64_t clock_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(time.tv_nsec);
}

template <typename Function>
double median_ns(Function&& function) {
    constexpr int kRounds = 31, kCalls = 200;
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t start = clock_ns();
        for (int i = 0; i < kCalls; ++i) function();
        rounds.push_back(static_cast<double>(clock_ns() - start) / kCalls);
    }
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    return rounds[kRounds / 2];
}

// Stands where a wrapper stands.
[[gnu::noinline]] void wrapper(Cost& out) {
    const void* caller = __builtin_return_address(0);
    void* frames[256];
    out.frames = backtrace(frames, 256) - 1;
    if (interpose::call_stack(caller, true) == 0) std::fprintf(stderr, "no stack could be taken\n");
    out.stack_ns = median_ns([caller] { interpose::call_stack(caller, true); });
    out.backtrace_ns = median_ns([&frames] { backtrace(frames, 256); });
}

volatile int sink;

[[gnu::noinline]] void deeper(Cost& out, int levels) {
    if (levels == 0)
        wrapper(out);
    else
        deeper(out, levels - 1);
    sink = levels;
}

}  // namespace

int main() {
    preload_test::Options options;
    options.ring_count = 1;
    options.stack_bytes = 1;
    preload_test::Session session(options);
    setenv(wire::kSessionVariable, session.name().c_str(), 1);
    if (!interpose::attach()) {
        std::fprintf(stderr, "cannot attach to a session\n");
        return 1;
    }
    std::printf("%-12s %14s %14s\n", "frames", "shim's stack", "backtrace()");
    for (const int levels : {4, 24}) {
        Cost cost;
        deeper(cost, levels);
        std::printf("%-12d %11.0f ns %11.0f ns\n", cost.frames, cost.stack_ns, cost.backtrace_ns);
        std::printf(
            "{\"bench\": \"bench_stacks\", \"frames\": %d, \"stack_ns\": %.1f, \"backtrace_ns\": %.1f}\n",
            cost.frames, cost.stack_ns, cost.backtrace_ns);
    }
    return 0;
}
