// The chart of memory over time: one row of bars per quantity, all on one time axis, within the page's width.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/report.pb.h"
#include "tools/words.h"

namespace fragscope::tools {

struct ChartFrame {
    std::uint64_t duration_ns = 0;           // the axis runs from 0 to here; grown if a point lies later
    std::uint64_t capacity_bytes = 0;        // of the device; 0: not known
    std::vector<std::uint64_t> failures_ns;  // failed calls of this process, marked under the axis
};

// Addresses are drawn on a scale of their own: reservations may be many times larger than any memory. Memory
// is drawn against the device's capacity where that is known, so that bars of different quantities can be
// compared by eye. Where a quantity was not measured, its row is blank.
void draw_timeline(Page& page, const report::Timeline& timeline, const ChartFrame& frame);

}  // namespace fragscope::tools
