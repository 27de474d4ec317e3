#include "analysis/measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/domains.h"
#include "analysis/live_sites.h"
#include "analysis/losses.h"

namespace fragscope::analysis {
namespace {

using Q = report::Quantity;

report::Ratio message_of(const Share& share, const std::string& unknown) {
    report::Ratio out;
    if (share.low) out.set_low(*share.low);
    if (share.high) out.set_high(*share.high);
    if (!share.low && !share.high) out.set_reason(unknown);
    return out;
}

// Peaks are of two moments, so they have a scope without one.
Scope of_the_run(Scope scope) {
    scope.snapshot.reset();
    scope.time_ns.reset();
    return scope;
}

}  // namespace

void measure(Situation& s, const SessionWalk& walk) {
    if (s.request.device == kNoDevice) return;
    s.internal = internal_parts_of(walk.failing(), walk.failing_framework(), s.request.device, s.payload,
                                   s.losses, s.physical);
}

report::InternalRow message_of(const InternalPart& part) {
    report::InternalRow out;
    out.set_allocator(part.allocator);
    if (part.size_class) out.set_at_least_bytes(*part.size_class);
    out.set_count(part.count);
    *out.mutable_charged() = part.charged.message();
    *out.mutable_requested() = part.payload.message();
    *out.mutable_internal_waste() = waste_of(part).message();
    *out.mutable_ratio() =
        message_of(waste_share_of(part),
                   part.payload.known() ? "whether anything was charged, or how much at most, is not known"
                                        : part.payload.reason());
    return out;
}

report::OtherMeasure peaks_measure(const std::string& of, const Quantity& peak_active,
                                   const Quantity& peak_reserved) {
    report::OtherMeasure out;
    out.set_name("1 - peak active / peak reserved");
    out.set_of(of);
    *out.mutable_first() = peak_active.message();
    *out.mutable_second() = peak_reserved.message();
    const auto part = share(peak_active, peak_reserved);
    *out.mutable_ratio() =
        message_of(part ? rest_of(*part) : Share{},
                   peak_reserved.known() ? "nothing is known to have been reserved" : peak_reserved.reason());
    out.set_note(
        "The two peaks may be of different moments. It says how much more was held than was ever in use at "
        "once, and nothing of any request.");
    return out;
}

report::OtherMeasure kept_measure(const std::string& of, const Quantity& reserved,
                                  const Quantity& allocated) {
    report::OtherMeasure out;
    out.set_name("reserved - allocated");
    out.set_of(of);
    *out.mutable_first() = reserved.message();
    *out.mutable_second() = allocated.message();
    const std::string reason = !reserved.known()    ? reserved.reason()
                               : !allocated.known() ? allocated.reason()
                                                    : "held from the device, less what was given out";
    *out.mutable_bytes() = minus(reserved, allocated, Q::cached, reason)
                               .value_or(Quantity::unknown(Q::cached, reserved.scope(),
                                                           "the two are of different places or moments"))
                               .message();
    out.set_note("All that is kept unused or waits, wherever it lies: no part of it need serve any request.");
    return out;
}

report::Measures measures_of(const Situation& s) {
    report::Measures out;
    for (const InternalPart& part : s.internal.by_allocator) *out.add_by_allocator() = message_of(part);
    for (const InternalPart& part : s.internal.by_size_class) *out.add_by_size_class() = message_of(part);
    if (s.framework) {
        const FrameworkAtFailure& own = *s.framework;
        const Scope run = of_the_run(own.scope);
        const auto peak = [&](Definition definition, std::uint64_t bytes, const char* what) {
            return own.peaks_known
                       ? Quantity::derived(definition, bytes, run, what)
                       : Quantity::unknown(definition, run, fmt::format("{}: its books are not whole", what));
        };
        *out.add_others() = peaks_measure(
            own.scope.domain,
            peak(Q::live, own.peak_active, "the most that lay in blocks, live or waiting, up to then"),
            peak(Q::charged, own.peak_reserved, "the most that it had in segments up to then"));
        *out.add_others() = kept_measure(own.scope.domain, own.reserved, own.live);
    }
    for (const PoolAtFailure& pool : s.pools) {
        const Scope run = of_the_run(s.physical.in_domain(pool.name));
        const auto peak = [&](Definition definition, const std::optional<std::uint64_t>& bytes,
                              const char* what) {
            return bytes
                       ? Quantity::measured(definition, *bytes, run, what)
                       : Quantity::unknown(definition, run, "the driver was not asked for the pool's peaks");
        };
        *out.add_others() = peaks_measure(
            pool.name,
            peak(Q::live, pool.said.used_high,
                 "CU_MEMPOOL_ATTR_USED_MEM_HIGH, since the program set it back, if it ever did"),
            peak(Q::charged, pool.said.reserved_high,
                 "CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, since the program set it back, if it ever did"));
        *out.add_others() = kept_measure(pool.name, pool.reserved, pool.used);
    }
    return out;
}

report::MeasuresAtPeak measures_at_peak(const Trace& trace, ProcessIndex process, const ProcessState& state,
                                        const FrameworkState& framework, int device, const Event& event,
                                        const StackWords& words) {
    Situation s;
    s.losses = losses_of(trace, process);
    s.device = device_uuid(trace, process, device);
    if (s.device.empty()) s.device = fmt::format("device {}", device);
    s.page = state.page(device);
    s.physical.process = process.value;
    s.physical.device = s.device;
    s.physical.domain = "physical";
    s.physical.snapshot = event.sequence.value;
    s.physical.time_ns = since_start(trace, event.start);
    s.address = s.physical.in_domain("virtual");
    s.address.device.clear();
    s.space = address_space_of(state, 0, s.page, s.page);
    s.framework = framework_at(framework, state, device, s.physical, s.losses);
    s.internal = internal_parts_of(state, framework, device, payload_of(trace, process, state, device),
                                   s.losses, s.physical);
    report::MeasuresAtPeak out;
    out.set_process(process.value);
    out.set_device(s.device);
    out.set_sequence(event.sequence.value);
    out.set_time_ns(*s.physical.time_ns);
    const Interval held = weakened(Interval::exactly(live_bytes(state, device)),
                                   with_contradictions(s.losses, state.contradictions()));
    const char* what = "linear memory, physical handles, stream-ordered allocations and arrays, as requested";
    *out.mutable_held() = (held.exact() ? Quantity::derived(Q::live, *held.low, s.physical, what)
                                        : Quantity::bounded(Q::live, held, s.physical,
                                                            fmt::format("{}; records are missing", what)))
                              .message();
    // Without a device the request draws on nothing physical: of that the driver was not asked here.
    for (const report::Domain& domain : domains_of(s)) *out.add_domains() = domain;
    *out.mutable_measures() = measures_of(s);
    add_call_sites(s.internal, trace, process, words, *out.mutable_measures());
    return out;
}

void add_call_sites(const InternalParts& parts, const Trace& trace, ProcessIndex process,
                    const StackWords& words, report::Measures& out) {
    // Without any stack there is one place, and it is the whole allocator.
    if (std::all_of(parts.by_call_site.begin(), parts.by_call_site.end(),
                    [](const InternalPart& part) { return part.stack.value_or(0) == 0; }))
        return;
    const std::size_t shown = std::min(parts.by_call_site.size(), kSitesShown);
    for (std::size_t i = 0; i < shown; ++i) {
        const InternalPart& part = parts.by_call_site[i];
        report::InternalRow& row = *out.add_by_call_site();
        row = message_of(part);
        if (auto stack = call_stack_of(trace, process, part.stack.value_or(0), words))
            *row.mutable_stack() = std::move(*stack);
    }
    out.set_other_sites(parts.by_call_site.size() - shown);
}

}  // namespace fragscope::analysis
