#include "analysis/situation_if.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/driver_word.h"
#include "analysis/kinds.h"
#include "analysis/situation_parts.h"

namespace fragscope::analysis {

using wire::Kind;
using namespace situation_parts;

namespace {

Event call_of(const AskedRequest& asked) {
    Event out;
    out.process = asked.process;
    out.kind = asked.kind;
    out.device = asked.device;
    out.bytes = {asked.bytes};
    if (asked.kind == Kind::kPoolAcquired) out.object = asked.pool;
    if (asked.kind == Kind::kHandleCreated) out.extra = wire::pack_location(kLocationDevice, asked.device, 0);
    return out;
}

// The last end of what came before, or the first beginning: when the moment was, at the earliest.
std::uint64_t time_of(const EventLog& events, std::size_t moment) {
    if (moment != 0) return events[moment - 1].start.value + events[moment - 1].duration_ns;
    return events.empty() ? 0 : events.front().start.value;
}

std::string not_asked_at(const EventLog& events, std::size_t moment, int device) {
    const NearestWords nearest = nearest_words(events, moment, device);
    std::string when;
    if (nearest.before) when += fmt::format("it was asked before, at record {}", nearest.before->value);
    if (nearest.after)
        when += fmt::format("{} at record {}", nearest.before ? ", and again" : "it was asked later,",
                            nearest.after->value);
    return "the driver was not asked of this device at this moment, and numbers of other moments are not "
           "used" +
           (when.empty() ? "" : " (" + when + ")");
}

// What was refused in the very state that is asked about, and what was tried in place after it.
void look_at_refusals(Situation& s, const EventLog& events) {
    const Stillness still = stillness_at(events, s.place.before);
    for (std::size_t i = still.begin; i < still.end; ++i) {
        const Event& event = events[i];
        if (event.result != kOutOfMemory && event.kind != Kind::kBlockRefused) continue;
        if (event.has(wire::kByShim) || event.has(wire::kContinued)) continue;
        if (Probes probes = probes_of(events, i); !probes.tried.empty()) s.probes = std::move(probes);
        // A reservation at an address, or with an alignment of its own, is another request.
        if (!is_alike(s, event) || event.bytes.value == 0) continue;
        if (event.kind == Kind::kReserved && (event.extra != 0 || event.object.value > s.request.alignment))
            continue;
        if (s.request.draws == Draws::kPool && event.object != s.request.pool) continue;
        if (event.bytes.value > s.request.requested) continue;
        if (s.refused_then && s.refused_then->bytes <= event.bytes.value) continue;
        s.refused_then = {event.bytes.value, event.sequence.value};
    }
}

// The largest gap that the framework's allocator could give it, as far as its stream is not named.
void look_into_the_allocator(Situation& s) {
    if (s.request.kind != Kind::kBlockRefused || !s.framework) return;
    FrameworkAtFailure& own = *s.framework;
    constexpr std::uint64_t kRounding = 512;  // of PyTorch's blocks, by its public rules
    own.tried = std::max(round_up(s.request.requested, kRounding), s.request.requested);
    for (const FrameworkDomain& domain : own.domains) {
        if (domain.large == (own.tried > kSmallBlock))
            own.largest_eligible = std::max(own.largest_eligible, domain.gaps.largest());
    }
}

// Without the driver's word: what this process's next calls took was held by nobody, until it gave something
// back.
void bound_by_what_followed(Situation& s) {
    const std::uint64_t taken = s.witnesses.pieces_together;
    if (taken == 0 || s.device_free.known()) return;
    const std::optional<std::uint64_t> high = s.free_then.high();
    if (high && taken > *high) return;  // more than the records leave: somebody else gave something back
    const std::string why = fmt::format(
        "this process's next calls took {} before it gave anything back, so at least so much was held by "
        "nobody, "
        "unless another process gave memory back meanwhile",
        in_words(taken));
    s.free_then = Quantity::bounded(report::Quantity::device_free, {taken, high}, s.physical,
                                    high ? why + "; at most " + s.free_then.reason() : why);
}

// Between the driver's word and the moment this process changed nothing; other recorded processes may have.
void widen_by_the_others(Situation& s) {
    std::uint64_t change = 0;
    for (const OtherProcess& other : s.other_processes) {
        const std::uint64_t most = other.charged.high.value_or(UINT64_MAX) - other.charged.low.value_or(0);
        change += std::min(most, UINT64_MAX - change);
    }
    if (change == 0 || !s.free_then.known()) return;
    const std::uint64_t high = s.free_then.high().value_or(UINT64_MAX);
    const std::uint64_t whole = s.capacity.high().value_or(UINT64_MAX);
    s.free_then = Quantity::bounded(
        report::Quantity::device_free,
        {less(s.free_then.low().value_or(0), change),
         std::min(whole, high + std::min(change, UINT64_MAX - high))},
        s.physical,
        s.free_then.reason() + "; other recorded processes may have changed something in between");
}

}  // namespace

Situation situation_if(const Trace& trace, const AskedRequest& asked, SessionWalk& walk) {
    const auto& events = trace.events[asked.process.value];
    Situation s;
    s.trace = &trace;
    s.hypothetical = true;
    s.failure = {0, asked.process, asked.moment, true};
    s.snapshot.moment = asked.moment;
    walk.advance(s.failure, s.snapshot);
    const ProcessState& state = walk.failing();
    const std::uint64_t time = asked.time_ns.value_or(time_of(events, asked.moment));
    s.place = {asked.moment, asked.moment, time, time};
    Sequence at = asked.moment == 0 ? Sequence{} : events[asked.moment - 1].sequence;
    const auto word = driver_word_at(events, asked.moment, asked.device, state.page(asked.device));
    if (word) {
        const Event& question = events[word->index];
        s.snapshot = word->snapshot;
        s.when = word->when;
        if (!word->device_free.exact()) s.said_between = word->device_free;
        const std::uint64_t answered = question.start.value + question.duration_ns;
        s.place.from_ns = word->apart ? std::min(time, question.start.value) : question.start.value;
        s.place.to_ns = word->apart ? std::max(time, answered) : answered;
        at = question.sequence;
        s.not_asked = s.snapshot.by_program ? "the program itself asked for the device's numbers only"
                                            : "the driver gave no answer then";
    } else {
        s.when = "at this moment";
        s.not_asked = not_asked_at(events, asked.moment, asked.device);
    }
    s.request = request_of(call_of(asked), state);
    place_the_request(s, walk, at);
    look_into_the_allocator(s);
    look_at_refusals(s, events);
    s.witnesses = witnesses_from(trace, asked.process, asked.moment, s.request);
    fill_in(s, walk);
    if (word && word->apart) widen_by_the_others(s);
    bound_by_what_followed(s);
    return s;
}

}  // namespace fragscope::analysis
