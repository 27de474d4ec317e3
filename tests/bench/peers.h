// The other ways of noting the same call that bench_shim measures beside the shim. Each is built only where
// its library is installed; FRAGSCOPE_BENCH_LTTNG and FRAGSCOPE_BENCH_SPDLOG say so.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What is noted of one call: 64 bytes of the same content as the shim's record.
struct bench_call {
    uint64_t start_ns;
    uint64_t duration_ns;
    uint64_t address;
    uint64_t bytes;
    uint64_t object;
    uint64_t extra;
    uint32_t function;
    uint32_t stack;
    int32_t thread;
    int32_t result;
};

void bench_lttng_note(const struct bench_call* call);

#ifdef __cplusplus
}
#endif
