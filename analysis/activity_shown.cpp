#include "analysis/activity_shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/session.h"
#include "analysis/situation.h"

namespace fragscope::analysis {
namespace {

const char* state_id(wire::CuptiState state) {
    switch (state) {
        case wire::CuptiState::kOn:
            return "on";
        case wire::CuptiState::kNoLibrary:
            return "no_library";
        case wire::CuptiState::kOthersUse:
            return "others_use";
        case wire::CuptiState::kRefused:
            return "refused";
        case wire::CuptiState::kUnknownVersion:
            return "unknown_version";
        case wire::CuptiState::kEnded:
            return "ended";
        case wire::CuptiState::kFinished:
            return "finished";
        case wire::CuptiState::kForked:
            return "forked";
    }
    return "unknown";
}

// CUpti_ActivityMemoryKind.
std::string kind_in_words(const UnseenBlock& block) {
    switch (block.memory_kind) {
        case 2:
            return "pinned";
        case 3:
            return block.pooled ? "stream-ordered" : "linear";
        case 4:
            return "array";
        case 5:
            return "managed";
        default:
            return fmt::format("kind {}", block.memory_kind);
    }
}

std::string device_name(const Trace& trace, ProcessIndex process, int device) {
    if (device == kNoDevice) return "";
    const std::string uuid = device_uuid(trace, process, device);
    return uuid.empty() ? fmt::format("device {}", device) : uuid;
}

bool forever(TimeNs to) { return to.value == UINT64_MAX; }

void add_unseen(const Trace& trace, ProcessIndex process, const Activity& activity,
                report::ActivitySummary& out) {
    std::map<std::tuple<std::string, int, std::string>, report::UnseenPlace> places;
    for (const UnseenBlock& block : activity.unseen) {
        report::UnseenPlace& place = places[{block.file, block.device, kind_in_words(block)}];
        place.set_count(place.count() + 1);
        place.set_bytes(place.bytes() + block.bytes);
        if (!forever(block.to)) continue;
        place.set_left_count(place.left_count() + 1);
        place.set_left_bytes(place.left_bytes() + block.bytes);
    }
    for (auto& [key, place] : places) {
        place.set_file(std::get<0>(key));
        place.set_device(device_name(trace, process, std::get<1>(key)));
        place.set_kind(std::get<2>(key));
        *out.add_unseen() = place;
    }
}

void add_residency(const Trace& trace, ProcessIndex process, const Activity& activity,
                   report::ActivitySummary& out) {
    std::map<int, const ResidencyStep*> most;
    for (const ResidencyStep& step : activity.residency) {
        const ResidencyStep*& known = most[step.device];
        if (known == nullptr || step.bytes > known->bytes) known = &step;
    }
    for (const auto& [device, step] : most) {
        if (step->bytes == 0) continue;
        Scope scope;
        scope.process = process.value;
        scope.device = device_name(trace, process, device);
        scope.domain = "physical";
        scope.time_ns = since_start(trace, step->time);
        *out.add_resident() =
            Quantity::bounded(
                report::Quantity::resident, {step->bytes, std::nullopt}, scope,
                "managed memory that CUPTI's counters say was moved to the device and not back; pages that "
                "kernels touched first are not counted")
                .message();
    }
}

const char* or_lost(bool lost, std::uint64_t count) {
    if (!lost) return "";
    return count == 1 ? " or is among its lost records" : " or are among its lost records";
}

}  // namespace

std::optional<report::ActivitySummary> activity_shown(const Trace& trace, ProcessIndex process,
                                                      const Activity& activity) {
    if (activity.states.empty()) return std::nullopt;
    report::ActivitySummary out;
    out.set_process(process.value);
    out.set_state(state_id(activity.states.back().state));
    out.set_in_words(activity_in_words(activity));
    out.set_used(activity.used);
    out.set_matched(activity.matched);
    out.set_only_cupti(activity.unseen.size());
    out.set_only_calls(activity.only_calls);
    out.set_expected_only_calls(activity.expected_only_calls);
    out.set_released_unseen(activity.released_unseen);
    out.set_released_unseen_bytes(activity.released_unseen_bytes);
    out.set_other_size(activity.other_size);
    out.set_dropped(activity.dropped);
    out.set_records_missing(activity.records_missing);
    out.set_acquisitions_lost(activity.acquisitions_lost);
    out.set_releases_lost(activity.releases_lost);
    add_unseen(trace, process, activity, out);
    for (const StaticVariable& variable : activity.statics) {
        report::StaticVariable& shown = *out.add_statics();
        shown.set_name(variable.name);
        shown.set_device(device_name(trace, process, variable.device));
        shown.set_bytes(variable.bytes);
        shown.set_managed(variable.managed);
        shown.set_left(forever(variable.to));
    }
    add_residency(trace, process, activity, out);
    return out;
}

std::vector<std::string> unseen_in_words(const Activity& activity) {
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> files;
    for (const UnseenBlock& block : activity.unseen) {
        auto& [count, bytes] = files[block.file];
        ++count;
        bytes += block.bytes;
    }
    std::vector<std::string> out;
    for (const auto& [file, seen] : files) {
        out.push_back(
            fmt::format("{} allocation{} ({} in all) went past the recording{} and {} seen by CUPTI only{}.",
                        seen.first, seen.first == 1 ? "" : "s", in_words(seen.second),
                        or_lost(activity.acquisitions_lost, seen.first), seen.first == 1 ? "was" : "were",
                        file.empty() ? "" : ": " + file + " asked for " + (seen.first == 1 ? "it" : "them")));
    }
    if (activity.released_unseen != 0) {
        out.push_back(
            fmt::format("{} release{} of memory that calls took ({}) went past the recording{} and {} seen "
                        "by CUPTI only: "
                        "the books hold that memory still.",
                        activity.released_unseen, activity.released_unseen == 1 ? "" : "s",
                        in_words(activity.released_unseen_bytes),
                        or_lost(activity.releases_lost, activity.released_unseen),
                        activity.released_unseen == 1 ? "was" : "were"));
    }
    if (activity.dropped != 0) {
        out.push_back(
            fmt::format("CUPTI dropped {} of its records, or gave no time for them: what it alone told of may "
                        "have been released, and more may have gone past the recording.",
                        activity.dropped));
    }
    return out;
}

}  // namespace fragscope::analysis
