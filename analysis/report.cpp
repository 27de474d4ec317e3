#include "analysis/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/activity_shown.h"
#include "analysis/advice.h"
#include "analysis/audit.h"
#include "analysis/balance.h"
#include "analysis/balances_shown.h"
#include "analysis/bounds.h"
#include "analysis/costs.h"
#include "analysis/counterfactuals.h"
#include "analysis/health.h"
#include "analysis/live_sites.h"
#include "analysis/management.h"
#include "analysis/phases.h"
#include "analysis/read/result_name.h"
#include "analysis/rest.h"
#include "analysis/samples.h"
#include "analysis/session.h"
#include "analysis/situation.h"
#include "analysis/timeline.h"
#include "analysis/verdict.h"

namespace fragscope::analysis {
namespace {

// What came of the call, by the driver's word; an allocator that gives up has none.
std::string result_of(const Event& event) {
    return event.kind == wire::Kind::kBlockRefused && !event.failed()
               ? "given up by the framework's allocator"
               : result_name(event.result);
}

std::string function_name(const Trace& trace, const Event& event) {
    return event.function.value < trace.functions.size() ? trace.functions[event.function.value] : "";
}

// The granularity that the size of a physical allocation has to be a multiple of and is not; 0: no such thing
// is known.
std::uint64_t granularity_missed(const Trace& trace, ProcessIndex process, const Event& event) {
    if (event.kind != wire::Kind::kHandleCreated || event.result != kInvalidValue ||
        wire::location_type(event.extra) != kLocationDevice) {
        return 0;
    }
    const trace::Device* device = device_of(trace, process, wire::location_id(event.extra));
    if (device == nullptr || device->minimum_granularity_bytes() == 0) return 0;
    return event.bytes.value % device->minimum_granularity_bytes() == 0 ? 0
                                                                        : device->minimum_granularity_bytes();
}

report::Verdict not_about_memory(const Trace& trace, ProcessIndex process, const Event& event) {
    report::Verdict out;
    out.set_cause(report::Verdict::not_an_allocation);
    std::string summary = fmt::format("{} answered {}: that is not a shortage of memory.",
                                      function_name(trace, event), result_name(event.result));
    if (const std::uint64_t granularity = granularity_missed(trace, process, event); granularity != 0) {
        out.set_constraint("size_not_multiple_of_granularity");
        summary += fmt::format(
            " The size asked for, {} ({} B), is not a multiple of the device's granularity, {}: cuMemCreate "
            "takes "
            "whole multiples of it only.",
            in_words(event.bytes.value), event.bytes.value, in_words(granularity));
    }
    out.set_summary(summary);
    return out;
}

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

report::ProcessSummary summary_of(const Trace& trace, std::uint32_t index, const Activity& activity) {
    const trace::Process& process = trace.processes[index];
    report::ProcessSummary out;
    out.set_index(index);
    out.set_pid(process.pid());
    out.set_executable(process.executable());
    for (const std::string& word : process.command_line()) out.add_command_line(word);
    out.set_ended_how(process.ended_how());
    if (process.has_driver_version()) out.set_driver_version(process.driver_version());
    if (process.has_runtime_version()) out.set_runtime_version(process.runtime_version());
    if (index < trace.events.size()) {
        const auto& events = trace.events[index];
        out.set_events(events.size());
        out.set_failures(static_cast<std::uint64_t>(std::count_if(
            events.begin(), events.end(), [](const Event& event) { return is_failure(event); })));
    }
    for (const std::string& blind : blind_spots_of(trace, {index}, activity)) out.add_blind_spots(blind);
    return out;
}

void add_devices(const Trace& trace, report::Report& out) {
    std::set<std::string> seen;
    for (std::uint32_t index = 0; index < trace.processes.size(); ++index) {
        for (const trace::Device& device : trace.processes[index].devices()) {
            std::string uuid = device_uuid(trace, {index}, static_cast<int>(device.ordinal()));
            if (uuid.empty()) uuid = fmt::format("device {} of process {}", device.ordinal(), index);
            if (!seen.insert(uuid).second) continue;
            report::DeviceSummary& summary = *out.add_devices();
            summary.set_uuid(uuid);
            summary.set_name(device.name());
            Scope scope;
            scope.device = uuid;
            *summary.mutable_capacity() =
                (device.has_capacity_bytes()
                     ? Quantity::measured(report::Quantity::capacity, device.capacity_bytes(), scope,
                                          "cuDeviceTotalMem")
                     : Quantity::unknown(report::Quantity::capacity, scope, "the trace does not say"))
                    .message();
            if (device.has_minimum_granularity_bytes()) {
                summary.set_minimum_granularity_bytes(device.minimum_granularity_bytes());
            }
            if (device.has_recommended_granularity_bytes()) {
                summary.set_recommended_granularity_bytes(device.recommended_granularity_bytes());
            }
        }
    }
}

// Releases that are in order and give nothing back, and what the records contradict each other in.
std::vector<std::string> notes_of(const ProcessState& state) {
    std::vector<std::string> out;
    const auto say = [&](std::uint64_t count, const char* what) {
        if (count != 0) out.push_back(fmt::format("{} release{} {}.", count, count == 1 ? "" : "s", what));
    };
    say(state.empty_releases().of_null, "of the null pointer: nothing was given back");
    say(state.empty_releases().of_foreign,
        "of memory of other processes or interfaces: their owner gives it back, not this process");
    say(state.empty_releases().of_graphs,
        "of addresses of graphs' allocations: the memory is the graphs' own");
    say(state.contradictions().unknown_releases,
        "of what this recording did not see acquired: no sum was lowered for it");
    if (state.checkpointed())
        out.emplace_back("It was checkpointed and not restored: its device memory was kept elsewhere then.");
    return out;
}

// What its framework's allocator held at most, on each device.
std::vector<report::Peak> framework_peaks(const Trace& trace, ProcessIndex process,
                                          const FrameworkState& books) {
    std::vector<report::Peak> out;
    const Losses lost =
        with_contradictions(narrowed(losses_of(trace, process), Layer::kFramework), books.contradictions());
    for (const auto& [ordinal, device] : books.devices()) {
        Scope scope;
        scope.process = process.value;
        scope.device = device_uuid(trace, process, ordinal);
        scope.domain = "framework's allocator";
        const bool sure = !lost.any() && device.disagreements == 0;
        const auto add = [&](report::Quantity::Definition definition, std::uint64_t bytes, const char* what) {
            *out.emplace_back().mutable_quantity() =
                (sure ? Quantity::derived(definition, bytes, scope, what)
                      : Quantity::unknown(
                            definition, scope,
                            fmt::format("{}: records are missing, or blocks of before the recording", what)))
                    .message();
        };
        add(report::Quantity::charged, device.all().reserved_bytes.peak,
            "segments that it took from the driver");
        add(report::Quantity::live, device.all().allocated_bytes.peak, "blocks that it gave out");
    }
    return out;
}

std::uint64_t duration_of(const Trace& trace) {
    std::uint64_t end = trace.end.end_ns();
    for (const auto& events : trace.events) {
        for (const Event& event : events) end = std::max(end, event.start.value + event.duration_ns);
    }
    return end > trace.session.start_ns() ? end - trace.session.start_ns() : 0;
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

report::Verdict verdict_at(const Situation& situation) {
    return verdict_of(situation, counterfactuals_of(situation));
}

}  // namespace

report::Report make_report(const Trace& trace, const ReportOptions& options) {
    report::Report out;
    out.set_trace(trace.path);
    *out.mutable_health() = health_of(trace);
    out.set_duration_ns(duration_of(trace));
    add_devices(trace, out);
    // One replay of each process serves its failures and its time line.
    std::vector<RunRecorder> recorders;
    std::vector<SampleRecorder> samplers;
    std::vector<FullestMoment> fullest(trace.events.size());
    SessionWalk walk(trace, [&](ProcessIndex process, const ProcessState& state, const Event& event) {
        recorders[process.value].add(state, event);
        samplers[process.value].add(state, event);
        fullest[process.value].add(state, event);
    });
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        recorders.emplace_back(trace, ProcessIndex{index});
        samplers.emplace_back(trace, ProcessIndex{index}, walk.activity({index}));
    }
    for (std::uint32_t index = 0; index < trace.processes.size(); ++index) {
        *out.add_processes() = summary_of(trace, index, walk.activity({index}));
    }
    std::vector<FailedAt> at_failures;
    std::uint32_t verdicts = 0;
    for (const Failure& failure : list_failures(trace)) {
        const Event& event = trace.events[failure.process.value][failure.index];
        report::FailureSummary& summary = *out.add_failures();
        summary.set_number(failure.number);
        summary.set_process(failure.process.value);
        summary.set_sequence(event.sequence.value);
        summary.set_time_ns(since_start(trace, event.start));
        summary.set_function(function_name(trace, event));
        summary.set_result(event.result);
        summary.set_result_name(result_of(event));
        if (auto stack = call_stack_of(trace, failure.process, event.stack, options.stack_words))
            *summary.mutable_stack() = std::move(*stack);
        if (!failure.allocation) {
            summary.set_request(request_of(event, ProcessState{}).in_words);
            *summary.mutable_verdict() = not_about_memory(trace, failure.process, event);
        } else if (verdicts < options.verdicts) {
            ++verdicts;
            const Situation situation = situation_at(trace, failure, walk);
            summary.set_request(situation.request.in_words);
            *summary.mutable_verdict() = verdict_at(situation);
            if (auto balance = balance_of(situation)) at_failures.push_back({failure.number, *balance});
        } else {
            summary.set_request(request_of(event, ProcessState{}).in_words);
            summary.mutable_verdict()->set_summary(
                fmt::format("Not explained in this list; `explain --failure {}` does.", failure.number));
        }
    }
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        const ProcessState& at_end = walk.at_the_end({index});
        const RunOfProcess run = recorders[index].result(at_end);
        if (index < static_cast<std::uint32_t>(out.processes_size())) {
            for (const std::string& note : notes_of(at_end))
                out.mutable_processes(static_cast<int>(index))->add_notes(note);
        }
        for (const auto& peak : run.peaks) *out.add_peaks() = peak;
        for (const auto& peak : framework_peaks(trace, {index}, walk.framework({index})))
            *out.add_peaks() = peak;
        const std::vector<report::Phase> phases = phases_of(trace, {index});
        for (const auto& timeline : run.timelines) {
            report::Timeline& added = *out.add_timelines();
            added = timeline;
            for (const report::Phase& phase : phases) *added.add_phases() = phase;
        }
        for (const auto& live : live_at_peaks(trace, {index}, fullest[index].moments(), options.stack_words))
            *out.add_live_at_peaks() = live;
        for (const auto& leak : run.left) *out.add_left_at_end() = leak;
    }
    std::vector<Balance> samples;
    for (SampleRecorder& sampler : samplers) {
        for (Balance& balance : sampler.take()) samples.push_back(std::move(balance));
    }
    add_neighbours(trace, samples);
    add_balances(trace, samples, at_failures, out);
    for (std::uint32_t index = 0; index < trace.processes.size(); ++index) {
        if (const auto shown = activity_shown(trace, {index}, walk.activity({index})))
            *out.add_activities() = *shown;
    }
    for (const report::FunctionCost& cost : costs_of(trace)) *out.add_costs() = cost;
    if (auto management = management_of(trace)) *out.mutable_management() = std::move(*management);
    return out;
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
    SessionWalk walk(trace);
    const Situation situation = situation_at(trace, failure, walk);
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
    const std::vector<Counterfactual> rows = counterfactuals_of(situation);
    *out.mutable_verdict() = verdict_of(situation, rows);
    for (const report::Quantity& quantity : audit_of(situation)) *out.add_audit() = quantity;
    for (const report::Domain& domain : domains_of(situation)) *out.add_domains() = domain;
    for (const Counterfactual& row : rows) *out.add_counterfactuals() = message_of(row);
    for (const report::Bound& bound : bounds_of(situation)) *out.add_bounds() = bound;
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
    if (const auto balance = balance_of(situation)) {
        *out.mutable_balance() = message_of(*balance);
        out.mutable_balance()->add_moments(fmt::format("failure {}", number));
        const std::size_t before = last_asked_before(trace, *balance, failure.index);
        for (const std::string& what : happened_between(trace, failure.process, before, balance->index))
            out.mutable_balance()->add_since_before(what);
    }
    if (auto management = management_at(trace, situation.device, situation.event->start.value))
        *out.mutable_management() = std::move(*management);
    for (const std::string& action : actions_for(situation, rows, out.verdict())) out.add_actions(action);
    for (const std::string& unknown : not_known_in(situation)) out.add_not_known(unknown);
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
