// The measures of fragmentation: see words_measures.h.
#include "tools/words_measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/words_chart.h"
#include "tools/words_stack.h"
#include "tools/words_terms.h"

namespace fragscope::tools {

using report::Quantity;
using Tone = Page::Tone;
using Align = Table::Align;

namespace {

constexpr int kDomainsShown = 10;
constexpr int kSitesShown = 5;
constexpr std::size_t kFramesShown = 4;

// "4 MiB to 8 MiB"
std::string class_words(std::uint64_t at_least) {
    if (at_least == 0) return "0 B";
    if (at_least > UINT64_MAX / 2) return human_bytes(at_least) + " or more";
    return fmt::format("{} to {}", human_bytes(at_least), human_bytes(at_least * 2));
}

// "37 %", "between 12 % and 40 %", "at most 40 %".
std::string ratio_words(const report::Ratio& ratio) {
    const bool low = ratio.has_low();
    const bool high = ratio.has_high();
    if (low && high && ratio.low() == ratio.high()) return human_ratio(ratio.low());
    if (low && high && ratio.low() > 0)
        return fmt::format("{} to {}", human_ratio(ratio.low()), human_ratio(ratio.high()));
    if (high) return "at most " + human_ratio(ratio.high());
    if (low) return "at least " + human_ratio(ratio.low());
    return "not known";
}

// How many extents there are of which size: not where there is nothing to compare.
void put_classes(Page& page, const report::Domain& domain) {
    if (domain.free_extents() < 2 || domain.extent_classes().empty()) return;
    Table table;
    table.columns = {{"usable pieces of", Align::kLeft}, {"count", Align::kRight}, {"in all", Align::kRight}};
    for (const report::ExtentClass& each : domain.extent_classes()) {
        table.rows.push_back(
            {{class_words(each.at_least_bytes()), grouped(each.count()), human_bytes(each.sum_bytes())},
             {},
             false});
    }
    page.table(table, 4);
}

void put_domain(Page& page, const report::Domain& domain) {
    page.item("-", domain.name().empty() ? "domain without a name" : upper_first(domain_words(domain.name())),
              2, Tone::kStrong);
    if (!is_known(domain.free_sum()) && !is_known(domain.free_largest()) && !is_known(domain.charged())) {
        page.paragraph("Nothing is known of it: " + (domain.free_sum().reason().empty()
                                                         ? std::string("no record speaks of it.")
                                                         : domain.free_sum().reason() + "."),
                       4);
        return;
    }
    std::string outside = "Usable and unused: " + quantity_words(domain.free_sum()) + " in all";
    if (domain.has_free_extents()) outside += ", in " + counted(domain.free_extents(), "piece");
    outside += "; the largest piece: " + quantity_words(domain.free_largest()) + ".";
    if (domain.unusable_bytes() != 0) {
        outside += fmt::format(" Alignment to {} and multiples of {} leave out {} more.",
                               human_bytes(domain.alignment_bytes()), human_bytes(domain.granularity_bytes()),
                               human_bytes(domain.unusable_bytes()));
    }
    page.paragraph(outside, 4);
    page.paragraph(
        domain.has_external_ratio()
            ? fmt::format("External fragmentation: {} of it lies outside the largest piece.",
                          human_ratio(domain.external_ratio()))
            : fmt::format(
                  "External fragmentation (the share outside the largest piece): not known{}.",
                  domain.external_ratio_reason().empty() ? "" : ": " + domain.external_ratio_reason()),
        4);
    put_classes(page, domain);
    // What was written and what was asked for are two measures of payload: each under its own name.
    const bool written = domain.requested().definition() == Quantity::payload_written;
    page.paragraph(
        fmt::format("Charged: {}; {}: {}; internal waste (charged, and {}): {}.",
                    quantity_words(domain.charged()), written ? "payload written" : "requested",
                    quantity_words(domain.requested()), written ? "nothing wrote to it" : "never asked for",
                    quantity_words(domain.internal_waste())),
        4);
    page.paragraph(
        domain.has_internal_ratio()
            ? fmt::format("Internal fragmentation: {} of what was charged is waste{}.",
                          human_ratio(domain.internal_ratio()),
                          domain.internal_waste().evidence() == Quantity::assumed
                              ? ", by a rule about the driver that this trace does not show"
                              : "")
            : std::string("Internal fragmentation (waste as a share of what was charged): not known."),
        4);
    if (!domain.note().empty()) page.paragraph(domain.note(), 4, Tone::kQuiet);
}

Table::Row row_of(const report::InternalRow& row, const std::string& name) {
    return {{name, grouped(row.count()), quantity_cell(row.charged()), quantity_cell(row.requested()),
             quantity_cell(row.internal_waste()), ratio_words(row.ratio())},
            {},
            false};
}

std::string allocator_words(const report::InternalRow& row) {
    return row.allocator() +
           (row.requested().definition() == Quantity::payload_written ? " (payload: written)" : "");
}

void put_internal(Page& page, const report::Measures& measures) {
    page.heading("What is charged and holds nothing");
    page.paragraph(
        "Of live allocations: what is charged for them, what of it holds payload (what was asked for; of VMM "
        "handles, what was written), and the rest.",
        2, Tone::kQuiet);
    Table table;
    table.columns = {{"allocator", Align::kLeft, true}, {"count", Align::kRight},
                     {"charged", Align::kRight, true},  {"payload", Align::kRight, true},
                     {"waste", Align::kRight, true},    {"share", Align::kRight, true}};
    for (const report::InternalRow& row : measures.by_allocator()) {
        table.rows.push_back(row_of(row, allocator_words(row)));
        const auto own = [&](const report::InternalRow& each) { return each.allocator() == row.allocator(); };
        // One size alone is the allocator once more.
        if (std::count_if(measures.by_size_class().begin(), measures.by_size_class().end(), own) < 2)
            continue;
        for (const report::InternalRow& each : measures.by_size_class()) {
            if (own(each)) table.rows.push_back(row_of(each, ". of " + class_words(each.at_least_bytes())));
        }
    }
    page.table(table);
    if (measures.by_call_site().empty()) return;
    page.paragraph("The places in the program that are charged most:", 2);
    for (int i = 0; i < std::min(measures.by_call_site_size(), kSitesShown); ++i) {
        const report::InternalRow& row = measures.by_call_site(i);
        page.item("-", fmt::format("{}, {}: {} charged, waste {} ({}).", allocator_words(row),
                                   counted(row.count(), "allocation"), quantity_cell(row.charged()),
                                   quantity_cell(row.internal_waste()), ratio_words(row.ratio())));
        if (row.has_stack())
            put_stack(page, row.stack(), 4, kFramesShown);
        else
            page.paragraph("No call stack was recorded.", 4, Tone::kQuiet);
    }
    const std::uint64_t others = measures.other_sites() + static_cast<std::uint64_t>(std::max(
                                                              measures.by_call_site_size() - kSitesShown, 0));
    if (others != 0) page.paragraph(fmt::format("And {} more places.", grouped(others)), 2, Tone::kQuiet);
}

void put_others(Page& page, const report::Measures& measures) {
    page.heading("Other definitions in use");
    page.paragraph(
        "What others call fragmentation, under its own name; not to be compared with the shares above.", 2,
        Tone::kQuiet);
    for (const report::OtherMeasure& each : measures.others()) {
        std::string value = each.has_bytes() ? quantity_words(each.bytes()) : ratio_words(each.ratio());
        if (!each.has_bytes() && !each.ratio().reason().empty()) value += ": " + each.ratio().reason();
        page.item("-", fmt::format("{}, {}: {}.", each.of(), each.name(), value));
        if (is_known(each.first()) && is_known(each.second())) {
            page.paragraph(fmt::format("From {} and {}. {}", quantity_cell(each.first()),
                                       quantity_cell(each.second()), each.note()),
                           4, Tone::kQuiet);
        }
    }
}

}  // namespace

void put_domains(Page& page, const report::Explanation& explanation) {
    if (explanation.domains().empty()) return;
    page.heading("How fragmented it was");
    page.paragraph(
        "Per domain (the memory or addresses that one kind of request may use); never added up across "
        "domains. "
        "A share outside the largest piece is a diagnostic: a request may fail where it is small, and be met "
        "where "
        "it is large.",
        2, Tone::kQuiet);
    const int shown = std::min(explanation.domains_size(), kDomainsShown);
    for (int i = 0; i < shown; ++i) put_domain(page, explanation.domains(i));
    if (explanation.domains_size() > shown) {
        page.paragraph(
            fmt::format("And {} more domains: --json lists them.", explanation.domains_size() - shown), 2,
            Tone::kQuiet);
    }
}

void put_measures(Page& page, const report::Measures& measures) {
    if (!measures.by_allocator().empty()) put_internal(page, measures);
    if (!measures.others().empty()) put_others(page, measures);
}

namespace {

constexpr std::size_t kCurvesShown = 6;

std::string where_words(std::uint32_t process, const std::string& device, bool several) {
    std::string words = several ? fmt::format("process {}", process) : "";
    if (!device.empty()) words += (words.empty() ? "" : ", ") + named_device(device);
    return words.empty() ? "" : " (" + words + ")";
}

void put_allocator(Page& page, const report::Report& report, const report::AllocatorCurve& curve) {
    std::uint64_t most = 0;
    for (const report::AllocatorPoint& point : curve.points()) most = std::max(most, point.reserved_bytes());
    std::vector<Strip> strips = {{"in segments", {}, most, true},
                                 {"- live blocks", {}, most, true},
                                 {"- waiting for events", {}, most, true},
                                 {"- cached", {}, most, true}};
    for (const report::AllocatorPoint& point : curve.points()) {
        strips[0].points.emplace_back(point.time_ns(), point.reserved_bytes());
        strips[1].points.emplace_back(point.time_ns(), point.live_bytes());
        strips[2].points.emplace_back(point.time_ns(), point.waiting_bytes());
        strips[3].points.emplace_back(point.time_ns(), point.cached_bytes());
    }
    page.paragraph(fmt::format("Framework's allocator{} (a full bar is {})",
                               where_words(curve.process(), curve.device(), report.processes_size() > 1),
                               human_bytes(most)),
                   2);
    draw_strips(page, strips, report.duration_ns());
    if (!curve.note().empty()) page.paragraph(curve.note(), 2, Tone::kQuiet);
}

void put_domain_curve(Page& page, const report::Report& report, const report::DomainCurve& curve) {
    std::uint64_t most = 0;
    bool largest_known = false;
    for (const report::DomainPoint& point : curve.points()) {
        most = std::max(most, point.free_sum_bytes());
        largest_known = largest_known || point.has_free_largest_bytes();
    }
    page.paragraph(fmt::format("{}{} (a full bar is {})", upper_first(domain_words(curve.domain())),
                               where_words(curve.process(), curve.device(), report.processes_size() > 1),
                               human_bytes(most)),
                   2);
    std::vector<Strip> strips = {{"usable and unused", {}, most, false}};
    if (largest_known) {
        strips.push_back({"- the largest piece", {}, most, false});
        strips.push_back({"- share outside of it", {}, kShareIsFull, false});
    }
    for (const report::DomainPoint& point : curve.points()) {
        strips[0].points.emplace_back(point.time_ns(), point.free_sum_bytes());
        if (!largest_known) continue;
        if (point.has_free_largest_bytes())
            strips[1].points.emplace_back(point.time_ns(), point.free_largest_bytes());
        if (point.has_external_ratio()) {
            strips[2].points.emplace_back(
                point.time_ns(), static_cast<std::uint64_t>(point.external_ratio() * double{kShareIsFull}));
        }
    }
    draw_strips(page, strips, report.duration_ns());
    if (!curve.note().empty()) page.paragraph(curve.note(), 2, Tone::kQuiet);
}

}  // namespace

void put_curves(Page& page, const report::Report& report) {
    // A domain in which nothing was ever unused has nothing to be drawn.
    std::vector<const report::DomainCurve*> drawn;
    for (const report::DomainCurve& curve : report.domain_curves()) {
        if (std::any_of(curve.points().begin(), curve.points().end(),
                        [](const report::DomainPoint& point) { return point.free_sum_bytes() != 0; }))
            drawn.push_back(&curve);
    }
    if (report.allocator_curves().empty() && drawn.empty()) return;
    page.heading("Fragmentation over time");
    page.paragraph(
        "Each domain by itself. The share outside the largest piece is a diagnostic, no promise that a "
        "request would "
        "have been met.",
        2, Tone::kQuiet);
    for (const report::AllocatorCurve& curve : report.allocator_curves()) put_allocator(page, report, curve);
    for (std::size_t i = 0; i < std::min(drawn.size(), kCurvesShown); ++i)
        put_domain_curve(page, report, *drawn[i]);
    if (drawn.size() > kCurvesShown)
        page.paragraph(fmt::format("And {} more domains: --json lists them.", drawn.size() - kCurvesShown),
                       2);
    put_legend(page);
}

void put_measures_at_peaks(Page& page, const report::Report& report) {
    for (const report::MeasuresAtPeak& peak : report.measures_at_peaks()) {
        page.heading(fmt::format("Fragmentation when most was held{}",
                                 where_words(peak.process(), peak.device(), report.processes_size() > 1)));
        page.paragraph(
            fmt::format("{} after the start, at record number {}: {} live.", human_duration(peak.time_ns()),
                        grouped(peak.sequence()), quantity_words(peak.held())),
            2);
        int shown = 0;
        for (const report::Domain& domain : peak.domains()) {
            if (domain.free_extents() != 0 && ++shown <= kDomainsShown) put_domain(page, domain);
        }
        put_measures(page, peak.measures());
    }
}

}  // namespace fragscope::tools
