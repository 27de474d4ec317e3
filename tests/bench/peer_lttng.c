// The LTTng-UST tracepoint that bench_shim measures; C, because LTTng's macros are.
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "peer_lttng.h"

void bench_lttng_note(const struct bench_call* call) { lttng_ust_tracepoint(fragscope_bench, call, call); }
