#include "tools/words_activity.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/words_terms.h"

namespace fragscope::tools {
namespace {

constexpr int kVariablesShown = 12;

// What only CUPTI saw need not have gone past the recording, if that lost such records.
const char* or_lost(bool lost, std::uint64_t count) {
    if (!lost) return "";
    return count == 1 ? " or is among its lost records" : " or are among its lost records";
}

void put_unseen(Page& page, const report::ActivitySummary& activity) {
    for (const report::UnseenPlace& place : activity.unseen()) {
        std::string line = fmt::format(
            "{} of {} memory ({}) went past the recording{}", counted(place.count(), "allocation"),
            place.kind(), human_bytes(place.bytes()), or_lost(activity.acquisitions_lost(), place.count()));
        if (!place.file().empty()) line += ", asked for by " + place.file();
        line += place.left_count() == 0 ? "; all were released."
                                        : fmt::format("; of {} of them ({}) no release was told.",
                                                      place.left_count(), human_bytes(place.left_bytes()));
        page.item("!", line, 4, Page::Tone::kWarning);
    }
    if (activity.released_unseen() != 0) {
        page.item(
            "!",
            fmt::format(
                "{} of memory that calls took ({}) went past the recording{}: the sums hold it still.",
                counted(activity.released_unseen(), "release"), human_bytes(activity.released_unseen_bytes()),
                or_lost(activity.releases_lost(), activity.released_unseen())),
            4, Page::Tone::kWarning);
    }
}

void put_variables(Page& page, const report::ActivitySummary& activity) {
    if (activity.statics().empty()) return;
    std::vector<const report::StaticVariable*> largest;
    std::uint64_t all = 0;
    for (const report::StaticVariable& variable : activity.statics()) {
        largest.push_back(&variable);
        all += variable.bytes();
    }
    std::stable_sort(largest.begin(), largest.end(),
                     [](const auto* a, const auto* b) { return a->bytes() > b->bytes(); });
    std::string names;
    for (std::size_t i = 0; i < largest.size() && i < kVariablesShown; ++i) {
        names += fmt::format("{}{} {}{}", i == 0 ? "" : ", ",
                             largest[i]->name().empty() ? "(no name)" : largest[i]->name(),
                             human_bytes(largest[i]->bytes()), largest[i]->managed() ? " (managed)" : "");
    }
    if (largest.size() > kVariablesShown) names += ", …";
    page.paragraph(
        fmt::format("{} of device code, {} as they were loaded: {}.",
                    counted(static_cast<std::uint64_t>(largest.size()), "variable"), human_bytes(all), names),
        4);
}

}  // namespace

void put_activities(Page& page, const report::Report& report) {
    if (report.activities().empty()) return;
    page.heading("What CUPTI says beside the calls");
    for (const report::ActivitySummary& activity : report.activities()) {
        page.item("-", report.processes_size() > 1
                           ? fmt::format("process {}: {}", activity.process(), activity.in_words())
                           : activity.in_words());
        if (!activity.used()) continue;
        std::string counts =
            fmt::format("{} told by both",
                        counted(activity.matched(), "allocation or release", "allocations and releases"));
        counts += activity.only_cupti() == 0
                      ? ", none by CUPTI only"
                      : fmt::format(", {} by CUPTI only", counted(activity.only_cupti(), "allocation"));
        if (activity.only_calls() != 0)
            counts += fmt::format(", {} by calls only", counted(activity.only_calls(), "allocation"));
        if (activity.expected_only_calls() != 0)
            counts += fmt::format("; of {} CUPTI is not known to tell",
                                  counted(activity.expected_only_calls(), "physical handle"));
        if (activity.other_size() != 0)
            counts +=
                fmt::format("; of {} it states another size", counted(activity.other_size(), "allocation"));
        page.paragraph(counts + ".", 4);
        if (activity.dropped() != 0)
            page.paragraph(
                fmt::format("CUPTI dropped {}, or gave no time for them: what it alone told of may have been "
                            "released, and more "
                            "may have gone past the recording.",
                            counted(activity.dropped(), "record")),
                4, Page::Tone::kWarning);
        put_unseen(page, activity);
        put_variables(page, activity);
        for (const report::Quantity& resident : activity.resident())
            page.paragraph(fmt::format("Managed memory on {}: {} resident at the most that was told.",
                                       resident.scope().device(), quantity_words(resident)),
                           4);
    }
}

}  // namespace fragscope::tools
