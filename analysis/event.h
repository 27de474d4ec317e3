// One event of a trace, as the analysis sees it: decoded, checked, in distinct types. What the payload fields
// mean by kind stands beside wire::Kind in proto/wire.h; the kinds are part of the trace format.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

#include "proto/wire.h"

namespace fragscope::analysis {

// A number of its own kind: two of different tags neither compare nor mix.
template <typename Tag, typename Value>
struct Distinct {
    Value value{};
    // clang-tidy takes the generated comparison with 0 for one with a null pointer.
    constexpr auto operator<=>(const Distinct&) const = default;  // NOLINT(modernize-use-nullptr)
};

using Address = Distinct<struct AddressTag, std::uint64_t>;    // device or host virtual address
using Bytes = Distinct<struct BytesTag, std::uint64_t>;        // a byte count
using Sequence = Distinct<struct SequenceTag, std::uint64_t>;  // order inside one process, from 1
using TimeNs = Distinct<struct TimeTag, std::uint64_t>;        // CLOCK_MONOTONIC of the recording machine
using ObjectId =
    Distinct<struct ObjectTag, std::uint64_t>;  // handle, pool, context, stream: the driver's own value
using FunctionId = Distinct<struct FunctionTag, std::uint32_t>;  // index into Trace::functions
using ProcessIndex = Distinct<struct ProcessTag, std::uint32_t>;

inline constexpr int kNoDevice = -1;

struct Event {
    ProcessIndex process;
    FunctionId function;
    Sequence sequence;
    TimeNs start;
    std::uint64_t duration_ns = 0;
    wire::Kind kind = wire::Kind::kNone;
    std::uint16_t result = 0;         // CUresult; 0: success
    std::uint16_t flags = 0;          // wire::Flag
    std::int16_t device = kNoDevice;  // ordinal in the process
    std::int32_t thread = 0;
    std::uint32_t stack = 0;
    Address address;
    Bytes bytes;
    ObjectId object;
    std::uint64_t extra = 0;

    bool failed() const { return result != 0; }
    bool has(wire::Flag flag) const { return (flags & flag) != 0; }
    bool operator==(const Event&) const = default;
};

}  // namespace fragscope::analysis

template <typename Tag, typename Value>
struct std::hash<fragscope::analysis::Distinct<Tag, Value>> {
    std::size_t operator()(const fragscope::analysis::Distinct<Tag, Value>& d) const noexcept {
        return std::hash<Value>{}(d.value);
    }
};
