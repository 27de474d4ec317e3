#include "analysis/driver_word.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/extent_map.h"
#include "analysis/kinds.h"

namespace fragscope::analysis {
namespace {

using wire::Kind;

// Calls of other threads that overlap with a question are looked for this many records around it.
constexpr std::size_t kNear = 512;

bool changes(const Event& event) {
    if (event.failed() || event.has(wire::kByShim) || event.has(wire::kCaptured)) return false;
    return acquires(event.kind) || takes_unstated(event.kind) || releases(event.kind);
}

bool is_word(const Event& event, int device) {
    return event.kind == Kind::kDeviceMemory && !event.failed() && event.device == device;
}

bool by_recorder(const Event& event) {
    return event.has(wire::kByShim) && (event.has(wire::kSample) || event.has(wire::kSnapshot));
}

std::uint64_t end_of(const Event& event) { return event.start.value + event.duration_ns; }

std::size_t between(std::size_t a, std::size_t b) { return a > b ? a - b : b - a; }

// Books count an acquisition after its call and a release before it; the device does somewhere in between.
Interval widened(const EventLog& events, const Stillness& still, std::size_t asked, std::uint64_t page) {
    const Event& question = events[asked];
    const std::uint64_t total = question.bytes.value;
    Interval out = Interval::exactly(question.address.value);
    const auto bytes_of = [&](const Event& event) {
        return round_up(event.bytes.value, std::max<std::uint64_t>(page, 1));
    };
    for (std::size_t i = still.begin; i-- > 0 && still.begin - i <= kNear;) {
        const Event& event = events[i];
        if (!changes(event) || event.thread == question.thread || end_of(event) <= question.start.value)
            continue;
        if (releases(event.kind)) out.high = std::max(total, *out.high);
        if (acquires(event.kind)) *out.low -= std::min(*out.low, bytes_of(event));
        if (takes_unstated(event.kind)) out.low = 0;
    }
    for (std::size_t i = still.end; i < events.size() && i - still.end < kNear; ++i) {
        const Event& event = events[i];
        if (!changes(event) || event.thread == question.thread || event.start.value >= end_of(question))
            continue;
        if (releases(event.kind)) out.low = 0;
        if (acquires(event.kind)) *out.high += std::min(bytes_of(event), UINT64_MAX - *out.high);
        if (takes_unstated(event.kind)) out.high = std::max(total, *out.high);
    }
    return out;
}

}  // namespace

Stillness stillness_at(const EventLog& events, std::size_t moment) {
    Stillness out{moment, moment};
    while (out.begin > 0 && !changes(events[out.begin - 1])) --out.begin;
    while (out.end < events.size() && !changes(events[out.end])) ++out.end;
    return out;
}

std::optional<DriverWord> driver_word_at(const EventLog& events, std::size_t moment, int device,
                                         std::uint64_t page) {
    const Stillness still = stillness_at(events, moment);
    struct Group {
        FailureSnapshot snapshot;
        std::size_t asked = 0;
        bool of_device = false;
    };
    std::map<std::int32_t, Group> groups;  // questions of the recorder by thread, until their end comes
    std::optional<Group> best;
    const auto offer = [&](Group&& group) {
        if (!group.of_device) return;
        if (!best || between(group.asked, moment) < between(best->asked, moment)) best = std::move(group);
    };
    for (std::size_t i = still.begin; i < still.end; ++i) {
        const Event& event = events[i];
        if (!event.has(wire::kByShim)) {
            // Questions whose end does not come next on their thread lost it: none of their numbers is used.
            groups.erase(event.thread);
            if (!is_word(event, device)) continue;
            Group own;
            own.snapshot.by_program = true;
            note_answer(own.snapshot, event, i);
            own.asked = i;
            own.of_device = true;
            offer(std::move(own));
            continue;
        }
        if (!by_recorder(event) && event.kind != Kind::kFailureSnapshotEnd) continue;
        Group& group = groups[event.thread];
        if (event.kind == Kind::kSampleEnd || event.kind == Kind::kFailureSnapshotEnd) {
            group.snapshot.pools_not_asked = event.bytes.value;
            offer(std::move(group));
            groups.erase(event.thread);
            continue;
        }
        if (event.failed()) continue;
        note_answer(group.snapshot, event, i);
        if (!is_word(event, device)) continue;
        group.asked = i;
        group.of_device = true;
    }
    if (!best) return std::nullopt;
    DriverWord out;
    out.snapshot = std::move(best->snapshot);
    out.snapshot.complete = true;
    out.snapshot.moment = moment;
    out.index = best->asked;
    out.device_free = widened(events, still, out.index, page);
    out.apart = std::any_of(events.begin() + static_cast<std::ptrdiff_t>(std::min(out.index, moment)),
                            events.begin() + static_cast<std::ptrdiff_t>(std::max(out.index, moment)),
                            [](const Event& event) { return !event.has(wire::kByShim); });
    // The program's own question is a call of it, too.
    if (out.snapshot.by_program && out.index < moment && moment - out.index == 1) out.apart = false;
    out.when = out.snapshot.by_program ? "which the program itself asked" : "which the recorder asked";
    out.when += !out.apart ? " at this moment"
                           : fmt::format(
                                 " {} this moment, with no recorded call of this process in between that "
                                 "takes or gives back device memory",
                                 out.index < moment ? "before" : "after");
    return out;
}

NearestWords nearest_words(const EventLog& events, std::size_t moment, int device) {
    NearestWords out;
    for (std::size_t i = std::min(moment, events.size()); i-- > 0 && !out.before;) {
        if (is_word(events[i], device)) out.before = events[i].sequence;
    }
    for (std::size_t i = moment; i < events.size() && !out.after; ++i) {
        if (is_word(events[i], device)) out.after = events[i].sequence;
    }
    return out;
}

}  // namespace fragscope::analysis
