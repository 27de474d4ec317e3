#include "tools/words_bounds.h"

#include <fmt/format.h>

#include <string>

#include "tools/words_terms.h"

namespace fragscope::tools {

using report::Explanation;
using Tone = Page::Tone;
using Align = Table::Align;

void put_bounds(Page& page, const Explanation& explanation) {
    if (explanation.bounds().empty()) return;
    page.heading("The largest single request that would have been met, by way of allocating");
    std::string low_said, high_said;  // what holds for several in a row is said once
    for (const report::Bound& bound : explanation.bounds()) {
        std::string words = mechanism_words(bound.mechanism()) + ": " + bound_words(bound.largest());
        if (!bound.limited_by().empty()) words += "; limited by " + bound.limited_by();
        page.item("-", words + ".");
        if (!is_known(bound.largest()) && !bound.largest().reason().empty()) {
            page.paragraph("Why not known: " + bound.largest().reason(), 4, Tone::kQuiet);
        }
        if (!bound.low_evidence().empty() && bound.low_evidence() != low_said)
            page.paragraph("Lower end: " + bound.low_evidence(), 4, Tone::kQuiet);
        if (!bound.high_evidence().empty() && bound.high_evidence() != high_said)
            page.paragraph("Upper end: " + bound.high_evidence(), 4, Tone::kQuiet);
        low_said = bound.low_evidence();
        high_said = bound.high_evidence();
    }
}

namespace {

// What the recorder did, which is less than what a program would do with it.
std::string trial_words(const std::string& mechanism) {
    if (mechanism == "stitched") return "physical handles of the minimum granularity, together; not mapped";
    if (mechanism == "pool") return "from a pool of the recorder's own, which was empty (cuMemAllocFromPoolAsync)";
    return mechanism_words(mechanism);
}

}  // namespace

void put_probes(Page& page, const Explanation& explanation) {
    if (explanation.probes().empty() && explanation.probes_note().empty()) return;
    page.heading("Tried in place, right after the failure");
    if (!explanation.probes_note().empty()) page.paragraph(explanation.probes_note(), 2);
    if (explanation.probes().empty()) return;
    Table table;
    table.columns = {{"way of allocating", Align::kLeft, true},
                     {"bytes", Align::kRight},
                     {"answer", Align::kLeft, true},
                     {"took", Align::kRight}};
    for (const report::Probe& probe : explanation.probes()) {
        Table::Row row;
        row.cells = {trial_words(probe.mechanism()), human_bytes(probe.bytes()),
                     probe.bytes() == 0 ? "could not be tried"
                     : probe.granted()  ? "granted"
                                        : "refused: " + probe.result_name(),
                     human_duration(probe.duration_ns())};
        row.emphasised = probe.granted();
        table.rows.push_back(std::move(row));
    }
    page.table(table);
    page.paragraph(
        "Each speaks of its own way of allocating, its size and this moment only. A small one that was "
        "granted "
        "does not show the most that fits, and one that was refused is no proof of fragmentation by itself.",
        2, Tone::kQuiet);
}

}  // namespace fragscope::tools
