#include "analysis/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "analysis/losses.h"
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
    std::uint64_t Moment::*value;
    Layer layer;
};

// The series whose peaks are reported; the moment of each peak is on the time line whatever is thinned.
constexpr std::array<Series, 6> kSeries = {{
    {"handles", report::Quantity::charged, "VMM: sizes of live physical allocations", &Moment::handles,
     Layer::kHandles},
    {"linear", report::Quantity::requested, "linear: sizes that live cuMemAlloc blocks were asked for",
     &Moment::linear, Layer::kBlocks},
    {"pool", report::Quantity::live, "stream-ordered: sizes that live allocations were asked for",
     &Moment::pool_live, Layer::kPools},
    {"arrays", report::Quantity::requested, "arrays: texels of those that own memory", &Moment::arrays,
     Layer::kArrays},
    {"reserved", report::Quantity::address_reserved,
     "address space held by cuMemAddressReserve, of the whole process", &Moment::reserved, Layer::kAddresses},
    {"mapped", report::Quantity::mapped, "address space with physical memory of this device behind it",
     &Moment::mapped, Layer::kAddresses},
}};

std::string device_name(const Trace& trace, ProcessIndex process, int device) {
    const std::string uuid = device_uuid(trace, process, device);
    return uuid.empty() ? fmt::format("device {}", device) : uuid;
}

// What one device's line needs beside the process's state.
struct Line {
    Thinner<Moment> thinner{kTimelinePoints - kSeries.size() - 3};
    std::map<ObjectId, std::uint64_t> pool_reserved;  // last word of each pool
    std::array<Moment, kSeries.size()> peaks;
    Moment pool_peak;  // the highest that the driver named: it is asked now and then, not at every change
    Moment last;
};

report::TimelinePoint message_of(const Moment& moment) {
    report::TimelinePoint out;
    out.set_time_ns(moment.time_ns);
    out.set_sequence(moment.sequence);
    out.set_reserved_bytes(moment.reserved);
    out.set_mapped_bytes(moment.mapped);
    out.set_handle_bytes(moment.handles);
    out.set_linear_requested_bytes(moment.linear);
    out.set_pool_live_bytes(moment.pool_live);
    out.set_array_bytes(moment.arrays);
    if (moment.pool_reserved) out.set_pool_reserved_bytes(*moment.pool_reserved);
    if (moment.device_free) out.set_device_free_bytes(*moment.device_free);
    return out;
}

report::Timeline timeline_of(const Line& line, ProcessIndex process, const std::string& device) {
    std::vector<Moment> moments = line.thinner.points();
    for (std::size_t i = 0; i < kSeries.size(); ++i) {
        if (line.peaks[i].*kSeries[i].value != 0) moments.push_back(line.peaks[i]);
    }
    if (line.pool_peak.pool_reserved) moments.push_back(line.pool_peak);
    moments.push_back(line.last);
    std::stable_sort(moments.begin(), moments.end(),
                     [](const Moment& a, const Moment& b) { return a.sequence < b.sequence; });
    const auto same = [](const Moment& a, const Moment& b) { return a.sequence == b.sequence; };
    moments.erase(std::unique(moments.begin(), moments.end(), same), moments.end());
    report::Timeline out;
    out.set_process(process.value);
    out.set_device(device);
    for (const Moment& moment : moments) *out.add_points() = message_of(moment);
    return out;
}

bool moves_memory(const Event& event) {
    if (event.failed() || event.has(wire::kContinued)) return false;
    switch (event.kind) {
        case Kind::kTouched:
        case Kind::kAccessSet:
        case Kind::kSynchronized:
        case Kind::kPoolHigh:
        case Kind::kPoolAttributeSet:
        case Kind::kFailureSnapshotEnd:
            return false;
        case Kind::kArrayCreated:
        case Kind::kArrayReleased:
            return true;
        default:
            return event.kind < Kind::kDevice;
    }
}

// The driver's word on a pool names no device where the shim asked; the pool's own is known from its creation
// or binding.
bool pool_is_on(const ProcessState& state, const Event& event, int device) {
    if (event.device != kNoDevice) return event.device == device;
    const auto found = state.pools().find(event.object);
    return found != state.pools().end() && found->second.device == device;
}

void left_behind(const Trace& trace, ProcessIndex process, const ProcessState& state,
                 std::vector<report::Leak>& out) {
    Scope scope;
    scope.process = process.value;
    const Losses losses = losses_of(trace, process);
    const auto leave = [&](Layer layer, const std::string& device, const char* what, std::uint64_t count,
                           std::uint64_t bytes, Definition definition, const std::string& note) {
        if (count == 0) return;
        report::Leak leak;
        leak.set_process(process.value);
        leak.set_device(device);
        leak.set_what(what);
        leak.set_count(count);
        scope.device = device;
        const Interval interval = weakened(Interval::exactly(bytes), narrowed(losses, layer));
        *leak.mutable_bytes() =
            (interval.exact() ? Quantity::derived(definition, bytes, scope, "sum over its records")
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
    std::map<int, Count> linear, managed, pool, handles;
    state.linear().for_each([&](const Range&, const LinearBlock& block) {
        (block.kind == Kind::kManagedAcquired ? managed : linear)[block.device].add(block.requested);
    });
    state.pool_blocks().for_each(
        [&](const Range&, const PoolBlock& block) { pool[block.device].add(block.requested); });
    state.physical().for_each([&](const Physical& physical) {
        if (physical.on_device) handles[physical.device].add(physical.bytes);
    });
    const auto name = [&](int device) { return device_name(trace, process, device); };
    for (const auto& [device, c] : linear) {
        leave(Layer::kBlocks, name(device), "linear", c.count, c.bytes, report::Quantity::requested,
              "never freed");
    }
    for (const auto& [device, c] : managed) {
        leave(Layer::kBlocks, name(device), "managed", c.count, c.bytes, report::Quantity::requested,
              "never freed");
    }
    for (const auto& [device, c] : pool) {
        leave(Layer::kPools, name(device), "stream-ordered", c.count, c.bytes, report::Quantity::requested,
              "never freed");
    }
    for (const auto& [device, c] : handles) {
        leave(Layer::kHandles, name(device), "physical allocation", c.count, c.bytes,
              report::Quantity::charged, "a handle, a mapping or an array keeps it");
    }
    leave(Layer::kAddresses, "", "address reservation", state.reservations().size(),
          state.reservations().total(), report::Quantity::address_reserved, "address space, no memory");
    std::map<int, Count> arrays;
    for (const auto& [id, array] : state.arrays().all()) {
        if (array.owns_memory) arrays[array.device].add(array.texel_bytes);
    }
    for (const auto& [device, c] : arrays) {
        leave(Layer::kArrays, name(device), "array", c.count, c.bytes, report::Quantity::requested,
              "its texels; what the layout takes beyond them is not known");
    }
    std::map<std::pair<int, ForeignKind>, std::uint64_t> foreign;
    for (const auto& [address, one] : state.foreign().addresses()) ++foreign[{one.device, one.kind}];
    for (const auto& [where, count] : foreign) {
        report::Leak leak;
        leak.set_process(process.value);
        leak.set_device(where.first == kNoDevice ? "" : name(where.first));
        leak.set_what(where.second == ForeignKind::kIpc           ? "memory of another process, opened"
                      : where.second == ForeignKind::kPoolPointer ? "pool memory of another process, imported"
                                                                  : "memory of another interface, mapped");
        leak.set_count(count);
        scope.device = leak.device();
        *leak.mutable_bytes() =
            Quantity::unknown(report::Quantity::charged, scope, "its bytes belong to whoever exported it")
                .message();
        leak.set_note("it keeps the owner's memory alive");
        out.push_back(leak);
    }
    std::uint64_t pinned = 0, registered = 0;
    Count host;
    for (const auto& [address, block] : state.host()) {
        (block.registered ? registered : pinned) += 1;
        host.add(block.bytes);
    }
    leave(Layer::kHost, "", "page-locked host memory", host.count, host.bytes, report::Quantity::requested,
          fmt::format("host memory; {} allocated, {} registered", pinned, registered));
}

}  // namespace

struct RunRecorder::Lines {
    std::map<int, Line> by_device;
};

RunRecorder::RunRecorder(const Trace& trace, ProcessIndex process)
    : trace_(&trace), process_(process), lines_(std::make_unique<Lines>()) {}
RunRecorder::~RunRecorder() = default;
RunRecorder::RunRecorder(RunRecorder&&) noexcept = default;

void RunRecorder::add(const ProcessState& state, const Event& event) {
    if (!moves_memory(event)) return;
    std::map<int, Line>& lines = lines_->by_device;
    if (event.device != kNoDevice && event.kind == Kind::kDeviceMemory) lines.try_emplace(event.device);
    if (lines.size() < state.all_totals().size()) {
        for (const auto& [device, totals] : state.all_totals()) {
            if (device != kNoDevice) lines.try_emplace(device);
        }
    }
    Moment now;
    now.time_ns = since_start(*trace_, event.start);
    now.sequence = event.sequence.value;
    now.reserved = state.reservations().total();
    for (auto& [device, line] : lines) {
        const DeviceTotals& totals = state.totals(device);
        now.mapped = totals.mapped;
        now.handles = totals.handles;
        now.linear = totals.linear_requested;
        now.pool_live = totals.pool_live;
        now.arrays = totals.array_texels;
        now.pool_reserved.reset();
        now.device_free.reset();
        if (event.kind == Kind::kPoolState && pool_is_on(state, event, device)) {
            line.pool_reserved[event.object] = event.bytes.value;
            now.pool_reserved = 0;
            for (const auto& [pool, bytes] : line.pool_reserved) *now.pool_reserved += bytes;
        }
        if (event.device == device && event.kind == Kind::kDeviceMemory)
            now.device_free = event.address.value;
        for (std::size_t i = 0; i < kSeries.size(); ++i) {
            if (now.*kSeries[i].value > line.peaks[i].*kSeries[i].value) line.peaks[i] = now;
        }
        if (now.pool_reserved && *now.pool_reserved > line.pool_peak.pool_reserved.value_or(0))
            line.pool_peak = now;
        line.thinner.add(now);
        line.last = now;
    }
}

RunOfProcess RunRecorder::result(const ProcessState& state) const {
    RunOfProcess out;
    const Losses losses = losses_of(*trace_, process_);
    for (const auto& [device, line] : lines_->by_device) {
        const std::string name = device_name(*trace_, process_, device);
        out.timelines.push_back(timeline_of(line, process_, name));
        for (std::size_t i = 0; i < kSeries.size(); ++i) {
            const std::uint64_t bytes = line.peaks[i].*kSeries[i].value;
            if (bytes == 0) continue;
            Scope scope;
            scope.process = process_.value;
            scope.device = name;
            scope.domain = kSeries[i].name;
            scope.snapshot = line.peaks[i].sequence;
            scope.time_ns = line.peaks[i].time_ns;
            const Interval interval =
                weakened(Interval::exactly(bytes),
                         with_contradictions(narrowed(losses, kSeries[i].layer), state.contradictions()));
            const std::string reason = kSeries[i].reason;
            report::Peak message;
            *message.mutable_quantity() =
                (interval.exact()
                     ? Quantity::derived(kSeries[i].definition, bytes, scope, reason)
                     : Quantity::bounded(
                           kSeries[i].definition, interval, scope,
                           reason + "; records are missing, or were made before the recording began"))
                    .message();
            out.peaks.push_back(message);
        }
        if (line.pool_peak.pool_reserved) {
            Scope scope;
            scope.process = process_.value;
            scope.device = name;
            scope.domain = "pools";
            scope.snapshot = line.pool_peak.sequence;
            scope.time_ns = line.pool_peak.time_ns;
            report::Peak message;
            *message.mutable_quantity() =
                Quantity::bounded(
                    report::Quantity::charged, {line.pool_peak.pool_reserved, std::nullopt}, scope,
                    "pools: the highest sum that the driver named when it was asked; in between "
                    "it may have been higher")
                    .message();
            out.peaks.push_back(message);
        }
    }
    left_behind(*trace_, process_, state, out.left);
    return out;
}

}  // namespace fragscope::analysis
