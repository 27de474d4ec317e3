#include "analysis/balance.h"

#include <fmt/format.h>

#include "analysis/session.h"

namespace fragscope::analysis {
namespace {

std::string signed_words(std::int64_t bytes) {
    return in_words(static_cast<std::uint64_t>(bytes < 0 ? -bytes : bytes));
}

}  // namespace

Margin rest_of(const Balance& balance) {
    Interval parts = Interval::exactly(0);
    for (const Part& part : balance.parts) {
        // A part of which only one end is known leaves the other end of the rest open.
        const Interval bytes = part.bytes.interval();
        parts.low = parts.low && bytes.low ? (parts + bytes).low : std::nullopt;
        parts.high = parts.high && bytes.high ? (parts + bytes).high : std::nullopt;
    }
    return margin_of(Interval::exactly(balance.taken()), parts);
}

Quantity unattributed_of(const Balance& balance) {
    constexpr Definition kWhat = report::Quantity::unattributed;
    const Margin rest = rest_of(balance);
    std::string why = "what the driver says is taken, less the parts above";
    if (rest.high && *rest.high < 0) {
        return Quantity::unknown(
            kWhat, balance.scope,
            fmt::format(
                "the parts are {} more than what the driver says is taken: the books are wrong, or hold "
                "for another moment",
                signed_words(*rest.high)));
    }
    Interval bytes;
    if (rest.high) bytes.high = static_cast<std::uint64_t>(*rest.high);
    bytes.low = rest.low && *rest.low > 0 ? static_cast<std::uint64_t>(*rest.low) : 0;
    if (rest.low && *rest.low < 0) {
        why += "; the parts' upper ends cannot all be reached, as they would be more than what is taken";
    } else if (!rest.low) {
        why += "; not all parts have an upper end";
    }
    return bytes.exact() ? Quantity::derived(kWhat, *bytes.low, balance.scope, why)
                         : Quantity::bounded(kWhat, bytes, balance.scope, why);
}

report::Balance message_of(const Balance& balance) {
    report::Balance out;
    out.set_process(balance.process.value);
    out.set_device(balance.device_name);
    if (balance.scope.snapshot) out.set_sequence(*balance.scope.snapshot);
    if (balance.scope.time_ns) out.set_time_ns(*balance.scope.time_ns);
    *out.mutable_taken() =
        Quantity::measured(report::Quantity::taken, balance.taken(), balance.scope,
                           fmt::format("{} in all less {} of device-free memory, as cuMemGetInfo said",
                                       in_words(balance.capacity), in_words(balance.device_free)))
            .message();
    for (const Part& part : balance.parts) {
        report::BalancePart& message = *out.add_parts();
        message.set_id(part.id);
        message.set_what(part.words);
        *message.mutable_bytes() = part.bytes.message();
    }
    const Margin rest = rest_of(balance);
    if (rest.low) out.set_rest_low_bytes(*rest.low);
    if (rest.high) out.set_rest_high_bytes(*rest.high);
    const Quantity unattributed = unattributed_of(balance);
    *out.mutable_unattributed() = unattributed.message();
    if (!unattributed.known() && rest.high) out.set_contradiction(unattributed.reason());
    for (const std::string& what : balance.may_hold) out.add_may_hold(what);
    return out;
}

std::optional<Balance> balance_of(const Situation& s) {
    if (!s.device_free.exact() || !s.capacity.exact()) return std::nullopt;
    Balance out;
    out.process = s.failure.process;
    out.device = s.request.device;
    out.device_name = s.device;
    out.index = s.snapshot.moment;
    out.from_ns = s.place.from_ns;
    out.to_ns = s.place.to_ns;
    if (s.hypothetical) {
        out.index = s.snapshot.devices.at(s.request.device).index;
    } else {
        const auto& events = s.trace->events[s.failure.process.value];
        const Event& asked = events[std::min(out.index, events.size() - 1)];
        out.to_ns = asked.start.value + asked.duration_ns;
    }
    out.scope = s.physical;
    out.capacity = *s.capacity.low();
    out.device_free = *s.device_free.low();
    out.parts.push_back({"handles", "physical handles (cuMemCreate) of this process", s.handles});
    out.parts.push_back(
        {"linear", "linear, pitched and managed memory of this process (cuMemAlloc…)", s.linear});
    out.parts.push_back({"arrays", "arrays of this process", s.arrays});
    out.parts.push_back(
        {"pools", "stream-ordered pools of this process, with what they keep unused", s.pools_reserved});
    out.parts.push_back({"graphs", "what graphs of this process hold", s.graphs});
    for (const ActivityPart& part : s.told_by_cupti) out.parts.push_back({part.id, part.words, part.bytes});
    for (const OtherProcess& other : s.other_processes) {
        out.parts.push_back({"process", other.name,
                             Quantity::bounded(report::Quantity::other_processes, other.charged, s.physical,
                                               "from its own records, at that time by the clock")});
    }
    out.may_hold = s.in_the_rest;
    return out;
}

}  // namespace fragscope::analysis
