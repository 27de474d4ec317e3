#include "tools/words_mechanisms.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tools/words_terms.h"

namespace fragscope::tools {

using report::Comparison;
using report::CostPart;
using report::Mechanism;
using Tone = Page::Tone;
using Align = Table::Align;

namespace {

std::string standing_words(Mechanism::Standing standing) {
    switch (standing) {
        case Mechanism::feasible:
            return "yes";
        case Mechanism::hypothesis:
            return "not established";
        case Mechanism::rejected:
            return "no";
        default:
            return "not known";
    }
}

const CostPart* part_of(const Mechanism& mechanism, const std::string& name) {
    for (const CostPart& cost : mechanism.costs()) {
        if (cost.part() == name) return &cost;
    }
    return nullptr;
}

// A hypothesis with a number carries a question mark.
std::string time_cell(const Mechanism& mechanism, const std::string& name) {
    const CostPart* cost = part_of(mechanism, name);
    if (cost == nullptr) return "-";
    if (cost->evidence() == CostPart::none_needed) return "none";
    if (!cost->has_low_ns() && !cost->has_high_ns()) return "not measured";
    const std::string mark = cost->evidence() == CostPart::hypothesis ? "? " : "";
    if (!cost->has_high_ns()) return mark + "at least " + human_duration(cost->low_ns());
    const std::string low = human_duration(cost->low_ns());
    const std::string high = human_duration(cost->high_ns());
    return mark + (low == high ? low : low + " to " + high);
}

std::string slack_cell(const Mechanism& mechanism) {
    for (const report::OverheadPart& part : mechanism.overhead()) {
        if (part.part() == "rounding_slack") return quantity_cell(part.bytes());
    }
    return "-";
}

std::string way_words(const Mechanism& mechanism) {
    return mechanism_words(mechanism.id()) + (mechanism.present() ? " [as it is]" : "");
}

void put_table(Page& page, const Comparison& comparison) {
    Table table;
    table.columns = {{"way of backing it", Align::kLeft, true}, {"serves it?", Align::kLeft, true},
                     {"rounding", Align::kRight, true},         {"to set up", Align::kRight, true},
                     {"each further use", Align::kRight, true}, {"slowest call", Align::kRight, true}};
    bool guessed = false;
    for (const Mechanism& mechanism : comparison.mechanisms()) {
        Table::Row row;
        row.cells = {way_words(mechanism),
                     standing_words(mechanism.standing()),
                     slack_cell(mechanism),
                     time_cell(mechanism, "setup"),
                     time_cell(mechanism, "steady_state"),
                     time_cell(mechanism, "tail")};
        for (const std::string& cell : row.cells) guessed = guessed || cell.starts_with("? ");
        row.emphasised = mechanism.standing() == Mechanism::feasible;
        if (mechanism.standing() != Mechanism::feasible) row.notes.push_back(mechanism.reason());
        table.rows.push_back(std::move(row));
    }
    page.table(table);
    page.paragraph(
        "Rounding: bytes beyond the payload. To set up: time in the driver until the first use; each further "
        "use: giving "
        "it back and getting it again; each call between its 10th and 90th percentile in this trace. Page "
        "tables and what "
        "access costs the kernels are in no column: nothing measured them.",
        2, Tone::kQuiet);
    if (guessed) {
        page.paragraph(
            "?: a hypothesis: the calls were seen at other sizes, or less often than they would be made.", 2,
            Tone::kQuiet);
    }
}

// From how many uses on a backing that is kept pays, against how often it would have been used.
void put_reuse(Page& page, const Comparison& comparison) {
    const report::Reuse& reuse = comparison.reuse();
    if (reuse.of().empty()) return;
    std::string words = fmt::format("Reuse: {} {}", grouped(reuse.acquisitions()), reuse.of());
    if (reuse.acquisitions() != 0) {
        words += fmt::format(", at most {} at once", grouped(reuse.most_at_once()));
        if (reuse.site_known())
            words += fmt::format(", {} of them from this place", grouped(reuse.at_this_site()));
        words +=
            reuse.uses_low() == reuse.uses_high()
                ? fmt::format(": {} for each that is kept", counted(reuse.uses_low(), "use"))
                : fmt::format(": {} to {} uses for each that is kept", reuse.uses_low(), reuse.uses_high());
    }
    page.paragraph(words + ".", 2);
    for (const Mechanism& mechanism : comparison.mechanisms()) {
        if (!mechanism.has_amortisation() || mechanism.standing() == Mechanism::rejected) continue;
        const report::Amortisation& amortisation = mechanism.amortisation();
        if (!amortisation.has_break_even_low()) continue;
        const std::string uses =
            !amortisation.has_break_even_high()
                ? fmt::format("{} uses or later", amortisation.break_even_low())
            : amortisation.break_even_low() == amortisation.break_even_high()
                ? counted(amortisation.break_even_low(), "use")
                : fmt::format("{} to {} uses", amortisation.break_even_low(), amortisation.break_even_high());
        const std::string paid = amortisation.paid() == report::Amortisation::yes ? "so many were seen"
                                 : amortisation.paid() == report::Amortisation::no
                                     ? "fewer were seen"
                                     : "whether so many were seen is open";
        page.item("-",
                  fmt::format(
                      "{}, kept: cheaper in the driver from {} on; {}. The memory is then held between uses.",
                      mechanism_words(mechanism.id()), uses, paid),
                  4);
    }
}

void put_settings(Page& page, const Comparison& comparison) {
    const bool any = std::any_of(
        comparison.mechanisms().begin(), comparison.mechanisms().end(), [](const Mechanism& mechanism) {
            return mechanism.settings_size() != 0 && mechanism.standing() != Mechanism::rejected;
        });
    if (!any) return;
    page.paragraph("What would apply them here:", 2);
    for (const Mechanism& mechanism : comparison.mechanisms()) {
        if (mechanism.standing() == Mechanism::rejected) continue;
        for (const report::Setting& setting : mechanism.settings()) {
            page.item("-",
                      fmt::format("{} ({}): {}. {}. It costs: {}.", setting.client(), setting.seen_by(),
                                  setting.name(), upper_first(setting.effect()), setting.cost()),
                      4);
        }
    }
}

void put_order(Page& page, const Comparison& comparison) {
    if (!comparison.has_ranking()) {
        if (!comparison.pareto_note().empty()) page.paragraph(comparison.pareto_note(), 2);
        for (const std::string& dominated : comparison.dominated())
            page.item("-", "Certainly no better: " + dominated + ".", 4);
        return;
    }
    const report::Ranking& ranking = comparison.ranking();
    page.paragraph("By " + ranking.objective() + ":", 2);
    for (const report::RankedMechanism& ranked : ranking.ranked())
        page.item(fmt::format("{}.", ranked.rank()), mechanism_words(ranked.id()) + ": " + ranked.value(), 4);
    if (ranking.ranked().empty()) page.paragraph("None can be ranked by it.", 4);
    for (const std::string& not_ranked : ranking.cannot_be_ranked()) {
        const std::size_t colon = not_ranked.find(": ");
        page.item("-",
                  fmt::format("not ranked: {}{}", mechanism_words(not_ranked.substr(0, colon)),
                              colon == std::string::npos ? "" : not_ranked.substr(colon)),
                  4, Tone::kQuiet);
    }
    page.paragraph(ranking.note(), 2, Tone::kQuiet);
}

}  // namespace

void put_mechanisms(Page& page, const report::Explanation& explanation) {
    const Comparison& comparison = explanation.mechanisms();
    if (!explanation.has_mechanisms() || comparison.mechanisms().empty()) return;
    page.heading("Other ways of backing it, side by side");
    put_table(page, comparison);
    put_reuse(page, comparison);
    put_order(page, comparison);
    put_settings(page, comparison);
}

void put_mechanisms(Page& page, const report::Report& report) {
    if (report.mechanisms().empty()) return;
    page.heading("Ways of backing what was allocated most");
    page.paragraph("By size, for what most bytes were asked for; at no particular moment.", 2, Tone::kQuiet);
    for (const Comparison& comparison : report.mechanisms()) {
        page.item("-", upper_first(comparison.subject()), 2, Tone::kStrong);
        put_table(page, comparison);
        put_reuse(page, comparison);
        put_order(page, comparison);
        put_settings(page, comparison);
    }
}

}  // namespace fragscope::tools
