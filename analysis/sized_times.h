// Durations of the calls that give memory a backing and take it away, by kind of call and by size class: the
// ground of every cost in the comparison of mechanisms. Only calls of one device; nothing is interpolated
// between sizes, as no cost is known to grow with the size in any particular way.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/costs.h"
#include "analysis/event.h"
#include "analysis/trace.h"
#include "proto/mechanisms.pb.h"

namespace fragscope::analysis {

// The kinds that count. Copies are known only where all calls were recorded.
enum class TimedCall : std::uint8_t {
    kAllocate,       // cuMemAlloc
    kFree,           // cuMemFree
    kReserve,        // cuMemAddressReserve
    kFreeAddresses,  // cuMemAddressFree
    kCreate,         // cuMemCreate
    kRelease,        // cuMemRelease
    kMap,            // cuMemMap
    kUnmap,          // cuMemUnmap
    kSetAccess,      // cuMemSetAccess
    kPoolAllocate,   // cuMemAllocAsync, cuMemAllocFromPoolAsync
    kPoolFree,       // cuMemFreeAsync
    kPoolTrim,       // cuMemPoolTrimTo
    kSynchronize,    // of a stream, an event, or a context
    kCopy,           // copies and memsets
};
inline constexpr std::size_t kTimedCalls = 14;

const char* call_name(TimedCall call);
bool has_size(TimedCall call);  // its record names one

class SizedTimes {
  public:
    void add(TimedCall call, std::uint64_t bytes, std::uint64_t duration_ns);
    // Calls of the size class of `bytes`; where there was none, of the nearest class, and `other_sizes` says
    // so. Nothing: no such call was timed. `bytes` does not matter where the call has no size.
    std::optional<report::SizedTimes> times(TimedCall call, std::uint64_t bytes) const;
    // Everything that was timed, by call and size class.
    std::vector<report::SizedTimes> all() const;

  private:
    // Class c holds the sizes of c significant bits; 0: no size, or a size of 0.
    static constexpr std::size_t kClasses = 65;
    const DurationHistogram& at(TimedCall call, std::size_t size_class) const;
    report::SizedTimes message(TimedCall call, std::size_t size_class) const;

    std::vector<DurationHistogram> histograms_;  // empty, or kTimedCalls * kClasses
};

// Takes from a process's events the successful calls of the program with a duration, that are of the device
// or of none.
class SizedTimesWatch {
  public:
    SizedTimesWatch(const Trace& trace, int device);
    void add(const Event& event);
    const SizedTimes& times() const { return times_; }

  private:
    int device_;
    std::vector<bool> copying_;  // by FunctionId
    SizedTimes times_;
};

}  // namespace fragscope::analysis
