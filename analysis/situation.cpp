#include "analysis/situation.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/limits_at.h"
#include "analysis/rest.h"
#include "analysis/situation_parts.h"

namespace fragscope::analysis {

using wire::Kind;
using namespace situation_parts;

namespace {

Place place_of(const EventLog& events, std::size_t failed, const FailureSnapshot& snapshot) {
    const Event& event = events[failed];
    const Event& last = events[std::min(snapshot.moment, events.size() - 1)];
    return {failed, failed + 1, event.start.value,
            std::max(last.start.value + last.duration_ns, event.start.value + event.duration_ns)};
}

}  // namespace

std::uint64_t since_start(const Trace& trace, TimeNs time) {
    const std::uint64_t start = trace.session.start_ns();
    return time.value > start ? time.value - start : 0;
}

namespace situation_parts {

void place_the_request(Situation& s, SessionWalk& walk, Sequence at) {
    const ProcessState& state = walk.failing();
    set_contract(s, contract_of(s.request, std::nullopt));
    s.device = device_uuid(*s.trace, s.failure.process, s.request.device);
    if (s.device.empty() && s.request.device != kNoDevice)
        s.device = fmt::format("device {}", s.request.device);
    s.page = state.page(s.request.device);
    if (const trace::Device* device = device_of(*s.trace, s.failure.process, s.request.device))
        s.recommended_granularity = device->recommended_granularity_bytes();
    s.physical.process = s.failure.process.value;
    s.physical.device = s.device;
    s.physical.domain = "physical";
    s.physical.snapshot = at.value;
    s.physical.time_ns = since_start(*s.trace, {s.place.from_ns});
    s.address = s.physical.in_domain("virtual");
    s.address.device.clear();
    s.losses = losses_of(*s.trace, s.failure.process);
    if (!s.hypothetical) s.not_asked = why_not_asked(s);
    s.contradictions = state.contradictions();
    s.books = with_contradictions(s.losses, s.contradictions);
    s.used_pools = state.used_pools();
    s.captured_allocations = state.captured_allocations();
    s.contexts = state.contexts(s.request.device);
    s.mapped = state.mappings().total();
    s.managed = state.totals(s.request.device).managed;
    s.host_pinned = state.host_pinned_bytes();
    state.physical().for_each([&](const Physical& physical) {
        if (physical.imported) s.imported += physical.bytes;
    });
    s.framework = framework_at(walk.failing_framework(), state, s.request.device, s.physical, s.losses);
    if (s.framework) name_the_domains(*s.framework, *s.trace, s.failure.process);
}

void fill_in(Situation& s, SessionWalk& walk) {
    const ProcessState& state = walk.failing();
    s.in_the_rest = in_the_rest(state, s.request.device);
    word_of_the_device(s);
    books_of_activity(s, walk);
    books_of_the_device(s, state, walk);
    books_of_payload(s, state);
    books_of_unmapped(s, state);
    s.movable = movable_of(state, s.request.device);
    // Where nothing was refused, no gap is known not to be eligible.
    const std::uint64_t asked = s.refused() ? s.request.needed.low.value_or(0) : UINT64_MAX;
    s.space = address_space_of(
        state, asked, s.request.draws == Draws::kAddressSpace ? s.request.alignment : s.page, s.page);
    s.limits = limits_at(s);
    look_at_trials(s);
    look_around(s, state);
    look_ahead(s);
}

}  // namespace situation_parts

void set_contract(Situation& s, Contract contract) {
    s.request.contiguity = static_cast<report::Request::Contiguity>(contract.shape);
    s.request.contiguity_reason = contract.declared ? "declared (--contract)" : contract.reasoning;
    const bool one_run = contract.shape == report::Contract::physical;
    s.one_run_needed = contract.declared ? one_run : one_run || s.one_run_needed;
    s.contract = std::move(contract);
}

Situation situation_at(const Trace& trace, const Failure& failure, SessionWalk& walk) {
    Situation s;
    s.trace = &trace;
    s.failure = failure;
    const auto& events = trace.events[failure.process.value];
    s.named = events[failure.index];
    const bool gave_up = s.named->kind == Kind::kBlockRefused;
    if (gave_up) s.failure.index = refusal_of_driver(events, failure.index).value_or(failure.index);
    s.event = events[s.failure.index];
    s.snapshot = snapshot_of(events, s.failure.index);
    s.probes = probes_of(events, s.failure.index);
    if (gave_up && s.snapshot.devices.empty())
        ask_the_program(s.snapshot, events, failure.index, s.failure.index);
    // Of several devices in the snapshot each was asked at its own moment.
    if (const auto asked = s.snapshot.devices.find(device_of_call(*s.event));
        asked != s.snapshot.devices.end() && !s.snapshot.by_program)
        s.snapshot.moment = asked->second.index;
    s.place = place_of(events, s.failure.index, s.snapshot);
    walk.advance(failure, s.snapshot);
    const ProcessState& state = walk.failing();
    Event placed = *s.event;
    // A call that names no device, such as an address reservation, was made where its snapshot was taken.
    // With several devices in it there would be a choice, and nothing to choose by.
    if (placed.device == kNoDevice && s.snapshot.devices.size() == 1 &&
        s.snapshot.devices.begin()->first != kNoDevice) {
        placed.device = static_cast<std::int16_t>(s.snapshot.devices.begin()->first);
        s.device_of_snapshot = true;
    }
    s.request = request_of(placed, state);
    place_the_request(s, walk, s.event->sequence);
    s.witnesses = witnesses_of(trace, s.failure, s.request);
    if (gave_up && s.framework) {
        book_the_refusal(s, walk.failing_framework());
        need_handles(s);
    }
    if (gave_up && s.event != s.named)
        s.request.in_words =
            fmt::format("a block of {} out of its framework's allocator, which asked the driver for {}",
                        in_words(s.named->bytes.value), s.request.in_words);
    fill_in(s, walk);
    return s;
}

}  // namespace fragscope::analysis
