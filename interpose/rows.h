// The rows of hooks.def as numbers and names. cuda.h with __CUDA_API_VERSION_INTERNAL declares every exported
// variant of every function (_v2, _ptds, _ptsz, superseded ones) under its own name instead of renaming by
// macro.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <cstdint>

#if CUDA_VERSION < 13000
#error \
    "The shim is built against the headers of CUDA 13.0 or newer; programs of older CUDA versions are served by it too."
#endif

namespace fragscope::interpose {

enum class HookId : std::uint16_t {
#define HOOK(symbol, parameters, arguments, numbered, event) k_##symbol,
#include "interpose/hooks.def"
    kCount,
    // What records may be of beside calls of the driver.
    kShimMark = kCount,
    kShimRangeBegin,
    kShimRangeEnd,
    kNvtxMark,
    kNvtxRangePush,
    kNvtxRangePop,
    kNvtxRangeStart,
    kNvtxRangeEnd,
    kExit,
    kActivity,
#define FRAMEWORK(function, symbol, parameters, arguments, event) k_##function,
#define FRAMEWORK_STREAM(function, symbol) k_##function,
#include "interpose/frameworks.def"
    kNamedCount,
};
inline constexpr std::uint32_t kHookCount = static_cast<std::uint32_t>(HookId::kCount);
inline constexpr std::uint32_t kNamedCount = static_cast<std::uint32_t>(HookId::kNamedCount);

inline constexpr const char* kHookNames[] = {
#define HOOK(symbol, parameters, arguments, numbered, event) #symbol,
#include "interpose/hooks.def"
    "fragscope_mark",
    "fragscope_range_begin",
    "fragscope_range_end",
    "nvtxMark",
    "nvtxRangePush",
    "nvtxRangePop",
    "nvtxRangeStart",
    "nvtxRangeEnd",
    "exit",
    "CUPTI",
#define FRAMEWORK(function, symbol, parameters, arguments, event) "c10::" #function,
#define FRAMEWORK_STREAM(function, symbol) "c10::cuda::CUDAStream::" #function,
#include "interpose/frameworks.def"
};
static_assert(sizeof kHookNames / sizeof kHookNames[0] == kNamedCount);

constexpr std::uint32_t number(HookId id) { return static_cast<std::uint32_t>(id); }
constexpr const char* name(HookId id) { return kHookNames[number(id)]; }

}  // namespace fragscope::interpose
