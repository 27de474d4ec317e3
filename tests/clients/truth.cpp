#include "tests/clients/truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace fragscope::clients {
namespace {

using soak::Line;
using O = soak::Operation;

std::optional<Column> column_of(O operation) {
    switch (operation) {
        case O::k_create:
        case O::k_physical_free:
            return Column::kHandles;
        case O::k_linear_alloc:
        case O::k_pitch_alloc:
        case O::k_linear_free:
            return Column::kLinear;
        case O::k_array_create:
        case O::k_array_destroy:
        case O::k_mipmap_create:
        case O::k_mipmap_destroy:
            return Column::kArrays;
        case O::k_pool_grow:
        case O::k_pool_shrink:
            return Column::kPools;
        case O::k_graph_alloc:
        case O::k_graph_trim:
            return Column::kGraphs;
        case O::k_context_create:
        case O::k_context_destroy:
        case O::k_limit:
        case O::k_listener:
        case O::k_code_load:
        case O::k_code_unload:
            return Column::kOverhead;
        default:
            return std::nullopt;
    }
}

struct Counted {
    Count what;
    std::int64_t sign;
};

std::optional<Counted> count_of(O operation) {
    switch (operation) {
        case O::k_reserve:
            return Counted{Count::kReserved, 1};
        case O::k_unreserve:
            return Counted{Count::kReserved, -1};
        case O::k_map:
            return Counted{Count::kMapped, 1};
        case O::k_unmap:
            return Counted{Count::kMapped, -1};
        case O::k_linear_alloc:
            return Counted{Count::kRequested, 1};
        case O::k_linear_free:
            return Counted{Count::kRequested, -1};
        case O::k_pool_alloc:
            return Counted{Count::kPoolLive, 1};
        case O::k_pool_free:
        case O::k_pool_free_asked:
            return Counted{Count::kPoolLive, -1};
        default:
            return std::nullopt;
    }
}

void widen(Range& range, std::int64_t value, bool first) {
    range.low = first ? value : std::min(range.low, value);
    range.high = first ? value : std::max(range.high, value);
}

}  // namespace

std::string Truth::build(const std::vector<Line>& lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const Line& line = lines[i];
        const auto column = column_of(line.operation);
        const auto counted = count_of(line.operation);
        if (line.charged != 0 && !column)
            return fmt::format("ledger line {}: {} charges {} bytes, and the check does not know what for",
                               i + 1, soak::name_of(line.operation), line.charged);
        if (std::find(pids_.begin(), pids_.end(), line.pid) == pids_.end()) pids_.push_back(line.pid);
        if (!(column && line.charged != 0) && !counted) continue;
        std::vector<Point>& points = points_[{line.pid, line.device}];
        Point next = points.empty() ? Point{} : points.back();
        next.time_ns = line.time_ns;
        if (column) {
            next.charged[static_cast<std::size_t>(*column)] += line.charged;
            used_[line.pid][static_cast<std::size_t>(*column)] |= line.charged != 0;
        }
        if (counted)
            next.counts[static_cast<std::size_t>(counted->what)] +=
                counted->sign * static_cast<std::int64_t>(line.bytes);
        points.push_back(next);
    }
    return "";
}

bool Truth::uses(std::int32_t pid, Column column) const {
    const auto found = used_.find(pid);
    return found != used_.end() && found->second[static_cast<std::size_t>(column)];
}

Held Truth::held(std::int32_t pid, int device, std::uint64_t from_ns, std::uint64_t to_ns) const {
    Held out;
    const auto found = points_.find({pid, device});
    if (found == points_.end()) return out;
    const auto earlier = [](const Point& point, std::uint64_t time) { return point.time_ns < time; };
    const std::vector<Point>& points = found->second;
    auto point = std::lower_bound(points.begin(), points.end(), from_ns - kClockError, earlier);
    const auto end = std::lower_bound(point, points.end(), to_ns + kClockError, earlier);
    const Point before = point == points.begin() ? Point{} : *std::prev(point);
    const auto add = [&](const Point& at, bool first) {
        std::int64_t attributed = 0;
        for (std::size_t i = 0; i < kColumns; ++i) {
            widen(out.charged[i], at.charged[i], first);
            if (static_cast<Column>(i) != Column::kOverhead) attributed += at.charged[i];
        }
        for (std::size_t i = 0; i < kCounts; ++i) widen(out.counts[i], at.counts[i], first);
        widen(out.attributed, attributed, first);
        widen(out.all, attributed + at.charged[static_cast<std::size_t>(Column::kOverhead)], first);
    };
    add(before, true);
    for (; point != end; ++point) add(*point, false);
    return out;
}

}  // namespace fragscope::clients
