// The exported driver functions: one line each, out of hooks.def.
#include "interpose/observe.h"

using namespace fragscope::interpose;

#define HOOK(symbol, parameters, arguments, numbered, event)                                            \
    extern "C" CUresult CUDAAPI symbol parameters {                                                     \
        return observe<When::numbered>(                                                                 \
            HookId::k_##symbol, driver.symbol, __builtin_return_address(0),                             \
            [&](decltype(&::symbol) real) { return real arguments; }, [&](Call& call) { call.event; }); \
    }
#include "interpose/hooks.def"
