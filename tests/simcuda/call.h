// The way into every exported function: settings, faults, latencies, the call log, and "not initialised".
//
// entry.cpp (generated) calls enter() with the function's number and a closure that runs impl::. When nothing
// is observed or injected and cuInit has succeeded, enter() costs one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "api.h"

namespace fragscope::sim {

extern const char* const kFunctionNames[];
extern const bool kBeforeInit[];

// Bits of driver_state.
inline constexpr std::uint32_t kInitialised = 1;    // cuInit succeeded
inline constexpr std::uint32_t kObserved = 2;       // a log, faults or latencies are set
inline constexpr std::uint32_t kForked = 4;         // this is a child of fork(): CUDA cannot be used
inline constexpr std::uint32_t kCapturing = 16;     // a stream capture is under way in some thread
inline constexpr std::uint32_t kDeinitialised = 8;  // exit() has begun and deinitialize_at_exit is on

extern std::atomic<std::uint32_t> driver_state;

// CUDA_SUCCESS to go on, otherwise the answer of the call.
CUresult begin_call(Function function);
// Logs the answer when a log is set.
void end_call(Function function, CUresult result);

// The answer of a stub.
CUresult not_supported(Function function);

// A default stream (0) as the calling thread's own stream.
inline CUstream per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

template <typename Body>
CUresult enter(Function function, Body&& body) noexcept {
    try {
        if (driver_state.load(std::memory_order_acquire) == kInitialised) [[likely]] return body();
        CUresult result = begin_call(function);
        if (result == CUDA_SUCCESS) result = body();
        end_call(function, result);
        return result;
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (...) {
        return CUDA_ERROR_UNKNOWN;
    }
}

}  // namespace fragscope::sim
