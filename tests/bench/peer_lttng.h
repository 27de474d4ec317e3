// LTTng-UST's description of one tracepoint. Read several times by LTTng's own headers, hence no #pragma once.
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER fragscope_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "peer_lttng.h"

#if !defined(FRAGSCOPE_PEER_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define FRAGSCOPE_PEER_LTTNG_H

#include <lttng/tracepoint.h>

#include "peers.h"

LTTNG_UST_TRACEPOINT_EVENT(
    fragscope_bench, call, LTTNG_UST_TP_ARGS(const struct bench_call*, c),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, start_ns, c->start_ns)
                            lttng_ust_field_integer(uint64_t, duration_ns, c->duration_ns)
                                lttng_ust_field_integer_hex(uint64_t, address, c->address)
                                    lttng_ust_field_integer(uint64_t, bytes, c->bytes)
                                        lttng_ust_field_integer_hex(uint64_t, object, c->object)
                                            lttng_ust_field_integer_hex(uint64_t, extra, c->extra)
                                                lttng_ust_field_integer(uint32_t, function, c->function)
                                                    lttng_ust_field_integer(uint32_t, stack, c->stack)
                                                        lttng_ust_field_integer(int32_t, thread, c->thread)
                                                            lttng_ust_field_integer(int32_t, result, c->result)))

#endif

#include <lttng/tracepoint-event.h>
