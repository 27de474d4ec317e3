// The exported driver functions: one line each, out of hooks.def. Each has one closure, which holds the
// program's arguments once: given the function to call it calls it, given a Call it tells of it.
#include <type_traits>

#include "interpose/observe.h"

using namespace fragscope::interpose;

// For a program that means the driver's own function, by a pointer into it, while its direct calls would
// reach another library's first: the wrapper once more, told to go past that library.
namespace fragscope::interpose::straight {
#define HOOK(symbol, parameters, arguments, numbered, event) \
    CUresult symbol parameters {                             \
        go_straight();                                       \
        return ::symbol arguments;                           \
    }
#include "interpose/hooks.def"
}  // namespace fragscope::interpose::straight

#define HOOK(symbol, parameters, arguments, numbered, event)                                   \
    extern "C" CUresult CUDAAPI symbol parameters {                                            \
        return observe<When::numbered>(                                                        \
            HookId::k_##symbol, next.symbol,                                                   \
            driver.symbol, [=](auto& subject) __attribute__((always_inline)) {                 \
                if constexpr (std::is_base_of_v<Call, std::remove_cvref_t<decltype(subject)>>) \
                    subject.event;                                                             \
                else                                                                           \
                    return subject arguments;                                                  \
            });                                                                                \
    }
#include "interpose/hooks.def"
