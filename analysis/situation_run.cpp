// What the rest of the run says of requests like this one.
#include <optional>
#include <vector>

#include "analysis/failures.h"
#include "analysis/mechanism_ways.h"
#include "analysis/situation.h"

namespace fragscope::analysis {

namespace {

RequestMade request_made(const Situation& s) {
    using wire::Kind;
    // Where an allocator gave up by itself, or needs several handles, requests like it are its blocks.
    const bool blocks = s.request.kind == Kind::kBlockRefused || one_of_many_handles(s);
    const Kind kind = blocks ? Kind::kBlockAcquired : s.request.kind;
    return {kind, wanted_bytes(s), s.event ? s.event->stack : 0};
}

}  // namespace

void look_at_the_run(Situation& s, RunWatch* watch) {
    if (s.trace == nullptr) return;
    const RequestMade request = request_made(s);
    std::optional<RunWatch> own;
    if (watch == nullptr || (s.request.device != kNoDevice && !watch->follows(s.request.device, request)))
        watch =
            &own.emplace(*s.trace, s.failure.process, s.request.device, std::vector<RequestMade>{request});
    watch->finish();
    s.call_times = watch->call_times();
    if (s.request.device != kNoDevice) s.facts = watch->facts(request);
}

RunWatch watch_for(const Trace& trace, const Failure& failure) {
    const EventLog& events = trace.events[failure.process.value];
    const Event named = events[failure.index];
    Event event = named;
    if (named.kind == wire::Kind::kBlockRefused) {
        if (const auto refused = refusal_of_driver(events, failure.index)) event = events[*refused];
    }
    int device = device_of_call(event);
    if (device == kNoDevice) {
        const FailureSnapshot snapshot = snapshot_of(events, failure.index);
        if (snapshot.devices.size() == 1) device = snapshot.devices.begin()->first;
    }
    std::vector<RequestMade> likely;
    for (const wire::Kind kind : {event.kind, wire::Kind::kBlockAcquired})
        for (const std::uint64_t bytes : {event.bytes.value, named.bytes.value})
            likely.push_back({kind, bytes, event.stack});
    return {trace, failure.process, device, likely};
}

}  // namespace fragscope::analysis
