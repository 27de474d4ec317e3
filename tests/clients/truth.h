// What the processes of one simulated device held at a moment, by the driver's own ledger.
//
// The lines' times are those at which the device's pages changed, on the clock of the trace. Between two
// moments an amount is given as the range of its values then: a single one wherever nothing happened.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/soak/ledger.h"

namespace fragscope::clients {

// By how much a time of the trace may be wrong, in nanoseconds (FORMAT.md).
inline constexpr std::uint64_t kClockError = 1000;

// Device memory by what it is for. Everything that the ledger charges belongs to one of them.
enum class Column : std::uint8_t { kHandles, kLinear, kArrays, kPools, kGraphs, kOverhead, kCount };
// Kept beside: what charges nothing.
enum class Count : std::uint8_t { kReserved, kMapped, kRequested, kPoolLive, kCount };

inline constexpr auto kColumns = static_cast<std::size_t>(Column::kCount);
inline constexpr auto kCounts = static_cast<std::size_t>(Count::kCount);
// The values of an amount that were possible.
struct Range {
    std::int64_t low = 0;
    std::int64_t high = 0;
    bool single() const { return low == high; }
};
inline Range operator+(const Range& a, const Range& b) { return {a.low + b.low, a.high + b.high}; }

// What one process held on one device, or (device -1) in its address space.
struct Held {
    std::array<Range, kColumns> charged;
    std::array<Range, kCounts> counts;
    Range attributed;  // all columns but the overhead, at one time
    Range all;
};

class Truth {
  public:
    // Not empty: a line that it does not know how to book.
    std::string build(const std::vector<soak::Line>& lines);
    // Between two moments of the trace.
    Held held(std::int32_t pid, int device, std::uint64_t from_ns, std::uint64_t to_ns) const;
    const std::vector<std::int32_t>& pids() const { return pids_; }
    // Whether a process was ever charged for it.
    bool uses(std::int32_t pid, Column column) const;

  private:
    struct Point {
        std::uint64_t time_ns = 0;
        std::array<std::int64_t, kColumns> charged{};
        std::array<std::int64_t, kCounts> counts{};
    };
    std::map<std::pair<std::int32_t, int>, std::vector<Point>> points_;
    std::vector<std::int32_t> pids_;
    std::map<std::int32_t, std::array<bool, kColumns>> used_;
};

}  // namespace fragscope::clients
