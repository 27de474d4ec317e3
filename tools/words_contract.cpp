#include "tools/words_contract.h"

#include <fmt/format.h>

#include <string>

#include "tools/words_terms.h"

namespace fragscope::tools {

using report::Contract;
using Tone = Page::Tone;

namespace {

std::string shape_words(Contract::Shape shape) {
    switch (shape) {
        case Contract::physical:
            return std::string(contiguity_words(report::Request::physical));
        case Contract::virtual_only:
            return std::string(contiguity_words(report::Request::virtual_only));
        case Contract::segmented:
            return std::string(contiguity_words(report::Request::segmented));
        default:
            return "not known";
    }
}

std::string seen_words(const report::Consumer& consumer) {
    std::string functions;
    for (const std::string& function : consumer.functions())
        functions += (functions.empty() ? "" : ", ") + function;
    return (consumer.count() == 1 ? std::string("once") : grouped(consumer.count()) + " times") +
           (functions.empty() ? "" : ": " + functions);
}

}  // namespace

void put_contract(Page& page, const report::Explanation& explanation) {
    if (!explanation.has_contract()) return;
    const Contract& contract = explanation.contract();
    if (contract.shape() == Contract::shape_unspecified && contract.consumers().empty()) return;
    page.heading("What its memory has to look like");
    page.paragraph(
        upper_first(shape_words(contract.shape())) +
            (contract.declared() ? ", as was declared (--contract)." : ", as far as the call shows."),
        2);
    if (contract.declared() && contract.shape() != contract.inferred())
        page.paragraph("The call and the program show: " + shape_words(contract.inferred()) + ".", 2);
    if (!contract.reasoning().empty()) page.paragraph("Why: " + contract.reasoning() + ".", 2, Tone::kQuiet);
    if (!contract.consumers().empty()) {
        page.paragraph("Who used memory of its kind until then, and what each takes for granted:", 2);
        for (const report::Consumer& consumer : contract.consumers())
            page.item("-", fmt::format("{} ({}): {}.", consumer.what(), seen_words(consumer), consumer.why()),
                      4);
    }
    if (!contract.to_be_checked().empty()) {
        page.paragraph("Declared weaker than that. Each of these has to be checked before it may be so:", 2,
                       Tone::kStrong);
        for (const std::string& who : contract.to_be_checked()) page.item("-", who + ".", 4);
    } else if (!contract.not_visible().empty()) {
        page.paragraph("Not visible in this trace:", 2, Tone::kQuiet);
        for (const std::string& hidden : contract.not_visible())
            page.item("-", hidden + ".", 4, Tone::kQuiet);
    }
}

}  // namespace fragscope::tools
