#include "analysis/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/activity_shown.h"
#include "analysis/balance.h"
#include "analysis/balances_shown.h"
#include "analysis/costs.h"
#include "analysis/counterfactuals.h"
#include "analysis/curves.h"
#include "analysis/failed_call.h"
#include "analysis/hazards.h"
#include "analysis/health.h"
#include "analysis/held.h"
#include "analysis/leaks.h"
#include "analysis/live_sites.h"
#include "analysis/management.h"
#include "analysis/measures.h"
#include "analysis/moment.h"
#include "analysis/phases.h"
#include "analysis/rest.h"
#include "analysis/samples.h"
#include "analysis/session.h"
#include "analysis/situation.h"
#include "analysis/timeline.h"
#include "analysis/verdict.h"
#include "analysis/workload.h"

namespace fragscope::analysis {
namespace {

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
        std::uint64_t failures = 0;
        events.for_each_failed([&](std::size_t, const Event& event) { failures += is_failure(event) ? 1 : 0; });
        out.set_failures(failures);
    }
    for (const std::string& blind : blind_spots_of(trace, {index}, activity)) out.add_blind_spots(blind);
    return out;
}

void add_snapshot(const snapshot::DeviceTotals& totals, report::DeviceSummary& out) {
    out.set_segments(totals.segments());
    out.set_blocks(totals.blocks());
    out.set_reserved_bytes(totals.reserved_bytes());
    out.set_allocated_bytes(totals.allocated_bytes());
    out.set_active_bytes(totals.active_bytes());
    out.set_inactive_bytes(totals.inactive_bytes());
    out.set_largest_inactive_bytes(totals.largest_inactive_bytes());
    out.set_wholly_free_segment_bytes(totals.wholly_free_segment_bytes());
    out.set_trace_entries(totals.trace_entries());
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
                                          capacity_source(trace))
                     : Quantity::unknown(report::Quantity::capacity, scope, "the trace does not say"))
                    .message();
            if (device.has_minimum_granularity_bytes()) {
                summary.set_minimum_granularity_bytes(device.minimum_granularity_bytes());
            }
            if (device.has_recommended_granularity_bytes()) {
                summary.set_recommended_granularity_bytes(device.recommended_granularity_bytes());
            }
            for (const snapshot::DeviceTotals& totals : trace.session.provenance().snapshot())
                if (totals.ordinal() == device.ordinal()) add_snapshot(totals, summary);
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
        const char* missing = lost.any() || device.disagreements != 0
                                  ? "records are missing, or blocks of before the recording"
                                  : nullptr;
        const auto add = [&](report::Quantity::Definition definition, std::uint64_t bytes, const char* what,
                             const char* why_unknown) {
            *out.emplace_back().mutable_quantity() =
                (why_unknown == nullptr
                     ? Quantity::derived(definition, bytes, scope, what)
                     : Quantity::unknown(definition, scope, fmt::format("{}: {}", what, why_unknown)))
                    .message();
        };
        add(report::Quantity::charged, device.all().reserved_bytes.peak,
            "segments that it took from the driver",
            missing == nullptr && device.segments_unseen
                ? "blocks of it lie in memory that no record shows it take"
                : missing);
        add(report::Quantity::live, device.all().allocated_bytes.peak, "blocks that it gave out", missing);
    }
    return out;
}

report::Verdict verdict_at(const Situation& situation) {
    return verdict_of(situation, counterfactuals_of(situation));
}

// What leaks at the end of a process, and who may reach or see memory beyond its owner's time.
void add_leaks(const Trace& trace, SessionWalk& walk, const Sharing& sharing, const HazardWatch& watch,
               ProcessIndex process, const StackWords& words, report::Report& out) {
    const auto& events = trace.events[process.value];
    LeakMoment moment;
    moment.trace = &trace;
    moment.process = process;
    moment.state = &walk.at_the_end(process);
    moment.sequence = events.empty() ? 0 : events[events.size() - 1].sequence.value;
    moment.clock_ns = clock_at_end(trace, process);
    moment.at_the_end = true;
    for (const report::LeakClass& leak : leaks_at(moment, sharing, words)) *out.add_leaks() = leak;
    for (const report::Hazard& hazard : hazards_at(moment, sharing, &walk.framework(process)))
        *out.add_hazards() = hazard;
    for (const report::Hazard& hazard : watch.found()) *out.add_hazards() = hazard;
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
    std::vector<CurveRecorder> curves;
    std::vector<FullestMoment> fullest(trace.events.size());
    std::vector<HazardWatch> hazards;
    Sharing sharing(trace);
    SessionWalk walk(trace, [&](ProcessIndex process, const ProcessState& state, const Event& event) {
        recorders[process.value].add(state, event);
        samplers[process.value].add(state, event);
        curves[process.value].add(state, walk.framework(process), event);
        fullest[process.value].add(state, event);
        hazards[process.value].add(state, event);
        sharing.add(process, state, event);
    }, StateSeeker::kCopies);
    for (std::uint32_t index = 0; index < trace.events.size(); ++index) {
        recorders.emplace_back(trace, ProcessIndex{index});
        curves.emplace_back(trace, ProcessIndex{index});
        samplers.emplace_back(trace, ProcessIndex{index}, walk.activity({index}));
        hazards.emplace_back(trace, ProcessIndex{index});
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
        const FrameworkState& framework = walk.framework({index});
        curves[index].finish(at_end, framework);
        for (const auto& curve : curves[index].domains(at_end, framework)) *out.add_domain_curves() = curve;
        for (const auto& curve : curves[index].allocators(framework)) *out.add_allocator_curves() = curve;
        at_moments(trace, walk, {index}, fullest[index].moments(),
                   [&](int device, const ProcessState& state, const FrameworkState& books, const Event& event) {
                       if (auto live = live_at_peak(trace, {index}, state, device, event, options.stack_words))
                           *out.add_live_at_peaks() = std::move(*live);
                       *out.add_measures_at_peaks() =
                           measures_at_peak(trace, {index}, state, books, device, event, options.stack_words);
                   });
        for (const auto& leak : run.left) *out.add_left_at_end() = leak;
    }
    sharing.finish();
    for (std::uint32_t index = 0; index < trace.events.size(); ++index)
        add_leaks(trace, walk, sharing, hazards[index], {index}, options.stack_words, out);
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
    for (report::Comparison& comparison : workload_mechanisms(trace))
        *out.add_mechanisms() = std::move(comparison);
    for (report::HeldAtMoment& held : held_in(trace, options.stack_words)) *out.add_held() = std::move(held);
    if (auto management = management_of(trace)) *out.mutable_management() = std::move(*management);
    return out;
}

}  // namespace fragscope::analysis
