// The explanation's sections, each a function from the message to lines: see words_explain.h.
#include "tools/words_explain.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <set>

#include "tools/words_balance.h"
#include "tools/words_bounds.h"
#include "tools/words_contract.h"
#include "tools/words_management.h"
#include "tools/words_measures.h"
#include "tools/words_mechanisms.h"
#include "tools/words_report.h"
#include "tools/words_stack.h"
#include "tools/words_terms.h"

namespace fragscope::tools {

using report::Counterfactual;
using report::Explanation;
using report::Quantity;
using Tone = Page::Tone;
using Align = Table::Align;

namespace {

constexpr std::size_t kFramesShown = 40;

const Counterfactual* counterfactual_of(const Explanation& explanation, const std::string& id) {
    for (const Counterfactual& one : explanation.counterfactuals()) {
        if (one.id() == id) return &one;
    }
    return nullptr;
}

// "6 GiB was available and 8 GiB was needed: 2 GiB too little", from the counterfactual with nothing removed.
std::string as_it_was_words(const Explanation& explanation) {
    const Counterfactual* as_it_was = counterfactual_of(explanation, "as_it_was");
    if (as_it_was == nullptr || !is_known(as_it_was->available()) || !is_known(as_it_was->needed()))
        return {};
    std::string words = fmt::format("As it was, the request needed {} and {} was available to it",
                                    quantity_words(as_it_was->needed()),
                                    available_words(as_it_was->available(), as_it_was->needed()));
    if (as_it_was->has_margin_low() && as_it_was->has_margin_high() &&
        as_it_was->margin_low() == as_it_was->margin_high() && as_it_was->margin_low() < 0) {
        const std::string margin = margin_cell(*as_it_was);
        words += margin.starts_with('-') ? fmt::format(": {} too little", margin.substr(1)) : ": " + margin;
    }
    return words + ".";
}

std::string removal_words(const Explanation& explanation) {
    std::string words;
    for (const std::string& removed : explanation.verdict().removed()) {
        const Counterfactual* one = counterfactual_of(explanation, removed);
        if (!words.empty()) words += "; together with ";
        words += one != nullptr && !one->removed().empty() ? one->removed() : removed;
    }
    return words;
}

// Of a combined cause: what each part is worth.
void put_shares(Page& page, const report::Verdict& verdict) {
    if (verdict.shares_size() < 2) return;
    for (const report::Verdict::Share& share : verdict.shares()) {
        report::Verdict alone;
        alone.set_cause(share.cause());
        alone.set_constraint(share.constraint());
        const bool exact =
            share.has_bytes_low() && share.has_bytes_high() && share.bytes_low() == share.bytes_high();
        page.item("-",
                  fmt::format("{}: {}{} rest on it ({})", share.in_words(), exact || !share.has_bytes_low() ? "" : "at least ",
                              share.has_bytes_low() ? human_bytes(share.bytes_low()) : "an unknown number of bytes",
                              cause_words(alone)),
                  4);
    }
}

void put_verdict(Page& page, const Explanation& explanation) {
    const report::Verdict& verdict = explanation.verdict();
    const Term cause = cause_term(verdict.cause());
    const bool none = verdict.cause() == report::Verdict::no_failure;
    const bool asked = explanation.request().hypothetical();
    const bool fits = verdict.cause() == report::Verdict::would_fit;
    std::string headline = (none ? "Nothing to explain: " : "Why it failed: ") + cause_words(verdict);
    if (asked) {
        headline = fits ? "It would have been met"
                   : verdict.cause() == report::Verdict::undetermined
                       ? "Whether it would have been met: " + cause_words(verdict)
                       : "It would not have been met: " + cause_words(verdict);
    }
    if (none && explanation.of_failures() != 0) headline = "Nothing to explain: no failed request for memory";
    if (!none && !explanation.has_request()) headline = "Whether a request failed: " + cause_words(verdict);
    page.gap();
    page.paragraph(headline, 0, fits ? Tone::kGood : Tone::kBad);
    page.paragraph(
        verdict.summary().empty() ? upper_first(std::string(cause.meaning)) + "." : verdict.summary(), 2);
    // A named limit says more than the name of its class.
    if (!verdict.summary().empty() && !none && !fits && explanation.has_request() &&
        verdict.constraint().empty()) {
        page.paragraph(fmt::format("{}: {}.", upper_first(std::string(cause.name)), cause.meaning), 2,
                       Tone::kQuiet);
    }
    if (const std::string numbers = as_it_was_words(explanation); !numbers.empty())
        page.paragraph(numbers, 2);
    if (const std::string removed = removal_words(explanation); !removed.empty()) {
        page.paragraph("It would have fitted without: " + removed + ".", 2);
        put_shares(page, verdict);
    }
    if (!verdict.deciding_measurement().empty()) {
        page.paragraph("What would decide it: " + verdict.deciding_measurement(), 2);
    }
    if (!verdict.contributing().empty()) page.paragraph("What else had a share in it:", 2);
    for (const std::string& share : verdict.contributing()) page.item("-", share, 4);
}

void put_fact(Page& page, const std::string& name, const std::string& text) {
    page.item(fmt::format("{:<14}", name), text, 2);
}

// The call of a trace: what it answered, where and when it was made.
void put_call(Page& page, const report::Request& request) {
    std::string call = request.function().empty() ? "not known" : request.function();
    if (!request.in_words().empty()) call += ": " + request.in_words();
    put_fact(page, "call", call);
    if (request.hypothetical()) {
        put_fact(page, "made by", "nobody: it was asked about");
        if (!request.chosen().empty()) put_fact(page, "chosen", request.chosen());
        put_fact(page, "where",
                 fmt::format("process {}, {}", request.process(),
                             request.device().empty() ? "device not known" : named_device(request.device())));
        put_fact(page, "when",
                 fmt::format("{}: {}, {} after the start", request.at(), request.moment(),
                             human_duration(request.time_ns())));
        return;
    }
    put_fact(page, "answer",
             request.result_name().empty() ? fmt::format("error {}", request.result())
             : request.result() == 0       ? request.result_name()
                                     : fmt::format("{} (error {})", request.result_name(), request.result()));
    put_fact(page, "where",
             fmt::format("process {}, thread {}{}, {}", request.process(), request.thread(),
                         request.thread_name().empty() ? "" : " (" + request.thread_name() + ")",
                         request.device().empty() ? "device not known" : named_device(request.device())));
    put_fact(page, "when",
             fmt::format("{} after the start, record number {} of its process",
                         human_duration(request.time_ns()), grouped(request.sequence())));
    if (!request.phases().empty()) {
        std::string phases;
        for (const std::string& phase : request.phases()) phases += (phases.empty() ? "" : " > ") + phase;
        put_fact(page, "phase", phases + " (as the program named it, the outermost first)");
    }
    if (!request.last_mark().empty()) put_fact(page, "after mark", request.last_mark());
}

void put_request(Page& page, const Explanation& explanation) {
    const report::Request& request = explanation.request();
    page.heading("The request");
    if (!explanation.has_request()) {
        page.paragraph("Not known.", 2);
        return;
    }
    if (explanation.has_scenario())
        put_fact(page, "request", request.in_words());
    else
        put_call(page, request);
    put_fact(page, "asked for", quantity_words(request.requested()));
    std::string needed = quantity_words(request.needed());
    const bool same = quantity_exact_cell(request.needed()) == quantity_exact_cell(request.requested());
    if (is_known(request.needed())) needed += same ? ", as asked for" : ", after rounding up";
    if (is_known(request.needed()) && !request.needed().reason().empty())
        needed += " (" + request.needed().reason() + ")";
    put_fact(page, "needs", needed);
    if (request.has_alignment_bytes()) {
        put_fact(page, "alignment",
                 fmt::format("{}: its address must be a multiple of this",
                             human_bytes(request.alignment_bytes())));
    }
    if (request.has_granularity_bytes()) {
        put_fact(page, "granularity",
                 fmt::format("{}: memory is taken in multiples of this",
                             human_bytes(request.granularity_bytes())));
    }
    std::string shape(contiguity_words(request.contiguity()));
    if (!request.contiguity_reason().empty()) shape += " (" + request.contiguity_reason() + ")";
    put_fact(page, "shape", shape);
    if (request.has_stack()) {
        page.paragraph("Called from, the innermost first:", 2);
        put_stack(page, request.stack(), 4, kFramesShown);
    }
}

// What of a scope differs from the one that was said already.
std::string other_scope_words(const report::Scope& scope, const report::Scope& common) {
    report::Scope different = scope;
    const bool whole_device = !scope.has_process() && common.has_process();
    if (scope.process() == common.process()) different.clear_process();
    if (scope.device() == common.device()) different.clear_device();
    if (scope.domain() == common.domain()) different.clear_domain();
    if (scope.snapshot() == common.snapshot()) different.clear_snapshot();
    if (scope.time_ns() == common.time_ns()) different.clear_time_ns();
    std::string words = whole_device ? "the device as a whole, not one process" : "";
    if (const std::string rest = scope_words(different); !rest.empty())
        words += (words.empty() ? "" : ", ") + rest;
    return words.empty() ? "a scope that is not stated" : words;
}

bool same_scope(const report::Scope& a, const report::Scope& b) {
    return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

// The scope that most of the audit's numbers share: said once, above the table.
report::Scope common_scope(const Explanation& explanation) {
    const Quantity* best = nullptr;
    std::ptrdiff_t most = 0;
    for (const Quantity& quantity : explanation.audit()) {
        const auto count =
            std::count_if(explanation.audit().begin(), explanation.audit().end(),
                          [&](const Quantity& q) { return same_scope(q.scope(), quantity.scope()); });
        if (count > most) {
            most = count;
            best = &quantity;
        }
    }
    return best == nullptr ? report::Scope() : best->scope();
}

// Exactly zero, and known to be: worth a word, not a row. (What is not known is never zero.) A device with
// nothing left is no such case: that zero is the point. Nor is one that rests on a rule about the driver: it
// gets a line, which says so.
bool is_known_zero(const Quantity& quantity) {
    if (quantity.definition() == Quantity::device_free || quantity.definition() == Quantity::eligible_free ||
        quantity.evidence() == Quantity::assumed)
        return false;
    return quantity.has_low_bytes() && quantity.has_high_bytes() && quantity.high_bytes() == 0;
}

// Whether the same definition stands in the audit once more: with an amount that gets its own row, or as an
// earlier zero.
bool quantity_elsewhere(const Explanation& explanation, const Quantity& zero) {
    bool before = true;
    for (const Quantity& other : explanation.audit()) {
        if (&other == &zero)
            before = false;
        else if (other.definition() == zero.definition() && (before || !is_known_zero(other)))
            return true;
    }
    return false;
}

// What the call cost where it was seen; otherwise what is supposed, and what would show that it is wrong.
std::string cost_words(const report::CallTimes& cost) {
    if (cost.calls() != 0) {
        return fmt::format(
            "; in this recording {} took {} (half of {}), {} (9 in 10), {} (99 in 100), {} at most",
            cost.function(), human_duration(cost.median_ns()), counted(cost.calls(), "call"),
            human_duration(cost.p90_ns()), human_duration(cost.p99_ns()), human_duration(cost.max_ns()));
    }
    if (cost.hypothesis().empty()) return {};
    return fmt::format("; what that costs is not in this recording. {}. It would be shown wrong by {}",
                       upper_first(cost.hypothesis()), cost.falsified_by());
}

void put_audit(Page& page, const Explanation& explanation) {
    page.heading("The state at that moment");
    if (explanation.audit().empty()) {
        page.paragraph("No number about the state is known.", 2);
        return;
    }
    const report::Scope common = common_scope(explanation);
    if (const std::string scope = scope_words(common); !scope.empty()) {
        page.paragraph("One snapshot: " + scope + ". A number that holds elsewhere says so.", 2,
                       Tone::kQuiet);
    }
    Table table;
    table.columns = {{"quantity", Align::kLeft, true},
                     {"bytes", Align::kRight, true},
                     {"exact", Align::kRight, true},
                     {"how known", Align::kLeft}};
    std::set<Quantity::Definition> explained;
    std::set<Quantity::Evidence> used;
    std::string zero;
    for (const Quantity& quantity : explanation.audit()) {
        const Term term = definition_term(quantity.definition());
        if (is_known_zero(quantity)) {
            if (!quantity_elsewhere(explanation, quantity))
                zero += (zero.empty() ? "" : ", ") + std::string(term.name);
            continue;
        }
        // They have sections of their own, further down.
        if (quantity.definition() == Quantity::largest_allocatable ||
            (quantity.definition() == Quantity::eligible_free && quantity.of() != "physical"))
            continue;
        const Term evidence = evidence_term(quantity.evidence());
        Table::Row row;
        row.cells = {
            std::string(term.name) + (quantity.of().empty() ? "" : ": " + domain_words(quantity.of())),
            quantity_cell(quantity), quantity_exact_cell(quantity),
            is_known(quantity) ? std::string(evidence.name) : "-"};
        std::string note;
        if (explained.insert(quantity.definition()).second) note = fmt::format("{}. ", term.meaning);
        if (!same_scope(quantity.scope(), common)) {
            note += "Holds for: " + other_scope_words(quantity.scope(), common) + ". ";
        }
        note += quantity.reason().empty() ? "" : (is_known(quantity) ? "How: " : "Why: ") + quantity.reason();
        if (!quantity.by().empty()) {
            note += fmt::format("{}By: {}{}", quantity.reason().empty() ? "" : ". ", quantity.by(),
                                cost_words(quantity.cost()));
        }
        if (!note.empty()) row.notes = {upper_first(note)};
        if (is_known(quantity)) used.insert(quantity.evidence());
        table.rows.push_back(std::move(row));
    }
    page.table(table);
    if (!zero.empty()) page.paragraph("Known to be zero: " + zero + ".", 2);
    page.paragraph("What is eligible in other domains, and the largest allocatable by each mechanism: below.",
                   2, Tone::kQuiet);
    if (zero.find("other recorded processes") != std::string::npos) {
        page.paragraph("What processes hold that were not recorded is in unattributed.", 2, Tone::kQuiet);
    }
    page.gap();
    for (const Quantity::Evidence evidence : used) {
        const Term term = evidence_term(evidence);
        page.item(fmt::format("{:<9}", term.name), fmt::format("= {}", term.meaning), 2, Tone::kQuiet);
    }
}

// Two amounts that differ but read alike are both written out exactly.
std::pair<std::string, std::string> compared_cells(const Quantity& available, const Quantity& needed) {
    const bool known = is_known(available) && is_known(needed);
    const std::string below = available_cell(available, needed);
    if (below != quantity_cell(available)) return {below, quantity_cell(needed)};
    if (known && (read_alike(available.low_bytes(), needed.low_bytes()) ||
                  read_alike(available.high_bytes(), needed.high_bytes()))) {
        return {quantity_exact_cell(available), quantity_exact_cell(needed)};
    }
    return {quantity_cell(available), quantity_cell(needed)};
}

void put_counterfactuals(Page& page, const Explanation& explanation) {
    page.heading("What if");
    if (explanation.counterfactuals().empty()) {
        page.paragraph("No change was tried on paper for this failure.", 2);
        return;
    }
    page.paragraph(
        "Each line takes one thing away and leaves all else as it was. Would the request have fitted then?",
        2, Tone::kQuiet);
    Table table;
    table.columns = {{"without", Align::kLeft, true},
                     {"available", Align::kRight, true},
                     {"needed", Align::kRight, true},
                     {"fits?", Align::kLeft, true},
                     {"margin", Align::kRight, true}};
    bool any_interval = false;
    // What does not apply, by its reason: one reason often stands for several.
    std::vector<std::pair<std::string, std::string>> elsewhere;
    for (const Counterfactual& one : explanation.counterfactuals()) {
        const auto [available, needed] = compared_cells(one.available(), one.needed());
        std::string removed = one.removed().empty() ? one.id() : one.removed();
        if (one.outcome() == Counterfactual::not_applicable) {
            const auto same = std::find_if(elsewhere.begin(), elsewhere.end(),
                                           [&](const auto& each) { return each.first == one.reason(); });
            if (same == elsewhere.end())
                elsewhere.emplace_back(one.reason(), removed);
            else
                same->second += "; " + removed;
            continue;
        }
        if (one.id() == "as_it_was") removed = "(nothing: as it was)";
        Table::Row row;
        row.cells = {removed, available, needed, std::string(outcome_words(one.outcome())), margin_cell(one)};
        row.emphasised = one.outcome() == Counterfactual::fits;
        if (!one.reason().empty()) row.notes.push_back(one.reason());
        if (!one.call().empty()) row.notes.push_back("Done by: " + one.call());
        any_interval = any_interval || (one.has_margin_low() && one.has_margin_high() &&
                                        one.margin_low() < 0 && one.margin_high() >= 0);
        table.rows.push_back(std::move(row));
    }
    page.table(table);
    page.paragraph("margin = available - needed; below zero it does not fit.", 2, Tone::kQuiet);
    if (any_interval) {
        page.paragraph("Where the margin runs from below zero to above it, the trace cannot tell.", 2,
                       Tone::kQuiet);
    }
    if (!elsewhere.empty()) page.paragraph("Does not apply here:", 2, Tone::kQuiet);
    for (const auto& [reason, removed] : elsewhere)
        page.item("-", reason.empty() ? removed : removed + ": " + reason, 4, Tone::kQuiet);
}

void put_list(Page& page, const std::string& heading,
              const google::protobuf::RepeatedPtrField<std::string>& texts, bool numbered,
              const std::string& none) {
    page.heading(heading);
    if (texts.empty()) page.paragraph(none, 2);
    int number = 0;
    for (const std::string& text : texts) page.item(numbered ? fmt::format("{}.", ++number) : "-", text);
}

// What a reader has to know of numbers that a person wrote down.
void put_scenario(Page& page, const report::ScenarioSource& source, const report::Health& health) {
    for (const std::string& warning : health.warnings()) page.item("!", warning, 0, Tone::kWarning);
    page.paragraph(
        !source.kind().empty()
            ? "No recording, but " + source.kind() +
                  ": its numbers are taken at their word, as exactly as they are written, and what it does not say is "
                  "listed below."
            : std::string("A state as a person wrote it down, not a recording: its numbers are taken at their word, and what "
        "it does not "
        "say is not known."),
        0, Tone::kQuiet);
    if (source.inexact().empty()) return;
    std::string names;
    for (const std::string& name : source.inexact()) names += (names.empty() ? "" : ", ") + name;
    page.paragraph("Not exact: " + names + ".", 0, Tone::kQuiet);
}

// "failure:3" -> "Failure 3"; of a hypothetical request: what was asked
std::string title_of(const Explanation& explanation) {
    if (explanation.has_scenario()) {
        const report::ScenarioSource& source = explanation.scenario();
        if (!source.kind().empty()) {
            return fmt::format("Failure {}{} of {}{}: {}", explanation.id().substr(explanation.id().find(':') + 1),
                               explanation.of_failures() > 1 ? fmt::format(" of {}", explanation.of_failures()) : "",
                               source.file(), source.line() == 0 ? "" : fmt::format(", line {}", source.line()),
                               source.title());
        }
        return fmt::format("Scenario {}{}, line {} of {}", explanation.id(),
                           source.title().empty() ? "" : " (" + source.title() + ")", source.line(),
                           source.file());
    }
    std::string title = "Explanation";
    const bool failure = explanation.id().starts_with("failure:");
    if (failure) title = "Failure " + explanation.id().substr(8);
    if (explanation.request().hypothetical())
        title = fmt::format("If {} had been asked for, at {}",
                            human_bytes(explanation.request().requested().low_bytes()),
                            explanation.request().at());
    if (explanation.of_failures() != 0 && failure) {
        title += fmt::format(" of {}", explanation.of_failures());
    }
    if (!explanation.trace().empty()) title += " in " + explanation.trace();
    return title;
}

}  // namespace

std::string render_explanation(const Explanation& explanation, const Style& style, Pages pages) {
    Page page(style);
    page.title(title_of(explanation));
    if (explanation.has_scenario())
        put_scenario(page, explanation.scenario(), explanation.health());
    else
        put_health(page, explanation.health());
    put_verdict(page, explanation);
    // Without a request there is a sentence, and nothing that could be said of a state.
    if (explanation.id().empty() && !explanation.has_request()) return page.text();
    if (explanation.verdict().cause() == report::Verdict::no_failure) return page.text();
    if (explanation.verdict().cause() == report::Verdict::not_an_allocation) {
        // No memory was short, so no state is laid out and nothing is tried on paper.
        if (!explanation.actions().empty()) put_list(page, "What to do", explanation.actions(), true, "");
        put_request(page, explanation);
        return page.text();
    }
    // First what a person came for; then what it rests on.
    put_list(page, "What to do", explanation.actions(), true, "Nothing that this trace gives reason for.");
    put_counterfactuals(page, explanation);
    if (pages == Pages::kBrief) {
        page.paragraph(
            "Without --brief also: the request and who made it, every number of that moment and how it is "
            "known, "
            "fragmentation by domain, the largest requests that would have been met, and what is not known.",
            0, Tone::kQuiet);
        return page.text();
    }
    put_request(page, explanation);
    put_contract(page, explanation);
    if (explanation.has_balance()) {
        page.heading("Where the device's memory was");
        std::set<std::string> explained;
        put_balance(page, explanation.balance(), explained);
    }
    put_management(page, explanation);
    put_audit(page, explanation);
    put_domains(page, explanation);
    put_measures(page, explanation.measures());
    put_bounds(page, explanation);
    put_probes(page, explanation);
    put_mechanisms(page, explanation);
    put_list(page, "What is not known", explanation.not_known(), false,
             "Nothing further is known to be missing.");
    return page.text();
}

}  // namespace fragscope::tools
