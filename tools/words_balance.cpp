#include "tools/words_balance.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/words_terms.h"

namespace fragscope::tools {
namespace {

using report::Balance;
using Tone = Page::Tone;
using Align = Table::Align;

bool is_zero(const report::Quantity& quantity) {
    return quantity.has_low_bytes() && quantity.has_high_bytes() && quantity.high_bytes() == 0;
}

template <typename Strings>
std::string listed(const Strings& parts, const char* between) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : between) + part;
    return out;
}

Table::Row row_of(const std::string& what, const report::Quantity& quantity) {
    Table::Row row;
    row.cells = {what, quantity_cell(quantity), quantity_exact_cell(quantity),
                 is_known(quantity) ? std::string(evidence_term(quantity.evidence()).name) : "-"};
    return row;
}

}  // namespace

void put_balance(Page& page, const Balance& balance, std::set<std::string>& explained) {
    Table table;
    table.columns = {{"memory of the device", Align::kLeft, true},
                     {"bytes", Align::kRight, true},
                     {"exact", Align::kRight, true},
                     {"how known", Align::kLeft}};
    table.rows.push_back(row_of("taken on the device, by anybody", balance.taken()));
    table.rows.back().emphasised = true;
    const auto explain = [&](const std::string& id, const report::Quantity& quantity) {
        if (quantity.reason().empty()) return;
        const bool first = explained.insert(id + quantity.reason()).second;
        if (first) table.rows.back().notes = {(is_known(quantity) ? "How: " : "Why: ") + quantity.reason()};
    };
    explain("taken", balance.taken());
    std::string zero;
    for (const report::BalancePart& part : balance.parts()) {
        if (is_zero(part.bytes())) {
            zero += (zero.empty() ? "" : "; ") + part.what();
            continue;
        }
        table.rows.push_back(row_of("- " + part.what(), part.bytes()));
        explain(part.id(), part.bytes());
    }
    table.rows.push_back(row_of("= explained by no record (unattributed)", balance.unattributed()));
    table.rows.back().emphasised = true;
    explain("rest", balance.unattributed());
    page.table(table, 4);
    if (!zero.empty()) page.paragraph("Zero: " + zero + ".", 4, Tone::kQuiet);
    if (!balance.contradiction().empty()) {
        page.paragraph("These numbers contradict each other: " + balance.contradiction() + ".", 4,
                       Tone::kBad);
    }
    if (!balance.may_hold().empty()) {
        page.paragraph(
            "What no record explains holds, among other things: " + listed(balance.may_hold(), "; ") + ".",
            4);
    }
    if (!balance.since_before().empty()) {
        page.paragraph(
            "Happened since the driver was asked before, or since the start, which is not to say that it is "
            "the "
            "cause: " +
                listed(balance.since_before(), "; ") + ".",
            4);
    }
}

void put_balances(Page& page, const report::Report& report) {
    if (report.balances().empty() && report.balances_missing().empty()) return;
    page.heading("Where the devices' memory was");
    if (!report.balances().empty()) {
        page.paragraph(
            "What the driver says is taken, less what the records explain. Each at its own moment; memory "
            "that no "
            "record explains is of contexts, code, processes that were not recorded, and the driver itself.",
            2, Tone::kQuiet);
    }
    std::set<std::string> explained;
    for (const Balance& balance : report.balances()) {
        std::string where =
            report.processes_size() > 1 ? fmt::format(", asked in process {}", balance.process()) : "";
        if (report.devices_size() > 1) where += ", " + balance.device();
        page.item("-",
                  fmt::format("{}, {} after the start{}", upper_first(listed(balance.moments(), " and ")),
                              human_duration(balance.time_ns()), where),
                  2, Tone::kStrong);
        put_balance(page, balance, explained);
    }
    if (!report.balances_missing().empty()) page.paragraph(report.balances_missing(), 2);
}

}  // namespace fragscope::tools
