// Bars of text: see words_chart.h.
#include "tools/words_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fragscope::tools {
namespace {

using report::TimelinePoint;
using Value = std::optional<std::uint64_t>;

struct Series {
    const char* name;
    bool addresses;  // drawn on the scale of addresses, not of memory
    bool lowest;     // its low points are what matters
    bool holds;      // keeps its value between two points; otherwise it is known at the points only
    Value (*value)(const TimelinePoint&);  // nullptr: Timeline.unattributed
};

constexpr std::array<Series, 9> kSeries = {{
    {"addresses reserved", true, false, true,
     [](const TimelinePoint& p) -> Value { return p.reserved_bytes(); }},
    {"addresses mapped", true, false, true, [](const TimelinePoint& p) -> Value { return p.mapped_bytes(); }},
    {"physical handles, charged", false, false, true,
     [](const TimelinePoint& p) -> Value { return p.handle_bytes(); }},
    {"plain blocks, requested", false, false, true,
     [](const TimelinePoint& p) -> Value { return p.linear_requested_bytes(); }},
    {"pool blocks, requested", false, false, true,
     [](const TimelinePoint& p) -> Value { return p.pool_live_bytes(); }},
    {"arrays, texels", false, false, true, [](const TimelinePoint& p) -> Value { return p.array_bytes(); }},
    {"pools, charged", false, false, false,
     [](const TimelinePoint& p) -> Value {
         return p.has_pool_reserved_bytes() ? Value(p.pool_reserved_bytes()) : std::nullopt;
     }},
    {"device-free memory", false, true, false,
     [](const TimelinePoint& p) -> Value {
         return p.has_device_free_bytes() ? Value(p.device_free_bytes()) : std::nullopt;
     }},
    {"explained by no record", false, false, false, nullptr},  // has points of its own
}};

constexpr std::array<const char*, 9> kBars = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                              "\u2585", "\u2586", "\u2587", "\u2588"};
constexpr std::array<const char*, 9> kAsciiBars = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};

struct Row {
    std::vector<Value> columns;
    Value extreme;  // highest, or lowest where that matters
    Value last;
};

using Points = std::vector<std::pair<std::uint64_t, Value>>;  // by time

class Plot {
  public:
    Plot(std::uint64_t duration_ns, std::size_t width)
        : duration_(std::max<std::uint64_t>(duration_ns, 1)), width_(width) {}

    std::size_t column_of(std::uint64_t time_ns) const {
        const double share = static_cast<double>(time_ns) / static_cast<double>(duration_);
        return std::min(width_ - 1, static_cast<std::size_t>(share * static_cast<double>(width_)));
    }

    // A column shows the extreme of everything that held during it.
    Row row_of(const Points& points, bool lowest, bool holds) const {
        Row row;
        row.columns.resize(width_);
        const auto merge = [lowest](Value& into, std::uint64_t value) {
            into = !into ? value : lowest ? std::min(*into, value) : std::max(*into, value);
        };
        std::size_t filled_to = 0;
        for (const auto& [time_ns, value] : points) {
            if (!value) continue;
            const std::size_t column = column_of(time_ns);
            if (holds && row.last) {
                for (std::size_t c = filled_to; c <= column; ++c) merge(row.columns[c], *row.last);
            }
            merge(row.columns[column], *value);
            merge(row.extreme, *value);
            row.last = value;
            filled_to = column + 1;
        }
        if (holds && row.last) {
            for (std::size_t c = filled_to; c < width_; ++c) merge(row.columns[c], *row.last);
        }
        return row;
    }

  private:
    std::uint64_t duration_;
    std::size_t width_;
};

Points points_of(const report::Timeline& timeline, const Series& series) {
    Points out;
    if (series.value != nullptr) {
        for (const TimelinePoint& point : timeline.points())
            out.emplace_back(point.time_ns(), series.value(point));
        return out;
    }
    // Of an interval its upper end: there was no more than this.
    for (const report::UnattributedPoint& point : timeline.unattributed()) {
        out.emplace_back(point.time_ns(), point.has_high_bytes()  ? Value(point.high_bytes())
                                          : point.has_low_bytes() ? Value(point.low_bytes())
                                                                  : std::nullopt);
    }
    return out;
}

// Anything above zero shows at least the lowest bar.
std::size_t level(std::uint64_t value, std::uint64_t full) {
    if (value == 0 || full == 0) return 0;
    const double share = std::min(1.0, static_cast<double>(value) / static_cast<double>(full));
    return 1 + std::min<std::size_t>(7, static_cast<std::size_t>(share * 8));
}

std::string bars(const Row& row, std::uint64_t full, bool utf8, bool zero_line) {
    std::string text;
    for (const Value& value : row.columns) {
        const std::size_t step = value ? level(*value, full) : 0;
        if (step == 0 && value && zero_line) {
            text += '_';  // measured, and zero
        } else {
            text += utf8 ? kBars.at(step) : kAsciiBars.at(step);
        }
    }
    return text;
}

constexpr int kPhasesDrawn = 12;
constexpr std::size_t kNameWidth = 25;
constexpr std::size_t kNumberWidth = 18;
constexpr std::size_t kFrame = 2 + kNameWidth + 2 + 1 + kNumberWidth;

void put_axis(Page& page, std::uint64_t duration, std::size_t width) {
    const std::string middle = human_duration(duration / 2);
    const std::string end = human_duration(duration);
    std::string axis(width, ' ');
    axis.replace(0, 3, "0 s");
    if (width > middle.size() + end.size() + 8) axis.replace(width / 2, middle.size(), middle);
    axis.replace(width - end.size(), end.size(), end);
    page.line(fmt::format("  {:<{}}  {}", "time since the start", kNameWidth, axis), Page::Tone::kQuiet);
}

// Its name, a line from its beginning to its end, and how often it came.
std::string phase_line(const report::Phase& phase, const Plot& plot, std::size_t width,
                       std::size_t name_width, const Style& style) {
    std::string name = printable(phase.name(), style.utf8);
    if (display_width(name) > name_width) name = wrap(name, name_width - 3).front() + "...";
    name.append(name_width - std::min(name_width, display_width(name)), ' ');
    std::string marks(width, ' ');
    const std::size_t from = plot.column_of(phase.begun_ns());
    if (phase.mark()) {
        marks[from] = '|';
    } else {
        const std::size_t to = phase.has_ended_ns() ? plot.column_of(phase.ended_ns()) : width - 1;
        for (std::size_t at = from; at <= std::max(from, to); ++at) marks[at] = '=';
    }
    const std::string times = phase.times() == 1 ? (phase.mark() ? "mark" : "")
                              : phase.mark()     ? fmt::format("{} marks", grouped(phase.times()))
                                                 : fmt::format("1 of {}", grouped(phase.times()));
    std::string line = fmt::format("  {}  {} {}", name, marks, times);
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

}  // namespace

void put_legend(Page& page) {
    if (!page.style().utf8) page.paragraph("Bars from low to full: . : - = + * % #", 2, Page::Tone::kQuiet);
}

void draw_timeline(Page& page, const report::Timeline& timeline, const ChartFrame& frame) {
    if (timeline.points().empty()) {
        page.paragraph("No points in time were recorded.", 2);
        return;
    }
    const auto page_width = static_cast<std::size_t>(std::max(page.style().width, 1));
    if (page_width < kFrame + 10) {
        page.paragraph("The page is too narrow for the chart.", 2);
        return;
    }
    std::uint64_t duration = frame.duration_ns;
    for (const TimelinePoint& point : timeline.points()) duration = std::max(duration, point.time_ns());
    const std::size_t width = page_width - kFrame;
    const Plot plot(duration, width);

    const auto put_failures = [&] {
        if (frame.failures_ns.empty()) return;
        std::string marks(width, ' ');
        for (const std::uint64_t time : frame.failures_ns) marks[plot.column_of(time)] = 'x';
        const std::string number = counted(frame.failures_ns.size(), "failure");
        page.line(fmt::format("  {:<{}}  {} {}", "failed calls", kNameWidth, marks, number),
                  Page::Tone::kBad);
    };
    std::string unused;
    for (const bool addresses : {true, false}) {
        std::vector<std::pair<const Series*, Row>> rows;
        std::uint64_t full = 0;
        for (const Series& series : kSeries) {
            if (series.addresses != addresses) continue;
            Row row = plot.row_of(points_of(timeline, series), series.lowest, series.holds);
            if (!row.extreme) {
                unused += fmt::format("{}{}: not measured", unused.empty() ? "" : "; ", series.name);
                continue;
            }
            const std::uint64_t highest =
                std::max_element(row.columns.begin(), row.columns.end())->value_or(0);
            if (highest == 0 && !series.lowest) {
                unused += fmt::format("{}{}: none", unused.empty() ? "" : "; ", series.name);
                continue;
            }
            full = std::max(full, highest);
            rows.emplace_back(&series, std::move(row));
        }
        if (rows.empty()) continue;
        const bool against_capacity = !addresses && frame.capacity_bytes >= full && frame.capacity_bytes != 0;
        if (against_capacity) full = frame.capacity_bytes;
        page.paragraph(fmt::format("{} (a full bar is {}{})", addresses ? "Virtual addresses" : "Memory",
                                   human_bytes(full), against_capacity ? ", the device's capacity" : ""),
                       2, Page::Tone::kQuiet);
        for (const auto& [series, row] : rows) {
            page.line(fmt::format("  {:<{}}  {} {:>6} {}", series->name, kNameWidth,
                                  bars(row, full, page.style().utf8, series->lowest),
                                  series->lowest ? "lowest" : "peak", human_bytes(row.extreme.value_or(0))));
        }
    }
    put_failures();
    if (!timeline.phases().empty()) {
        page.paragraph("Phases and marks (|), as the program named them", 2, Page::Tone::kQuiet);
        for (int i = 0; i < std::min(timeline.phases_size(), kPhasesDrawn); ++i)
            page.line(phase_line(timeline.phases(i), plot, width, kNameWidth, page.style()));
        if (timeline.phases_size() > kPhasesDrawn) {
            page.paragraph(
                fmt::format("and {} more: --json lists them.", timeline.phases_size() - kPhasesDrawn), 2,
                Page::Tone::kQuiet);
        }
    }
    put_axis(page, duration, width);
    put_legend(page);
    page.paragraph(
        "requested: what the program asked for; charged: what was taken for it after rounding up. Where a "
        "row "
        "is blank it was zero; device-free memory, pools (charged) and what no record explains (at most): "
        "not measured then ('_': zero).",
        2, Page::Tone::kQuiet);
    if (!unused.empty()) page.paragraph("Not drawn: " + unused + ".", 2, Page::Tone::kQuiet);
}

void draw_strips(Page& page, const std::vector<Strip>& strips, std::uint64_t duration_ns) {
    const auto page_width = static_cast<std::size_t>(std::max(page.style().width, 1));
    if (page_width < kFrame + 10) {
        page.paragraph("The page is too narrow for the chart.", 2);
        return;
    }
    std::uint64_t duration = duration_ns;
    for (const Strip& strip : strips) {
        for (const auto& [time_ns, value] : strip.points) duration = std::max(duration, time_ns);
    }
    const std::size_t width = page_width - kFrame;
    const Plot plot(duration, width);
    for (const Strip& strip : strips) {
        const Row row = plot.row_of(strip.points, false, strip.holds);
        const std::string peak = !row.extreme                   ? "not known"
                                 : strip.full == kShareIsFull ? "peak " + human_ratio(static_cast<double>(*row.extreme) /
                                                                                      static_cast<double>(kShareIsFull))
                                                              : "peak " + human_bytes(*row.extreme);
        page.line(fmt::format("  {:<{}}  {} {}", strip.name, kNameWidth,
                              bars(row, strip.full, page.style().utf8, true), peak));
    }
    put_axis(page, duration, width);
}

}  // namespace fragscope::tools
