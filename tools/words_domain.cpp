#include "tools/words_domain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tools/words_terms.h"

namespace fragscope::tools {
namespace {

using Align = Table::Align;
using Tone = Page::Tone;

constexpr std::size_t kShown = 24;

void put_extents(Page& page, const google::protobuf::RepeatedPtrField<report::DomainExtent>& extents,
                 const char* header, bool with_words) {
    std::vector<const report::DomainExtent*> order;
    for (const report::DomainExtent& extent : extents) order.push_back(&extent);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->bytes() > b->bytes(); });
    Table table;
    table.columns = {{header, Align::kLeft}, {"bytes", Align::kRight, true}, {"exact", Align::kRight, true}};
    if (with_words) table.columns.push_back({"what", Align::kLeft, true});
    for (std::size_t i = 0; i < std::min(order.size(), kShown); ++i) {
        Table::Row row;
        row.cells = {order[i]->address() == 0 ? "no address" : fmt::format("{:#x}", order[i]->address()),
                     human_bytes(order[i]->bytes()), exact_bytes(order[i]->bytes())};
        if (with_words) row.cells.push_back(order[i]->what());
        table.rows.push_back(std::move(row));
    }
    page.table(table);
    if (order.size() > kShown)
        page.paragraph(
            fmt::format("{} more; --json has all of them.", counted(order.size() - kShown, "extent")), 2);
}

}  // namespace

void put_domain(Page& page, const report::DomainExtents& domain) {
    page.heading(fmt::format("The domain {}", domain.name()));
    if (domain.eligible_free().empty()) page.paragraph("What lies between its extents is not known.", 2);
    for (const report::FreeExtents& free : domain.eligible_free()) {
        page.item("-",
                  fmt::format("{}: {} in {}; the largest: {}.", upper_first(free.what()),
                              quantity_words(free.sum()),
                              free.extents().empty() && is_known(free.sum()) && free.sum().low_bytes() != 0
                                  ? std::string("extents that are not known")
                                  : counted(free.count(), "extent"),
                              quantity_words(free.largest())),
                  2);
        if (!free.extents().empty()) put_extents(page, free.extents(), "extent at", false);
    }
    page.gap();
    if (domain.held().empty()) {
        page.paragraph("The records show nothing in it.", 2);
    } else {
        page.paragraph(fmt::format("In it, the largest of {}:",
                                   counted(static_cast<std::uint64_t>(domain.held_size()), "extent")),
                       2);
        put_extents(page, domain.held(), "held at", true);
    }
    page.gap();
    for (const std::string& what : domain.not_known())
        page.item("-", fmt::format("Not known: {}.", what), 2, Tone::kQuiet);
}

}  // namespace fragscope::tools
