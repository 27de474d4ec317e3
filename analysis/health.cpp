#include "analysis/health.h"

#include <fmt/format.h>

#include "analysis/activity_shown.h"
#include "analysis/charged.h"
#include "analysis/kinds.h"
#include "analysis/session.h"

namespace fragscope::analysis {
namespace {

void losses_in_words(const Trace& trace, ProcessIndex process, report::Health& out) {
    const Losses losses = losses_of(trace, process);
    const std::string who = process_in_words(trace, process);
    if (process.value >= trace.losses.size() || !losses.counted) {
        // A process that never made a record has nothing to lose.
        const bool silent = process.value < trace.events.size() && trace.events[process.value].empty();
        if (!silent)
            out.add_warnings(fmt::format("How much the recording of {} lost is not in the trace.", who));
        return;
    }
    const trace::Loss& loss = trace.losses[process.value];
    out.set_records_lost(out.records_lost() + losses.records);
    if (losses.records != 0) {
        out.add_warnings(fmt::format(
            "{} records of {} were lost ({} of them acquisitions, {}): its books may be too low or "
            "too high.",
            losses.records, who, loss.acquisitions(),
            loss.acquired_bytes() != 0 ? "of at least " + in_words(loss.acquired_bytes()) + " in all"
                                       : std::string("of how many bytes is not known")));
    }
    for (const std::string& lost : lost_in_words(losses))
        out.add_warnings(fmt::format("Lost of {}: {}.", who, lost));
    if (loss.rings_damaged() != 0) {
        out.add_warnings(fmt::format("{} rings of {} were damaged and given up: what they held is not known.",
                                     loss.rings_damaged(), who));
    }
    if (loss.threads_without_ring() != 0) {
        out.add_warnings(fmt::format("{} threads of {} found no ring and were not recorded.",
                                     loss.threads_without_ring(), who));
    }
}

void add_source(const Trace& trace, report::Health& out) {
    if (!trace.session.has_provenance()) return;
    const trace::Provenance& source = trace.session.provenance();
    out.set_imported_kind(source.kind());
    out.set_imported_from(source.file());
    for (const std::string& unknown : source.unknown()) out.add_not_in_source(unknown);
}

}  // namespace

report::Health health_of(const Trace& trace) {
    report::Health out;
    out.set_file_cut_off(trace.file.cut_off);
    out.set_readable_bytes(trace.file.readable_bytes);
    if (trace.file.cut_off) {
        out.add_warnings(fmt::format(
            "The file is cut off: everything up to byte {} was read, and the recording went on after "
            "that.",
            trace.file.readable_bytes));
    }
    if (!trace.file.problem.empty()) out.add_warnings(trace.file.problem);
    for (const std::string& warning : trace.end.warnings()) out.add_warnings(warning);
    if (trace.end.processes_refused() != 0) {
        out.add_warnings(
            fmt::format("{} processes found no place in the session and are not in this trace at all.",
                        trace.end.processes_refused()));
    }
    if (trace.end.events_not_written() != 0) {
        out.add_warnings(fmt::format("{} events were recorded but could not be written to the file.",
                                     trace.end.events_not_written()));
    }
    for (std::uint32_t process = 0; process < trace.processes.size(); ++process) {
        losses_in_words(trace, {process}, out);
        const trace::Process& p = trace.processes[process];
        const bool silent = process < trace.events.size() && trace.events[process].empty();
        // What an imported file does not say of devices is no loss of the recording's: see add_source().
        if (!silent && !p.environment_complete() && !trace.session.has_provenance()) {
            out.add_warnings(
                fmt::format("What the driver says about {}'s devices is not complete in this trace.",
                            process_in_words(trace, {process})));
        }
    }
    if (trace.processes.empty() && out.warnings().empty()) {
        out.add_warnings("No process was recorded, so this trace knows of no call at all.");
    }
    out.set_complete(out.warnings().empty());
    add_source(trace, out);
    return out;
}

std::vector<std::string> blind_spots_of(const Trace& trace, ProcessIndex process, const Activity& activity) {
    std::vector<std::string> out;
    if (process.value >= trace.processes.size()) return out;
    const trace::Process& p = trace.processes[process.value];
    if (p.hooks_missing_size() != 0) {
        std::string names;
        for (int i = 0; i < p.hooks_missing_size() && i < 8; ++i)
            names += (i == 0 ? "" : ", ") + p.hooks_missing(i);
        if (p.hooks_missing_size() > 8) names += ", …";
        out.push_back(fmt::format("The driver lacks {} functions that Fragscope watches: {}.",
                                  p.hooks_missing_size(), names));
    }
    if (process.value < trace.losses.size()) {
        const trace::Loss& loss = trace.losses[process.value];
        if (loss.kernel_launches() != 0) {
            out.push_back(fmt::format(
                "{} kernels or graphs were launched; what they wrote, and memory that graphs took, was "
                "not seen.",
                loss.kernel_launches()));
        }
        if (loss.opaque_writes() != 0) {
            out.push_back(
                fmt::format("{} copies were made whose extent was not recorded.", loss.opaque_writes()));
        }
    }
    std::uint64_t captured = 0, unknown_devices = 0;
    if (process.value < trace.events.size()) {
        constexpr unsigned kFlags = wire::kCaptured | wire::kCaptureUnknown | wire::kUnknownDevice;
        trace.events[process.value].for_each_flagged(kFlags, [&](std::size_t, const Event& event) {
            if (event.has(wire::kCaptured) || event.has(wire::kCaptureUnknown)) ++captured;
            // Only what takes memory of a device needs one; a release is joined by its address.
            if (event.has(wire::kUnknownDevice) && acquires(event.kind) && !event.failed() &&
                !event.has(wire::kByShim) && !event.has(wire::kContinued)) {
                ++unknown_devices;
            }
        });
    }
    if (captured != 0) {
        out.push_back(fmt::format(
            "{} stream-ordered calls were captured into graphs, or may have been: what graphs hold is known "
            "only where the driver was asked.",
            captured));
    }
    if (unknown_devices != 0) {
        out.push_back(fmt::format(
            "For {} allocation{} the device could not be found out: no device's sums contain what was taken.",
            unknown_devices, unknown_devices == 1 ? "" : "s"));
    }
    for (std::string& past : unseen_in_words(activity)) out.push_back(std::move(past));
    return out;
}

}  // namespace fragscope::analysis
