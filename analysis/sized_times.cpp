#include "analysis/sized_times.h"

#include <fmt/format.h>

#include <bit>
#include <string_view>

#include "analysis/quantity.h"
#include "analysis/request.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

std::optional<TimedCall> timed_call(Kind kind) {
    switch (kind) {
        case Kind::kLinearAcquired:
            return TimedCall::kAllocate;
        case Kind::kLinearReleased:
            return TimedCall::kFree;
        case Kind::kReserved:
            return TimedCall::kReserve;
        case Kind::kReservationFreed:
            return TimedCall::kFreeAddresses;
        case Kind::kHandleCreated:
            return TimedCall::kCreate;
        case Kind::kHandleReleased:
            return TimedCall::kRelease;
        case Kind::kMapped:
            return TimedCall::kMap;
        case Kind::kUnmapped:
            return TimedCall::kUnmap;
        case Kind::kAccessSet:
            return TimedCall::kSetAccess;
        case Kind::kPoolAcquired:
            return TimedCall::kPoolAllocate;
        case Kind::kPoolReleased:
            return TimedCall::kPoolFree;
        case Kind::kPoolTrimmed:
            return TimedCall::kPoolTrim;
        case Kind::kSynchronized:
            return TimedCall::kSynchronize;
        default:
            return std::nullopt;
    }
}

bool copies(std::string_view function) {
    return function.starts_with("cuMemcpy") || function.starts_with("cuMemset");
}

}  // namespace

const char* call_name(TimedCall call) {
    static constexpr std::array<const char*, kTimedCalls> kNames = {
        "cuMemAlloc",     "cuMemFree",       "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",
        "cuMemRelease",   "cuMemMap",        "cuMemUnmap",          "cuMemSetAccess",   "cuMemAllocAsync",
        "cuMemFreeAsync", "cuMemPoolTrimTo", "synchronisation",     "copy or memset"};
    return kNames.at(static_cast<std::size_t>(call));
}

bool has_size(TimedCall call) {
    switch (call) {
        case TimedCall::kFree:
        case TimedCall::kRelease:
        case TimedCall::kPoolFree:
        case TimedCall::kPoolTrim:
        case TimedCall::kSynchronize:
        case TimedCall::kCopy:
            return false;
        default:
            return true;
    }
}

SizedTimesWatch::SizedTimesWatch(const Trace& trace, int device) : device_(device) {
    for (const std::string& function : trace.functions) copying_.push_back(copies(function));
}

void SizedTimesWatch::add(const Event& event) {
    // No call takes no time: zero stands for a duration that was not taken.
    if (event.duration_ns == 0 || event.failed()) return;
    if (event.has(wire::kByShim) || event.has(wire::kContinued) || event.has(wire::kCaptured)) return;
    // A handle's memory may lie elsewhere than the current context's device, and host memory is no
    // backing of it.
    if (event.kind == Kind::kHandleCreated ? device_of_call(event) != device_
                                           : event.device != device_ && event.device != kNoDevice)
        return;
    std::optional<TimedCall> call = timed_call(event.kind);
    if (!call && event.kind == Kind::kCalled && event.function.value < copying_.size() &&
        copying_[event.function.value]) {
        call = TimedCall::kCopy;
    }
    if (call) times_.add(*call, event.bytes.value, event.duration_ns);
}

const DurationHistogram& SizedTimes::at(TimedCall call, std::size_t size_class) const {
    return histograms_.at(static_cast<std::size_t>(call) * kClasses + size_class);
}

void SizedTimes::add(TimedCall call, std::uint64_t bytes, std::uint64_t duration_ns) {
    if (histograms_.empty()) histograms_.resize(kTimedCalls * kClasses);
    const std::size_t size_class = has_size(call) ? static_cast<std::size_t>(std::bit_width(bytes)) : 0;
    histograms_[static_cast<std::size_t>(call) * kClasses + size_class].add(duration_ns);
}

report::SizedTimes SizedTimes::message(TimedCall call, std::size_t size_class) const {
    const DurationHistogram& durations = at(call, size_class);
    report::SizedTimes out;
    out.set_call(call_name(call));
    if (has_size(call) && size_class != 0) {
        const std::uint64_t from = std::uint64_t{1} << (size_class - 1);
        out.set_sizes(size_class == 64
                          ? fmt::format("{} and more", in_words(from))
                          : fmt::format("{} to less than {}", in_words(from), in_words(from * 2)));
    }
    out.set_count(durations.count());
    out.set_least_ns(durations.least());
    out.set_p10_ns(durations.quantile(0.1));
    out.set_median_ns(durations.quantile(0.5));
    out.set_p90_ns(durations.quantile(0.9));
    out.set_p99_ns(durations.quantile(0.99));
    out.set_max_ns(durations.largest());
    return out;
}

std::optional<report::SizedTimes> SizedTimes::times(TimedCall call, std::uint64_t bytes) const {
    if (histograms_.empty()) return std::nullopt;
    const std::size_t wanted = has_size(call) ? static_cast<std::size_t>(std::bit_width(bytes)) : 0;
    for (std::size_t distance = 0; distance < kClasses; ++distance) {
        // Of two that are equally near, the larger sizes: never a cost of less work than is asked about.
        for (const bool above : {true, false}) {
            if (above ? wanted + distance >= kClasses : distance > wanted) continue;
            const std::size_t size_class = above ? wanted + distance : wanted - distance;
            if (at(call, size_class).count() == 0) continue;
            report::SizedTimes out = message(call, size_class);
            out.set_other_sizes(distance != 0);
            return out;
        }
        if (!has_size(call)) break;
    }
    return std::nullopt;
}

std::vector<report::SizedTimes> SizedTimes::all() const {
    std::vector<report::SizedTimes> out;
    if (histograms_.empty()) return out;
    for (std::size_t call = 0; call < kTimedCalls; ++call) {
        for (std::size_t size_class = 0; size_class < kClasses; ++size_class) {
            if (at(static_cast<TimedCall>(call), size_class).count() != 0)
                out.push_back(message(static_cast<TimedCall>(call), size_class));
        }
    }
    return out;
}

}  // namespace fragscope::analysis
