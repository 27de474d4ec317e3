// What came before and after a situation's moment and bears on it: other requests that were met or refused.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/kinds.h"
#include "analysis/situation_parts.h"

namespace fragscope::analysis::situation_parts {

using wire::Kind;

bool is_alike(const Situation& s, const Event& event) {
    // A call that names no device is compared with others that name none.
    const int device = s.device_of_snapshot ? kNoDevice : s.request.device;
    // A framework's allocator tells of what it gives out and of what it gives up in records of two kinds.
    const bool block =
        s.hypothetical && s.request.kind == Kind::kBlockRefused && event.kind == Kind::kBlockAcquired;
    if (event.kind != s.request.kind && !block) return false;
    // The address space is the process's, whichever device its call or its question names.
    return event.kind == Kind::kReserved || device_of_call(event) == device;
}

// Whether and when the same request was met later: what was given back in between is worth naming.
void look_ahead(Situation& s) {
    constexpr std::size_t kFar = 4096;  // events; further away it is another story
    if (one_handle_of_many(s)) return;
    const auto& events = s.trace->events[s.failure.process.value];
    std::optional<Event> last_release;
    const std::size_t end = std::min(events.size(), s.place.after + kFar);
    for (std::size_t i = s.place.after; i < end; ++i) {
        const Event& event = events[i];
        if (event.has(wire::kByShim) || event.has(wire::kContinued) || event.failed()) continue;
        // A trim gives back more than a synchronisation that surrounds it.
        if (releases(event.kind) && (event.kind != Kind::kSynchronized || !last_release))
            last_release = event;
        if (!is_alike(s, event)) continue;
        if (event.bytes.value < s.request.requested || s.request.requested == 0) continue;
        const std::uint64_t later = less(event.start.value, s.place.from_ns);
        const std::string when = later < 10'000       ? fmt::format("{} ns", later)
                                 : later < 10'000'000 ? fmt::format("{} µs", later / 1000)
                                                      : fmt::format("{} ms", later / 1'000'000);
        const bool named =
            last_release && last_release->function.value < s.trace->functions.size();
        s.succeeded_later =
            fmt::format("{} succeeded {} later{}.",
                        s.hypothetical ? "A request of this kind, and no smaller," : "The same request", when,
                        named ? ", after " + s.trace->functions[last_release->function.value]
                        : last_release ? ", after this process gave something back"
                                                  : ", though this process had given nothing back");
        return;
    }
}

// Whether one handle of the request's size was refused where as many bytes were granted in small ones. A
// linear request is no handle: there the linear call has to be refused again too, and not for want of
// addresses.
void look_at_trials(Situation& s) {
    using wire::ProbeMechanism;
    const std::uint64_t requested = s.request.requested;
    const auto refused = [&](ProbeMechanism mechanism) {
        return s.probes.refused(mechanism).value_or(UINT64_MAX) <= requested;
    };
    if (requested == 0 || s.request.draws != Draws::kPhysical || one_handle_of_many(s)) return;
    const bool pieces =
        refused(ProbeMechanism::kHandleMinimum) && s.probes.granted(ProbeMechanism::kStitched) >= requested;
    s.tried_in_pieces =
        pieces && (s.request.kind == Kind::kHandleCreated ||
                   (s.request.kind == Kind::kLinearAcquired && refused(ProbeMechanism::kDirect) &&
                    s.probes.granted(ProbeMechanism::kAddresses) >= requested));
}

void look_around(Situation& s, const ProcessState& state) {
    const auto& events = s.trace->events[s.failure.process.value];
    const bool lost = narrowed(s.losses, Layer::kAddresses).any();
    for (std::size_t i = lost ? 0 : s.place.before; i-- > 0;) {
        const Event& event = events[i];
        // Whatever is released may give addresses back; a stream that was synchronised, too.
        if (!event.failed() && releases(event.kind)) break;
        if (event.kind == Kind::kReserved && event.result == kOutOfMemory &&
            event.bytes.value <= s.request.requested && event.extra == 0) {
            s.reservation_failed_before = true;
            break;
        }
    }
    std::uint64_t pieces = 0;
    for (std::size_t i = s.place.after; i < events.size(); ++i) {
        const Event& event = events[i];
        if (event.has(wire::kByShim) || event.has(wire::kContinued)) continue;
        if (!event.failed() && releases(event.kind)) break;
        if (!event.failed() && is_alike(s, event)) {
            // A success of the very size shows that something else has changed: no witness any more.
            if (event.bytes.value >= s.request.requested) break;
            if (wire::location_handle_types(event.extra) == s.request.handle_types)
                pieces += std::min(event.bytes.value, UINT64_MAX - pieces);
        }
    }
    const std::uint64_t needed = s.request.needed.high.value_or(UINT64_MAX);
    s.came_in_pieces = s.request.kind == Kind::kHandleCreated && s.request.draws == Draws::kPhysical &&
                       s.device_free.known() && s.free_then.low().value_or(0) >= needed && pieces >= needed &&
                       state.largest_created(s.request.device) >= s.request.requested;
}

}  // namespace fragscope::analysis::situation_parts
