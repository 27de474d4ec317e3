// The report's sections, each a function from the message to lines: see words_report.h.
#include "tools/words_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/words_activity.h"
#include "tools/words_balance.h"
#include "tools/words_chart.h"
#include "tools/words_leaks.h"
#include "tools/words_management.h"
#include "tools/words_measures.h"
#include "tools/words_mechanisms.h"
#include "tools/words_stack.h"
#include "tools/words_states.h"
#include "tools/words_terms.h"

namespace fragscope::tools {

using report::Report;
using Tone = Page::Tone;
using Align = Table::Align;

void put_health(Page& page, const report::Health& health) {
    const std::vector<std::string> warnings = health_warnings(health);
    if (!health.imported_kind().empty()) {
        page.paragraph(fmt::format("This is no recording, but what {} ({}) says{}. What it does not say:",
                                   health.imported_from(), health.imported_kind(),
                                   warnings.empty() ? "" : ", as far as it could be read"),
                       0);
        for (const std::string& unknown : health.not_in_source()) page.item("-", unknown, 2);
        for (const std::string& warning : warnings) page.item("!", warning, 2, Tone::kWarning);
        return;
    }
    if (warnings.empty()) {
        page.paragraph("The recording is complete: nothing is known to be missing.", 0, Tone::kGood);
        return;
    }
    page.paragraph("Something is missing from this recording. Everything below is weaker for it:", 0,
                   Tone::kWarning);
    for (const std::string& warning : warnings) page.item("!", warning, 2, Tone::kWarning);
}

namespace {

constexpr int kFailuresShown = 20;
constexpr std::size_t kFramesShown = 4;

// Two devices of one name are told apart by their UUIDs.
std::string device_words(const Report& report, const std::string& uuid) {
    if (uuid.empty()) return "no device";
    for (const report::DeviceSummary& device : report.devices()) {
        if (device.uuid() == uuid && !device.name().empty())
            return fmt::format("{} ({})", device.name(), uuid);
    }
    return uuid;
}

std::string process_words(const Report& report, std::uint32_t index) {
    for (const report::ProcessSummary& process : report.processes()) {
        if (process.index() != index) continue;
        return fmt::format("process {} ({})", index,
                           !process.executable().empty() ? process.executable()
                           : process.pid() != 0          ? fmt::format("pid {}", process.pid())
                                                         : std::string("pid not known"));
    }
    return fmt::format("process {}", index);
}

// Behind "nothing was found".
const char* unless_complete(const Report& report) {
    return health_warnings(report.health()).empty()
               ? ""
               : " But something is missing from the recording: see the top.";
}

std::string joined(const google::protobuf::RepeatedPtrField<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : " ") + part;
    return text;
}

// How a process ended, as the recording writes it (trace.proto), in words.
std::string ended_words(const std::string& how) {
    if (how.empty()) return "How it ended is not known.";
    if (how == "unknown") {
        return "It is gone; how it ended is not known, because fragscope did not start this process itself.";
    }
    if (how == "detached") return "It ended in an orderly way; its exit status is not known.";
    if (how == "exec") return "It became another program (exec).";
    if (how == "still running") return "It was still running when the recording ended.";
    return fmt::format("Ended: {}.", how);
}

void put_processes(Page& page, const Report& report) {
    page.heading("What ran");
    if (report.processes().empty()) {
        page.paragraph("No process was recorded.", 2);
        return;
    }
    page.paragraph(
        fmt::format("{}, recorded for {}.",
                    counted(static_cast<std::uint64_t>(report.processes_size()), "process", "processes"),
                    human_duration(report.duration_ns())),
        2);
    for (const report::ProcessSummary& process : report.processes()) {
        const std::string line =
            process.command_line().empty() ? process.executable() : joined(process.command_line());
        page.item("-", fmt::format("process {}, pid {}: {}", process.index(),
                                   process.pid() != 0 ? fmt::format("{}", process.pid()) : "not known",
                                   line.empty() ? "its command line is not known" : line));
        std::string facts = ended_words(process.ended_how());
        facts += fmt::format(" {}, {} of them failed.", counted(process.events(), "recorded event"),
                             process.failures() == 0 ? "none" : grouped(process.failures()));
        facts += process.has_driver_version()
                     ? fmt::format(" CUDA driver {},", shown_version(process.driver_version()))
                     : " CUDA driver version not known,";
        facts += process.has_runtime_version()
                     ? fmt::format(" runtime {}.", shown_version(process.runtime_version()))
                     : " runtime version not known.";
        page.paragraph(facts, 4);
        for (const std::string& note : process.notes()) page.paragraph(note, 4);
    }
}

std::string granularity_words(bool known, std::uint64_t bytes) {
    return known ? human_bytes(bytes) : "not known";
}

void put_allocator_snapshot(Page& page, const report::DeviceSummary& device) {
    page.paragraph(
        fmt::format("By the framework's snapshot: its allocator had {} of the driver's memory in {}, cut into {}. {} of "
                    "it were in use, {} freed by the program and waiting for a stream, {} in no use: the largest block "
                    "of that was {}, and {} lay in segments that held nothing in use and nothing waiting. Its trace "
                    "has {}.",
                    both_bytes(device.reserved_bytes()), counted(device.segments(), "segment"),
                    counted(device.blocks(), "block"), both_bytes(device.allocated_bytes()),
                    both_bytes(device.active_bytes() - device.allocated_bytes()), both_bytes(device.inactive_bytes()),
                    both_bytes(device.largest_inactive_bytes()), both_bytes(device.wholly_free_segment_bytes()),
                    counted(device.trace_entries(), "entry", "entries")),
        4);
}

void put_devices(Page& page, const Report& report) {
    page.heading("Devices");
    if (report.devices().empty()) {
        page.paragraph("No device was seen.", 2);
        return;
    }
    for (const report::DeviceSummary& device : report.devices()) {
        page.item("-", fmt::format("{}, {}", device.name().empty() ? "name not known" : device.name(),
                                   device.uuid().empty() ? "UUID not known" : device.uuid()));
        page.paragraph("Capacity: " + quantity_words(device.capacity()) + ".", 4);
        page.paragraph(fmt::format("Granularity (physical memory is handed out in multiples of this): "
                                   "minimum {}, recommended {}.",
                                   granularity_words(device.has_minimum_granularity_bytes(),
                                                     device.minimum_granularity_bytes()),
                                   granularity_words(device.has_recommended_granularity_bytes(),
                                                     device.recommended_granularity_bytes())),
                       4);
        if (device.has_segments()) put_allocator_snapshot(page, device);
    }
}

void put_failures(Page& page, const Report& report) {
    page.heading("Failures");
    if (report.failures().empty()) {
        page.paragraph(std::string("No recorded call failed.") + unless_complete(report), 2);
        return;
    }
    for (int i = 0; i < std::min(report.failures_size(), kFailuresShown); ++i) {
        const report::FailureSummary& failure = report.failures(i);
        page.item(
            fmt::format("{}.", failure.number()),
            fmt::format("{} {} {} after the start, in {}.", failure.function(),
                        failure.result_name().empty() ? fmt::format("failed with error {}", failure.result())
                        : failure.result() == 0       ? "(" + failure.result_name() + ")"
                                                      : "failed with " + failure.result_name(),
                        human_duration(failure.time_ns()), process_words(report, failure.process())),
            2, Tone::kStrong);
        if (!failure.request().empty()) page.paragraph("Asked for: " + failure.request(), 5);
        if (failure.has_stack()) {
            page.paragraph("Called from:", 5);
            put_stack(page, failure.stack(), 7, kFramesShown);
        }
        const Term cause = cause_term(failure.verdict().cause());
        page.paragraph("Cause: " + cause_words(failure.verdict()), 5, Tone::kBad);
        page.paragraph(failure.verdict().summary().empty() ? upper_first(std::string(cause.meaning)) + "."
                                                           : failure.verdict().summary(),
                       5);
    }
    if (report.failures_size() > kFailuresShown) {
        page.paragraph(
            fmt::format(
                "and {}: report --json lists them all.",
                counted(static_cast<std::uint64_t>(report.failures_size() - kFailuresShown), "more failure")),
            2);
    }
    page.paragraph("For all about one of them: fragscope explain TRACE --failure NUMBER", 2, Tone::kQuiet);
}

void put_timelines(Page& page, const Report& report) {
    for (const report::Timeline& timeline : report.timelines()) {
        page.heading(fmt::format("Memory over time: {}, {}", process_words(report, timeline.process()),
                                 named_device(device_words(report, timeline.device()))));
        ChartFrame frame;
        frame.duration_ns = report.duration_ns();
        for (const report::DeviceSummary& device : report.devices()) {
            const report::Quantity& capacity = device.capacity();
            if (device.uuid() == timeline.device() && capacity.has_low_bytes() &&
                capacity.low_bytes() == capacity.high_bytes()) {
                frame.capacity_bytes = capacity.low_bytes();
            }
        }
        for (const report::FailureSummary& failure : report.failures()) {
            if (failure.process() == timeline.process()) frame.failures_ns.push_back(failure.time_ns());
        }
        draw_timeline(page, timeline, frame);
    }
}

void put_peaks(Page& page, const Report& report) {
    if (report.peaks().empty()) return;
    page.heading("Peaks");
    page.paragraph("Each at its own moment: they must not be added up.", 2, Tone::kQuiet);
    Table table;
    table.columns = {{"what", Align::kLeft, true},
                     {"peak", Align::kRight, true},
                     {"exact", Align::kRight, true},
                     {"how known", Align::kLeft},
                     {"after", Align::kRight}};
    std::vector<report::Quantity::Definition> explained;
    for (const report::Peak& peak : report.peaks()) {
        const report::Quantity& quantity = peak.quantity();
        const Term term = definition_term(quantity.definition());
        Table::Row row;
        row.cells = {std::string(term.name), quantity_cell(quantity), quantity_exact_cell(quantity),
                     is_known(quantity) ? std::string(evidence_term(quantity.evidence()).name) : "-",
                     quantity.scope().has_time_ns() ? human_duration(quantity.scope().time_ns()) : "-"};
        std::string note;
        if (std::find(explained.begin(), explained.end(), quantity.definition()) == explained.end()) {
            explained.push_back(quantity.definition());
            note = upper_first(fmt::format("{}. ", term.meaning));
        }
        report::Scope where = quantity.scope();
        where.clear_time_ns();
        where.clear_snapshot();
        if (report.processes_size() == 1) where.clear_process();
        if (report.devices_size() == 1) where.clear_device();
        if (const std::string scope = scope_words(where); !scope.empty()) note += "In: " + scope + ". ";
        if (!quantity.reason().empty()) note += (is_known(quantity) ? "How: " : "Why: ") + quantity.reason();
        row.notes = {note};
        table.rows.push_back(std::move(row));
    }
    page.table(table);
}

void put_left_at_end(Page& page, const Report& report) {
    page.heading("Left at the end (allocated, and not given back in this recording)");
    if (report.left_at_end().empty()) {
        page.paragraph(std::string("Nothing.") + unless_complete(report), 2);
        return;
    }
    Table table;
    table.columns = {{"what", Align::kLeft, true},
                     {"where", Align::kLeft, true},
                     {"count", Align::kRight},
                     {"bytes", Align::kRight}};
    for (const report::Leak& leak : report.left_at_end()) {
        Table::Row row;
        row.cells = {
            leak.what(),
            fmt::format("process {}{}{}", leak.process(), leak.device().empty() ? "" : ", ", leak.device()),
            grouped(leak.count()), quantity_cell(leak.bytes())};
        if (!is_known(leak.bytes()) && !leak.bytes().reason().empty())
            row.notes.push_back(leak.bytes().reason());
        if (!leak.note().empty()) row.notes.push_back(leak.note());
        table.rows.push_back(std::move(row));
    }
    page.table(table);
}

// The list of what was left has sums already: of that the classes add only the places that took it.
LeakClasses beside_what_was_left(const Report& report) {
    LeakClasses out;
    for (const report::LeakClass& leak : report.leaks()) {
        if (leak.kind() != report::LeakClass::never_freed || !leak.sites().empty()) *out.Add() = leak;
    }
    return out;
}

void put_costs(Page& page, const Report& report) {
    if (report.costs().empty()) return;
    page.heading("What the calls cost (time inside the driver, this recording)");
    Table table;
    table.columns = {{"function", Align::kLeft, true}, {"calls", Align::kRight},
                     {"failed", Align::kRight},        {"median", Align::kRight},
                     {"99 % below", Align::kRight},    {"longest", Align::kRight}};
    for (const report::FunctionCost& cost : report.costs()) {
        Table::Row row;
        row.cells = {cost.function(),
                     grouped(cost.calls()),
                     grouped(cost.failed()),
                     cost.has_median_ns() ? human_duration(cost.median_ns()) : "-",
                     cost.has_p99_ns() ? human_duration(cost.p99_ns()) : "-",
                     cost.has_max_ns() ? human_duration(cost.max_ns()) : "-"};
        table.rows.push_back(std::move(row));
    }
    page.table(table);
}

void put_blind_spots(Page& page, const Report& report) {
    page.heading("What could not be seen");
    bool any = false;
    for (const report::ProcessSummary& process : report.processes()) {
        for (const std::string& spot : process.blind_spots()) {
            page.item("-", report.processes_size() > 1 ? fmt::format("process {}: {}", process.index(), spot)
                                                       : spot);
            any = true;
        }
    }
    const bool complete = health_warnings(report.health()).empty();
    if (!complete) page.paragraph("What is missing from this recording: see the top.", 2);
    if (!any && complete) page.paragraph("No blind spot is known in this recording.", 2);
}

// No calls were recorded, so what follows from calls is not to be told, not even that there is none of it.
bool only_a_profile(const Report& report) {
    return !report.held().empty() &&
           std::all_of(report.processes().begin(), report.processes().end(),
                       [](const report::ProcessSummary& process) { return process.events() == 0; });
}

}  // namespace

std::string render_report(const Report& report, const Style& style) {
    Page page(style);
    page.title("Report of " + (report.trace().empty() ? "a recording" : report.trace()));
    if (!report.states().empty()) {
        // Each has its own list of what is missing.
        for (const std::string& warning : report.health().warnings()) page.item("!", warning, 0, Tone::kWarning);
        put_states(page, report);
        return page.text();
    }
    put_health(page, report.health());
    if (only_a_profile(report)) {
        put_held(page, report);
        return page.text();
    }
    put_processes(page, report);
    put_devices(page, report);
    put_failures(page, report);
    put_timelines(page, report);
    put_curves(page, report);
    put_balances(page, report);
    put_activities(page, report);
    put_management(page, report);
    put_peaks(page, report);
    put_live_at_peaks(page, report);
    put_held(page, report);
    put_measures_at_peaks(page, report);
    put_left_at_end(page, report);
    put_leaks(page, beside_what_was_left(report), "Ways of holding memory that are rarely meant (at the end)",
              report.processes_size() > 1, unless_complete(report));
    put_hazards(page, report.hazards(), report.processes_size() > 1, unless_complete(report));
    put_costs(page, report);
    put_mechanisms(page, report);
    put_blind_spots(page, report);
    return page.text();
}

}  // namespace fragscope::tools
