#include "analysis/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/advice.h"
#include "analysis/audit.h"
#include "analysis/balance.h"
#include "analysis/balances_shown.h"
#include "analysis/bounds.h"
#include "analysis/consumers.h"
#include "analysis/counterfactuals.h"
#include "analysis/domains.h"
#include "analysis/failed_call.h"
#include "analysis/health.h"
#include "analysis/held.h"
#include "analysis/management.h"
#include "analysis/measures.h"
#include "analysis/mechanisms.h"
#include "analysis/phases.h"
#include "analysis/read/result_name.h"
#include "analysis/rest.h"
#include "analysis/session.h"
#include "analysis/verdict.h"

namespace fragscope::analysis {
namespace {

// "cuMemCreate, CUDA_ERROR_INVALID_VALUE (2 times); …": failed calls of one kind together, the first few
// kinds.
std::string kinds_of(const Trace& trace, const std::vector<Failure>& failures) {
    constexpr std::size_t kShown = 4;
    std::vector<std::pair<std::string, std::size_t>> kinds;
    for (const Failure& failure : failures) {
        const Event& event = trace.events[failure.process.value][failure.index];
        const std::string name = function_name(trace, event) + ", " + result_name(event.result);
        const auto found =
            std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == name; });
        if (found == kinds.end())
            kinds.emplace_back(name, 1);
        else
            ++found->second;
    }
    std::string out;
    for (std::size_t i = 0; i < std::min(kinds.size(), kShown); ++i) {
        out += (i == 0 ? "" : "; ") + kinds[i].first;
        if (kinds[i].second > 1) out += fmt::format(" ({} times)", kinds[i].second);
    }
    if (kinds.size() > kShown) out += "; and others";
    return out;
}

bool by_signal(const trace::Process& process) { return process.ended_how().starts_with("signal"); }

// What to say of processes that a signal ended: their last calls may have no record. Empty: there are none.
std::string ended_by_signal(const Trace& trace) {
    std::string out;
    for (std::uint32_t index = 0; index < trace.processes.size(); ++index) {
        if (!by_signal(trace.processes[index])) continue;
        out += fmt::format(" {} was ended by {}: a call that was under way then has no record.",
                           process_in_words(trace, {index}), trace.processes[index].ended_how());
    }
    if (out.size() > 1 && out[1] == 'p') out[1] = 'P';
    return out;
}

// Nothing in the trace is to be explained. Where something is missing from it, that does not say that no
// request failed.
report::Verdict without_a_failure(const Trace& trace, const std::vector<Failure>& failures,
                                  const report::Health& health) {
    report::Verdict out;
    out.set_cause(report::Verdict::no_failure);
    std::string summary = "No call failed in this trace: there is nothing to explain.";
    if (const std::string held = held_instead_of_failure(trace); !held.empty()) summary = held;
    if (!failures.empty()) {
        summary = fmt::format(
            "No request failed for want of memory. {} failed otherwise: {}.",
            failures.size() == 1 ? std::string("1 call") : fmt::format("{} calls", failures.size()),
            kinds_of(trace, failures));
    }
    if (!health.complete()) {
        out.set_cause(report::Verdict::undetermined);
        summary = failures.empty() ? "No failed call is in what could be read, but not all is there."
                                   : "In what could be read: " + summary + " But not all is there.";
        if (trace.end.events_not_written() != 0) {
            summary +=
                fmt::format(" {} recorded events are missing from the file.", trace.end.events_not_written());
        }
        summary += " Whether a request for memory failed is not known.";
        out.set_deciding_measurement(
            "a recording without the gaps that are named at the top, made until the program has ended");
    }
    out.set_summary(summary + ended_by_signal(trace));
    return out;
}

// A span of time as the pages write it.
std::string span_in_words(std::uint64_t ns) {
    const double value = static_cast<double>(ns);
    if (ns < 1'000) return fmt::format("{} ns", ns);
    if (ns < 1'000'000) return fmt::format("{:.1f} us", value / 1e3);
    if (ns < 1'000'000'000) return fmt::format("{:.1f} ms", value / 1e6);
    return fmt::format("{:.1f} s", value / 1e9);
}

report::Request request_message(const Situation& s, const StackWords& words) {
    const RequestFacts& facts = s.request;
    report::Request out;
    out.set_function(function_name(*s.trace, *s.named));
    out.set_in_words(facts.in_words);
    if (facts.requested != 0) {
        *out.mutable_requested() =
            Quantity::measured(report::Quantity::requested, facts.requested,
                               s.physical.in_domain(facts.domain), "the call's own argument")
                .message();
    }
    const Scope scope = s.physical.in_domain(facts.domain);
    *out.mutable_needed() =
        (facts.rounding_assumed
             ? Quantity::assumed(report::Quantity::needed, facts.needed, scope, facts.needed_reason)
         : facts.needed.exact()
             ? Quantity::measured(report::Quantity::needed, *facts.needed.low, scope, facts.needed_reason)
             : Quantity::bounded(report::Quantity::needed, facts.needed, scope, facts.needed_reason))
            .message();
    if (facts.alignment != 0) out.set_alignment_bytes(facts.alignment);
    if (facts.granularity != 0) out.set_granularity_bytes(facts.granularity);
    out.set_contiguity(facts.contiguity);
    out.set_contiguity_reason(facts.contiguity_reason);
    out.set_process(s.failure.process.value);
    out.set_device(s.device);
    out.set_thread(s.named->thread);
    out.set_sequence(s.named->sequence.value);
    out.set_time_ns(since_start(*s.trace, s.named->start));
    out.set_result(s.named->result);
    out.set_result_name(s.named == s.event ? result_of(*s.event)
                                           : fmt::format("{}, after the driver answered {}",
                                                         result_of(*s.named), result_name(s.event->result)));
    if (auto stack = call_stack_of(*s.trace, s.failure.process, s.named->stack, words))
        *out.mutable_stack() = std::move(*stack);
    const WhereInProgram where = where_in_program(*s.trace, s.failure.process, s.failure.index);
    out.set_thread_name(where.thread_name);
    for (const std::string& range : where.ranges) out.add_phases(range);
    out.set_last_mark(where.last_mark);
    return out;
}

// The last failed allocation of the same process before this one of which the driver's word is in the trace.
const Failure* last_one_told(const Trace& trace, const std::vector<Failure>& failures,
                             const Failure& failure) {
    const Failure* found = nullptr;
    for (const Failure& other : failures) {
        if (other.number >= failure.number) break;
        if (other.process != failure.process || !other.allocation) continue;
        if (!snapshot_of(trace.events[other.process.value], other.index).devices.empty()) found = &other;
    }
    return found;
}

}  // namespace

void conclude(const Situation& situation, report::Explanation& out) {
    const std::vector<Counterfactual> rows = counterfactuals_of(situation);
    *out.mutable_verdict() = verdict_of(situation, rows);
    const std::vector<report::Domain> domains = domains_of(situation);
    const std::vector<report::Bound> bounds = bounds_of(situation);
    for (const report::Quantity& quantity : audit_of(situation, domains, bounds)) *out.add_audit() = quantity;
    for (const report::Domain& domain : domains) *out.add_domains() = domain;
    *out.mutable_measures() = measures_of(situation);
    for (const Counterfactual& row : rows) *out.add_counterfactuals() = message_of(row);
    for (const report::Bound& bound : bounds) *out.add_bounds() = bound;
    *out.mutable_mechanisms() = mechanisms_of(situation, bounds);
    for (const Probe& probe : situation.probes.tried) {
        report::Probe& message = *out.add_probes();
        message.set_mechanism(mechanism_id(probe.mechanism));
        message.set_bytes(probe.bytes);
        message.set_granted(probe.granted());
        message.set_result_name(result_name(probe.result));
        message.set_duration_ns(probe.duration_ns);
        if (probe.granularity != 0) message.set_granularity_bytes(probe.granularity);
    }
    out.set_probes_note(ended_in_words(situation.probes));
    *out.mutable_contract() = message_of(situation.contract);
    for (const std::string& action : actions_for(situation, rows, out.verdict())) out.add_actions(action);
    for (const std::string& unknown : not_known_in(situation)) out.add_not_known(unknown);
}

report::Explanation explain_failure(const Trace& trace, std::uint32_t number, const ReportOptions& options) {
    report::Explanation out;
    out.set_trace(trace.path);
    *out.mutable_health() = health_of(trace);
    const std::vector<Failure> failures = list_failures(trace);
    out.set_of_failures(static_cast<std::uint32_t>(failures.size()));
    if (number == 0) number = default_failure(failures).value_or(0);
    if (number == 0) {
        *out.mutable_verdict() = without_a_failure(trace, failures, out.health());
        return out;
    }
    if (number > failures.size()) {
        out.mutable_verdict()->set_cause(report::Verdict::no_failure);
        out.mutable_verdict()->set_summary(
            failures.size() == 1
                ? fmt::format("This trace has 1 failed call, and no number {}.", number)
                : fmt::format("This trace has {} failed calls, and no number {}.", failures.size(), number));
        return out;
    }
    const Failure& failure = failures[number - 1];
    out.set_id(fmt::format("failure:{}", number));
    ConsumerRecorder consumers;
    RunWatch run = watch_for(trace, failure);
    SessionWalk walk(
        trace,
        [&](ProcessIndex process, const ProcessState& state, const Event& event) {
            if (process == failure.process) consumers.add(state, event);
        },
        1,
        [&](ProcessIndex process, std::span<const Event> events) {
            if (process == failure.process) run.add(events);
        });
    Situation situation = situation_at(trace, failure, walk);
    set_contract(situation,
                 contract_of(situation.request, options.contract, consumers, trace, failure.process));
    *out.mutable_request() = request_message(situation, options.stack_words);
    if (!failure.allocation) {
        const Event& event = *situation.event;
        *out.mutable_verdict() = not_about_memory(trace, failure.process, event);
        if (const std::uint64_t granularity = granularity_missed(trace, failure.process, event)) {
            out.add_actions(fmt::format(
                "Round the size up to whole multiples of {} (cuMemGetAllocationGranularity): {} here.",
                in_words(granularity), in_words(round_up(event.bytes.value, granularity))));
        }
        return out;
    }
    measure(situation, walk);
    look_at_the_run(situation, &run);
    conclude(situation, out);
    add_call_sites(situation.internal, trace, failure.process, options.stack_words, *out.mutable_measures());
    if (const auto balance = balance_of(situation)) {
        *out.mutable_balance() = message_of(*balance);
        out.mutable_balance()->add_moments(fmt::format("failure {}", number));
        const std::size_t before = last_asked_before(trace, *balance, failure.index);
        for (const std::string& what : happened_between(trace, failure.process, before, balance->index))
            out.mutable_balance()->add_since_before(what);
    }
    if (auto management = management_at(trace, situation.device, situation.event->start.value))
        *out.mutable_management() = std::move(*management);
    if (const std::string ended = ended_by_signal(trace); !ended.empty()) {
        out.add_not_known("What came last." + ended);
    }
    if (situation.snapshot.devices.empty()) {
        if (const Failure* told = last_one_told(trace, failures, failure)) {
            const Event& earlier = trace.events[told->process.value][told->index];
            out.add_actions(
                fmt::format("Look at failure {} of the same process, {} before, for which the driver "
                            "was asked: `explain --failure {}`.",
                            told->number,
                            span_in_words(situation.event->start.value -
                                          std::min(earlier.start.value, situation.event->start.value)),
                            told->number));
        }
    }
    return out;
}

}  // namespace fragscope::analysis
