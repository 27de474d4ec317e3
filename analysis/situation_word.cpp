// What the driver, or the program itself, said of the device at a situation's moment.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/kinds.h"
#include "analysis/situation_parts.h"

namespace fragscope::analysis::situation_parts {

using wire::Kind;

// Why there is no word of the driver on the device at the failure.
std::string why_not_asked(const Situation& s) {
    constexpr char kOnly[] = ", and numbers of other moments are not used";
    const FailureSnapshot& snapshot = s.snapshot;
    if (!snapshot.complete) return std::string("the driver was not asked right after this failure") + kOnly;
    if (snapshot.captured) {
        return std::string(
                   "a stream capture was running in the process, and the driver is not asked during one") +
               kOnly;
    }
    if (!snapshot.devices.empty() && !snapshot.devices.contains(s.request.device)) {
        return "right after this failure the driver spoke of another device: the one whose context was "
               "current";
    }
    if (snapshot.no_context)
        return std::string("no context was current on the thread, so no device could be asked") + kOnly;
    return std::string("the driver gave no answer right after this failure") + kOnly;
}

// PyTorch asks for the device's free memory itself before it gives up: after the driver's refusal (`after`),
// on the same thread.
void ask_the_program(FailureSnapshot& snapshot, const EventLog& events, std::size_t gave_up,
                     std::size_t after) {
    const std::int32_t thread = events[gave_up].thread;
    for (std::size_t i = gave_up; i-- > 0;) {
        const Event& event = events[i];
        if (i == after) return;
        if (event.thread != thread || event.has(wire::kByShim)) continue;
        if (event.kind == Kind::kBlockAcquired || event.kind == Kind::kBlockReleased ||
            event.kind == Kind::kBlockRefused)
            return;
        if (event.kind != Kind::kDeviceMemory || event.failed()) continue;
        snapshot.by_program = true;
        snapshot.devices[event.device] = {event.address.value, event.bytes.value, i};
        snapshot.moment = after < gave_up ? i : gave_up;
        return;
    }
}

void word_of_the_device(Situation& s) {
    const trace::Device* device = device_of(*s.trace, s.failure.process, s.request.device);
    const auto said = s.snapshot.devices.find(s.request.device);
    if (said != s.snapshot.devices.end()) {
        const std::string when = s.snapshot.by_program && !s.hypothetical
                                     ? "which the framework's allocator asked for before it gave up"
                                     : s.when;
        const std::string whose =
            s.device_of_snapshot
                ? "; the call names no device: this is the one that its own snapshot speaks of"
                : "";
        s.capacity =
            said->second.total != 0
                ? Quantity::measured(report::Quantity::capacity, said->second.total, s.physical,
                                     fmt::format("the total of cuMemGetInfo {}{}", when, whose))
                : Quantity::unknown(report::Quantity::capacity, s.physical, "the trace does not say");
        s.device_free =
            Quantity::measured(report::Quantity::device_free, said->second.free, s.physical,
                               fmt::format("cuMemGetInfo {}: held by nobody on the device{}", when, whose));
        if (s.said_between) {
            s.device_free = Quantity::bounded(
                report::Quantity::device_free, *s.said_between, s.physical,
                s.device_free.reason() +
                    "; calls of other threads that take or give back memory were under way meanwhile");
        }
    } else {
        s.capacity =
            device != nullptr && device->has_capacity_bytes()
                ? Quantity::measured(report::Quantity::capacity, device->capacity_bytes(), s.physical,
                                     capacity_source(*s.trace))
                : Quantity::unknown(report::Quantity::capacity, s.physical, "the trace does not say");
        s.device_free = Quantity::unknown(report::Quantity::device_free, s.physical, s.not_asked);
    }
    // What other threads acquired or released between the failure and the driver's answer.
    std::uint64_t more = 0;
    bool changed = false;
    bool unstated = false;
    const auto& events = s.trace->events[s.failure.process.value];
    for (std::size_t i = s.place.after; i < s.snapshot.moment; ++i) {
        const Event& event = events[i];
        if (event.failed() || event.has(wire::kSnapshot)) continue;
        if (takes_unstated(event.kind)) {
            unstated = true;
        } else if (acquires(event.kind)) {
            const std::uint64_t taken = round_up(event.bytes.value, s.page);
            more += std::min(taken, UINT64_MAX - more);
        }
        // How much a release gave back is not in its record: before it, nothing at all may have been free.
        if (releases(event.kind)) changed = true;
    }
    s.free_then = s.device_free;
    if (s.device_free.known() && (more != 0 || changed || unstated)) {
        Interval then =
            Interval{changed ? 0 : *s.device_free.low(), *s.device_free.high()} + Interval{0, more};
        if (unstated) then.high = s.capacity.high();
        s.free_then =
            Quantity::bounded(report::Quantity::device_free, then, s.physical,
                              "other threads acquired or released memory between the failure and the "
                              "driver's answer");
    }
}

}  // namespace fragscope::analysis::situation_parts
