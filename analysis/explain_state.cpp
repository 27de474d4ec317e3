#include "analysis/explain_state.h"

#include <fmt/format.h>

#include "analysis/explain_scenario.h"

namespace fragscope::analysis {

namespace {

void add_source(const ImportedStates& states, const ImportedState* state, report::Health& health) {
    health.set_imported_kind(state != nullptr ? state->kind : states.kind);
    health.set_imported_from(states.file);
    for (const std::string& warning : states.warnings) health.add_warnings(warning);
    if (states.before_them != 0) {
        health.add_warnings(fmt::format("The file tells of more failed requests than are kept: the first {} of {} are "
                                        "counted and not shown.",
                                        states.before_them, failures_in(states)));
    }
    if (state != nullptr) {
        for (const std::string& warning : state->warnings) health.add_warnings(warning);
        for (const std::string& what : state->not_in_source) health.add_not_in_source(what);
    }
    health.set_complete(health.warnings().empty());
}

void add_amounts(const Scenario& scenario, report::ReadState& out) {
    Scope scope;
    scope.device = scenario.device_name;
    const auto add = [&](report::Quantity::Definition definition, const Interval& bytes, const char* what) {
        if (!bytes.high && bytes.low.value_or(0) == 0) return;
        *out.add_amounts() = (bytes.exact() ? Quantity::measured(definition, *bytes.low, scope, what)
                                            : Quantity::bounded(definition, bytes, scope, what))
                                 .message();
    };
    const ScenarioDevice& device = scenario.device;
    add(report::Quantity::requested, scenario.request.bytes, "the request that failed");
    add(report::Quantity::capacity, device.capacity, "the device");
    if (device.device_free) add(report::Quantity::device_free, *device.device_free, "as the driver said");
    if (device.allocator_limit)
        add(report::Quantity::capacity, *device.allocator_limit, "the most that the allocator may reserve");
    if (device.other_processes.high != std::optional<std::uint64_t>(0))
        add(report::Quantity::other_processes, device.other_processes, "other processes");
    Interval reserved = Interval::exactly(0), live = reserved, waiting = reserved;
    for (const ScenarioSegment& segment : scenario.segments) {
        reserved = reserved + segment.bytes;
        for (const ScenarioBlock& block : segment.blocks) (block.pending ? waiting : live) = (block.pending ? waiting : live) + block.bytes;
    }
    if (scenario.segments.empty()) return;
    add(report::Quantity::charged, reserved, "segments of the allocator");
    add(report::Quantity::live, live, "blocks in use");
    add(report::Quantity::pending_free, waiting, "blocks that wait for their stream");
}

// What joins the gaps of an allocator that is not PyTorch's: the rest of the analysis names PyTorch's settings.
struct Remedy {
    const char* setting;
    const char* action;
};

Remedy remedy_of(const std::string& kind) {
    if (kind == "bfc-dump" || kind == "xla-message")
        return {"TF_GPU_ALLOCATOR=cuda_malloc_async (TensorFlow), the cuda_async allocator (JAX)",
                "Let the driver's pool do it: TF_GPU_ALLOCATOR=cuda_malloc_async (TensorFlow), the cuda_async allocator "
                "(JAX). It maps single pages side by side, so that pieces need not lie together; measure what that costs "
                "on the workload."};
    if (kind.starts_with("rmm"))
        return {"RMM's cuda_async or arena resource instead of its pool",
                "Use RMM's cuda_async resource: the driver's pool maps single pages side by side, so that pieces need not "
                "lie together; or a pool whose initial size is its maximum, which is one piece from the start."};
    return {"fewer long-lived blocks between short-lived ones",
            "Allocate what lives long before what comes and goes, or use an allocator over the driver's pool "
            "(cudaMallocAsync), which maps single pages side by side."};
}

bool names_torch(const std::string& text) {
    return text.find("PYTORCH") != std::string::npos || text.find("torch.") != std::string::npos ||
           text.find("max_split_size_mb") != std::string::npos;
}

void without_torch(const std::string& kind, report::Explanation& out) {
    const Remedy remedy = remedy_of(kind);
    for (report::Counterfactual& row : *out.mutable_counterfactuals())
        if (names_torch(row.call())) row.set_call(row.id() == "with_framework_gaps_merged" ? remedy.setting : "");
    for (report::Quantity& quantity : *out.mutable_audit())
        if (names_torch(quantity.by())) quantity.clear_by();
    report::Explanation kept;
    for (const std::string& action : out.actions()) {
        if (!names_torch(action)) {
            kept.add_actions(action);
        } else if (kept.actions().empty() || kept.actions(0) != remedy.action) {
            kept.add_actions(remedy.action);
        }
    }
    *out.mutable_actions() = kept.actions();
}

}  // namespace

std::uint64_t failures_in(const ImportedStates& states) { return states.before_them + states.states.size(); }

report::Explanation explain_state(const ImportedStates& states, std::size_t index, std::optional<Shape> contract) {
    const ImportedState& state = states.states[index];
    report::Explanation out = explain_scenario(state.scenario, contract);
    const std::uint64_t number = states.before_them + index + 1;
    out.set_id(fmt::format("failure:{}", number));
    out.set_of_failures(static_cast<std::uint32_t>(failures_in(states)));
    report::ScenarioSource& source = *out.mutable_scenario();
    source.set_file(states.file);
    source.set_line(state.line);
    source.set_kind(state.in_words);
    add_source(states, &state, *out.mutable_health());
    if (!state.kind.starts_with("torch")) without_torch(state.kind, out);
    // What the source does not say comes before what no such state can say.
    report::Explanation with;
    for (const std::string& what : state.not_in_source) with.add_not_known(what);
    for (const std::string& what : out.not_known()) with.add_not_known(what);
    *out.mutable_not_known() = with.not_known();
    return out;
}

report::Report report_of(const ImportedStates& states) {
    report::Report out;
    out.set_trace(states.file);
    add_source(states, nullptr, *out.mutable_health());
    for (std::size_t i = 0; i < states.states.size(); ++i) {
        const ImportedState& state = states.states[i];
        report::ReadState& read = *out.add_states();
        read.set_number(static_cast<std::uint32_t>(states.before_them + i + 1));
        read.set_line(state.line);
        read.set_kind(state.kind);
        read.set_kind_in_words(state.in_words);
        read.set_title(state.scenario.title);
        add_amounts(state.scenario, read);
        *read.mutable_verdict() = explain_scenario(state.scenario).verdict();
        for (const std::string& what : state.not_in_source) read.add_not_in_source(what);
        for (const std::string& warning : state.warnings) {
            read.add_warnings(warning);
            out.mutable_health()->set_complete(false);
        }
    }
    return out;
}

}  // namespace fragscope::analysis
