// The chart of memory over time: one row of bars per quantity, all on one time axis, within the page's width.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
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

// One quantity over time.
struct Strip {
    std::string name;  // at most 25 columns
    std::vector<std::pair<std::uint64_t, std::optional<std::uint64_t>>> points;  // by time; nothing: not known
    std::uint64_t full = 0;  // what a full bar stands for; kShareIsFull: the values are shares of it
    bool holds = true;       // keeps its value between two points
};

inline constexpr std::uint64_t kShareIsFull = 1'000'000;

// What the bars look like, where that has to be said: once, under the last of some charts.
void put_legend(Page& page);

// A row for each, on one time axis, without the legend. '_' stands for zero, a blank for what is not known.
void draw_strips(Page& page, const std::vector<Strip>& strips, std::uint64_t duration_ns);

}  // namespace fragscope::tools
