// A libcuda.so.1 that knows nothing but the names: every function gives the answer that was set last, and writes rubbish
// over what it was given to write to. A driver may do all of that.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

#include <cstring>
#include <type_traits>

namespace {

int answer = 0;
int rubbish = -1;  // written to each byte; negative: nothing is written

template <typename T>
void spoil(T* to) {
    if constexpr (std::is_const_v<T> || std::is_function_v<T>)
        return;
    else if constexpr (std::is_void_v<T>)
        std::memset(to, rubbish, 8);
    else
        std::memset(static_cast<void*>(to), rubbish, sizeof(T));
}
template <typename T>
void write(T argument) {
    // What cuda.h declares and does not define is a handle, not a place to write to.
    if constexpr (std::is_pointer_v<T>) {
        using To = std::remove_pointer_t<T>;
        if constexpr (std::is_void_v<To> || requires { sizeof(To); })
            if (argument != nullptr && rubbish >= 0) spoil(argument);
    }
}
template <typename... Arguments>
CUresult give(Arguments... arguments) {
    (write(arguments), ...);
    return static_cast<CUresult>(answer);
}

}  // namespace

extern "C" {
void blank_set(int result, int byte) {
    answer = result;
    rubbish = byte;
}
#define FUNCTION(symbol, parameters, arguments) \
    CUresult CUDAAPI symbol parameters { return give arguments; }
#include "functions.def"
}
