#include "analysis/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "analysis/charged.h"
#include "analysis/quantity.h"
#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

struct Series {
    const char* name;
    Definition definition;
    const char* reason;
    std::uint64_t (*value)(const report::TimelinePoint&);
};

constexpr std::array<Series, 6> kSeries = {{
    {"handles", report::Quantity::charged, "VMM: sizes of live physical allocations",
     [](const report::TimelinePoint& p) { return p.handle_bytes(); }},
    {"linear", report::Quantity::requested, "linear: sizes that live cuMemAlloc blocks were asked for",
     [](const report::TimelinePoint& p) { return p.linear_requested_bytes(); }},
    {"pool", report::Quantity::live, "stream-ordered: sizes that live allocations were asked for",
     [](const report::TimelinePoint& p) { return p.pool_live_bytes(); }},
    {"reserved", report::Quantity::address_reserved, "address space held by cuMemAddressReserve, of the whole process",
     [](const report::TimelinePoint& p) { return p.reserved_bytes(); }},
    {"mapped", report::Quantity::mapped, "address space with physical memory of this device behind it",
     [](const report::TimelinePoint& p) { return p.mapped_bytes(); }},
    {"pool reserved", report::Quantity::cached, "",
     [](const report::TimelinePoint& p) { return p.pool_reserved_bytes(); }},
}};
constexpr std::size_t kPeaksReported = 5;  // the last one keeps its point, but is a sum over moments of different pools

std::uint64_t weight(const report::TimelinePoint& p) {
    return p.handle_bytes() + p.linear_requested_bytes() + std::max(p.pool_live_bytes(), p.pool_reserved_bytes());
}

std::string device_name(const Trace& trace, ProcessIndex process, int device) {
    const std::string uuid = device_uuid(trace, process, device);
    return uuid.empty() ? fmt::format("device {}", device) : uuid;
}

}  // namespace

void Thinner::take(const report::TimelinePoint& point) {
    kept_.push_back(point);
    if (kept_.size() < limit_) return;
    std::vector<report::TimelinePoint> merged;
    for (std::size_t i = 0; i + 1 < kept_.size(); i += 2) {
        merged.push_back(weight(kept_[i + 1]) >= weight(kept_[i]) ? kept_[i + 1] : kept_[i]);
    }
    if (kept_.size() % 2 == 1) merged.push_back(kept_.back());
    kept_ = std::move(merged);
    stride_ *= 2;
}

void Thinner::add(const report::TimelinePoint& point) {
    for (std::size_t i = 0; i < kSeries.size(); ++i) {
        const std::uint64_t value = kSeries[i].value(point);
        const auto [at, fresh] = peaks_.try_emplace(static_cast<int>(i), point);
        if (!fresh && value > kSeries[i].value(at->second)) at->second = point;
    }
    if (pending_ == 0 || weight(point) >= weight(pending_point_)) pending_point_ = point;
    if (++pending_ >= stride_) {
        take(pending_point_);
        pending_ = 0;
    }
}

std::vector<report::TimelinePoint> Thinner::points() const {
    std::vector<report::TimelinePoint> out = kept_;
    if (pending_ != 0) out.push_back(pending_point_);
    for (const auto& [series, point] : peaks_) {
        if (kSeries[static_cast<std::size_t>(series)].value(point) != 0) out.push_back(point);
    }
    const auto before = [](const report::TimelinePoint& a, const report::TimelinePoint& b) {
        return a.sequence() < b.sequence();
    };
    std::stable_sort(out.begin(), out.end(), before);
    out.erase(std::unique(out.begin(), out.end(),
                          [](const auto& a, const auto& b) { return a.sequence() == b.sequence(); }),
              out.end());
    return out;
}

namespace {

// What one device's line needs beside the process's state.
struct Line {
    Thinner thinner{kTimelinePoints - kSeries.size() - 1};
    std::map<ObjectId, std::uint64_t> pool_reserved;  // last word of each pool
    struct Peak {
        std::uint64_t bytes = 0;
        std::uint64_t sequence = 0;
        std::uint64_t time_ns = 0;
    };
    std::array<Peak, kPeaksReported> peaks;
};

bool moves_memory(const Event& event) {
    if (event.failed() || event.has(wire::kContinued)) return false;
    switch (event.kind) {
        case Kind::kTouched:
        case Kind::kAccessSet:
        case Kind::kSynchronized:
        case Kind::kPoolHigh:
        case Kind::kPoolAttributeSet:
        case Kind::kFailureSnapshotEnd: return false;
        default: return event.kind < Kind::kDevice;
    }
}

void left_behind(const Trace& trace, ProcessIndex process, const ProcessState& state, std::vector<report::Leak>& out) {
    Scope scope;
    scope.process = process.value;
    const Losses losses = losses_of(trace, process);
    const auto leave = [&](const std::string& device, const char* what, std::uint64_t count, std::uint64_t bytes,
                           Definition definition, const std::string& note) {
        if (count == 0) return;
        report::Leak leak;
        leak.set_process(process.value);
        leak.set_device(device);
        leak.set_what(what);
        leak.set_count(count);
        scope.device = device;
        const Interval interval = weakened(Interval::exactly(bytes), losses);
        *leak.mutable_bytes() = (interval.exact() ? Quantity::derived(definition, bytes, scope, "sum over its records")
                                                  : Quantity::bounded(definition, interval, scope, "records were lost"))
                                    .message();
        leak.set_note(note);
        out.push_back(leak);
    };
    struct Count {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        void add(std::uint64_t more) {
            ++count;
            bytes += more;
        }
    };
    std::map<int, Count> linear, managed, pool, handles, orphans;
    state.linear().for_each([&](const Range&, const LinearBlock& block) {
        (block.kind == Kind::kManagedAcquired ? managed : linear)[block.device].add(block.requested);
    });
    state.pool_blocks().for_each([&](const Range&, const PoolBlock& block) { pool[block.device].add(block.requested); });
    std::uint64_t released_but_mapped = 0;
    for (const auto& [id, physical] : state.physical()) {
        if (!physical.on_device) continue;
        handles[physical.device].add(physical.bytes);
        if (physical.mapped_bytes == 0) orphans[physical.device].add(physical.bytes);
        if (physical.references == 0) ++released_but_mapped;
    }
    const auto name = [&](int device) { return device_name(trace, process, device); };
    for (const auto& [device, c] : linear) {
        leave(name(device), "linear", c.count, c.bytes, report::Quantity::requested, "never freed");
    }
    for (const auto& [device, c] : managed) {
        leave(name(device), "managed", c.count, c.bytes, report::Quantity::requested, "never freed");
    }
    for (const auto& [device, c] : pool) {
        leave(name(device), "stream-ordered", c.count, c.bytes, report::Quantity::requested, "never freed");
    }
    for (const auto& [device, c] : handles) {
        leave(name(device), "physical allocation", c.count, c.bytes, report::Quantity::charged,
              released_but_mapped == 0 ? "a handle or a mapping keeps it"
                                       : fmt::format("{} of them only by their mappings: the handle was released",
                                                     released_but_mapped));
    }
    for (const auto& [device, c] : orphans) {
        leave(name(device), "physical allocation without a mapping", c.count, c.bytes, report::Quantity::charged,
              "counted above too; nothing can reach it");
    }
    leave("", "address reservation", state.reservations().size(), state.reservations().total(),
          report::Quantity::address_reserved, "address space, no memory");
    std::uint64_t pinned = 0, registered = 0;
    Count host;
    for (const auto& [address, block] : state.host()) {
        (block.registered ? registered : pinned) += 1;
        host.add(block.bytes);
    }
    leave("", "page-locked host memory", host.count, host.bytes, report::Quantity::requested,
          fmt::format("host memory; {} allocated, {} registered", pinned, registered));
}

}  // namespace

RunOfProcess run_of(const Trace& trace, ProcessIndex process) {
    RunOfProcess out;
    ProcessState state(pages_of(trace, process));
    std::map<int, Line> lines;
    std::set<int> devices;
    for (const Event& event : trace.events[process.value]) {
        state.apply(event);
        if (!moves_memory(event)) continue;
        for (const auto& [device, totals] : state.all_totals()) {
            if (device != kNoDevice) devices.insert(device);
        }
        if (event.device != kNoDevice && event.kind == Kind::kDeviceMemory) devices.insert(event.device);
        for (const int device : devices) {
            Line& line = lines[device];
            report::TimelinePoint point;
            const DeviceTotals& totals = state.totals(device);
            point.set_time_ns(since_start(trace, event.start));
            point.set_sequence(event.sequence.value);
            point.set_reserved_bytes(state.reservations().total());
            point.set_mapped_bytes(totals.mapped);
            point.set_handle_bytes(totals.handles);
            point.set_linear_requested_bytes(totals.linear_requested);
            point.set_pool_live_bytes(totals.pool_live);
            if (event.device == device && event.kind == Kind::kPoolState) {
                line.pool_reserved[event.object] = event.bytes.value;
                std::uint64_t sum = 0;
                for (const auto& [pool, bytes] : line.pool_reserved) sum += bytes;
                point.set_pool_reserved_bytes(sum);
            }
            if (event.device == device && event.kind == Kind::kDeviceMemory) {
                point.set_device_free_bytes(event.address.value);
            }
            for (std::size_t i = 0; i < kPeaksReported; ++i) {
                const std::uint64_t value = kSeries[i].value(point);
                if (value > line.peaks[i].bytes) line.peaks[i] = {value, point.sequence(), point.time_ns()};
            }
            line.thinner.add(point);
        }
    }
    const Losses losses = losses_of(trace, process);
    for (const auto& [device, line] : lines) {
        report::Timeline timeline;
        timeline.set_process(process.value);
        timeline.set_device(device_name(trace, process, device));
        for (const report::TimelinePoint& point : line.thinner.points()) *timeline.add_points() = point;
        out.timelines.push_back(timeline);
        for (std::size_t i = 0; i < kPeaksReported; ++i) {
            if (line.peaks[i].bytes == 0) continue;
            Scope scope;
            scope.process = process.value;
            scope.device = timeline.device();
            scope.domain = kSeries[i].name;
            scope.snapshot = line.peaks[i].sequence;
            scope.time_ns = line.peaks[i].time_ns;
            const Interval interval = weakened(Interval::exactly(line.peaks[i].bytes), losses);
            const Quantity peak =
                interval.exact()
                    ? Quantity::derived(kSeries[i].definition, line.peaks[i].bytes, scope, kSeries[i].reason)
                    : Quantity::bounded(kSeries[i].definition, interval, scope,
                                        std::string(kSeries[i].reason) + "; records were lost or losses are not known");
            report::Peak message;
            *message.mutable_quantity() = peak.message();
            out.peaks.push_back(message);
        }
    }
    left_behind(trace, process, state, out.left);
    return out;
}

}  // namespace fragscope::analysis
