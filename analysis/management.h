// What the driver's management library (NVML) told the collector, beside what the driver and the records say
// of the same devices. Each keeps its own moment: differences are shown between them, and nothing is made one
// number of both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/trace.h"
#include "proto/report.pb.h"

namespace fragscope::analysis {

// For a report: of each device that the trace's processes saw the first reading, the one with most in use and
// the last. Nothing where the trace does not say whether the library was asked, or it was not to be asked.
std::optional<report::Management> management_of(const Trace& trace);

// For a failure at `time_ns` (CLOCK_MONOTONIC) on a device: the reading nearest in time, with its distance.
// Nothing where there is none of this device.
std::optional<report::Management> management_at(const Trace& trace, const std::string& device,
                                                std::uint64_t time_ns);

}  // namespace fragscope::analysis
