#include "tools/words_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/words_terms.h"

namespace fragscope::tools {

namespace {

using Tone = Page::Tone;

constexpr int kStatesShown = 20;

}  // namespace

void put_states(Page& page, const report::Report& report) {
    page.heading("Failed requests that it tells of");
    const int from = std::max(0, report.states_size() - kStatesShown);
    if (from != 0) page.paragraph(fmt::format("The last {} of {}; report --json lists them all.", kStatesShown,
                                              grouped(static_cast<std::uint64_t>(report.states_size()))), 2);
    for (int i = from; i < report.states_size(); ++i) {
        const report::ReadState& state = report.states(i);
        page.item(fmt::format("{}.", state.number()),
                  fmt::format("{} ({}{}).", state.title(), state.kind_in_words(),
                              state.line() == 0 ? "" : fmt::format(", line {}", state.line())),
                  2, Tone::kStrong);
        Table table;
        table.columns = {{"what it states", Table::Align::kLeft, true}, {"bytes", Table::Align::kRight}};
        for (const report::Quantity& amount : state.amounts()) {
            Table::Row row;
            row.cells = {amount.reason(), quantity_cell(amount)};
            table.rows.push_back(std::move(row));
        }
        if (!table.rows.empty()) page.table(table);
        page.paragraph("Cause: " + cause_words(state.verdict()), 5, Tone::kBad);
        page.paragraph(state.verdict().summary(), 5);
        for (const std::string& warning : state.warnings()) page.item("!", warning, 5, Tone::kWarning);
        if (!state.not_in_source().empty()) {
            page.paragraph("It does not say:", 5);
            for (const std::string& what : state.not_in_source()) page.item("-", what, 7);
        }
    }
    page.paragraph("For all about one of them: fragscope explain FILE --failure NUMBER", 2, Tone::kQuiet);
}

}  // namespace fragscope::tools
