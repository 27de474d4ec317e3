// What a failed call asked for, and on which domain it draws: the device's physical memory, the process's
// address space, a stream-ordered pool, or something this trace does not keep books of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/quantity.h"
#include "analysis/state.h"
#include "analysis/trace.h"

namespace fragscope::analysis {

enum class Draws {
    kPhysical,      // device memory, and an address range with it
    kAddressSpace,  // cuMemAddressReserve: address space only
    kPool,          // a stream-ordered pool, which may grow from the device
    kHost,          // page-locked host memory
    kAperture,      // the window through which others reach device memory (BAR1)
    kStack,         // device memory for the stacks of a kernel that is launched: no call asks for it
    kContext,       // a context, code, a graph …: device memory of an amount that the call does not say
    kUnaccounted,   // page tables, managed memory, …: no domain that this trace keeps books of
};

struct RequestFacts {
    wire::Kind kind = wire::Kind::kNone;  // of the call; kNone: no recorded call stands behind it
    Draws draws = Draws::kUnaccounted;
    std::string domain;  // "physical", "virtual", "pool 0x…", "host"
    int device = kNoDevice;
    ObjectId pool;                // kPool only; 0: not known which
    std::uint32_t handle_types = 0;  // of cuMemCreate: CUmemAllocationHandleType, what it may be exported as
    std::uint64_t requested = 0;  // 0: the call names no size, or the trace does not tell it
    Interval needed;              // after rounding
    // Without the rounding of this very request; nothing: it is not told apart from `needed`.
    std::optional<Interval> unrounded;
    bool rounding_assumed = false;
    std::string needed_reason;
    std::uint64_t alignment = 0;    // 0: none asked for
    std::uint64_t granularity = 0;  // 0: none
    report::Request::Contiguity contiguity = report::Request::contiguity_unspecified;
    std::string contiguity_reason;
    std::string in_words;
};

// The device that the call takes memory of, as far as the call itself says.
int device_of_call(const Event& event);

// `state`: the process just before the call.
RequestFacts request_of(const Event& event, const ProcessState& state);
std::string pool_in_words(ObjectId pool);  // "pool 0x5555…"

// How stream-ordered pools grow, as public reports show it: an assumption, never a measurement of this trace.
inline constexpr std::uint64_t kPoolChunk = std::uint64_t{32} << 20;
inline constexpr std::uint64_t kPoolUnit = 512;

}  // namespace fragscope::analysis
