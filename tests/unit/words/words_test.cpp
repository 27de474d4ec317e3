// Numbers, wrapping, tables and the dictionary behind `fragscope report` and `fragscope explain`.
#include "tools/words.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "tests/unit/words/unqualified.h"
#include "tools/words_chart.h"
#include "tools/words_explain.h"
#include "tools/words_json.h"
#include "tools/words_report.h"
#include "tools/words_terms.h"

using namespace fragscope;
using namespace fragscope::tools;
using report::Quantity;

namespace {

Quantity between(std::uint64_t low, std::uint64_t high) {
    Quantity quantity;
    quantity.set_low_bytes(low);
    quantity.set_high_bytes(high);
    return quantity;
}

std::size_t widest_line(const std::string& text) {
    std::size_t widest = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        widest = std::max(widest, display_width(text.substr(at, end - at)));
        at = end + 1;
    }
    return widest;
}

}  // namespace

TEST_CASE("byte counts are exact where they look exact") {
    CHECK(human_bytes(0) == "0 B");
    CHECK(human_bytes(1023) == "1023 B");
    CHECK(human_bytes(1024) == "1 KiB");
    CHECK(human_bytes(2 << 20) == "2 MiB");
    CHECK(human_bytes((3 << 19)) == "1.50 MiB");
    CHECK(human_bytes((1 << 30) - 1) == "1.00 GiB");  // not "1024 MiB", and not "1 GiB"
    CHECK(human_bytes(std::numeric_limits<std::uint64_t>::max()) == "16.0 EiB");
    CHECK(exact_bytes(1572864) == "1,572,864 B");
    CHECK(both_bytes(2 << 20) == "2 MiB");
    CHECK(both_bytes((2 << 20) + 1) == "2.00 MiB (2,097,153 B)");
}

TEST_CASE("margins carry their sign over the whole range") {
    CHECK(human_margin(0) == "0 B");
    CHECK(human_margin(1 << 20) == "+1 MiB");
    CHECK(human_margin(-1) == "-1 B");
    CHECK(human_margin(std::numeric_limits<std::int64_t>::min()) == "-8 EiB");
}

TEST_CASE("durations and ratios") {
    CHECK(human_duration(0) == "0 s");
    CHECK(human_duration(999) == "999 ns");
    CHECK(human_duration(1520) == "1.52 us");
    CHECK(human_duration(999'999) == "1.00 ms");
    CHECK(human_duration(61'000'000'000) == "61.0 s");
    CHECK(human_duration(3'600'000'000'000) == "60 min 00 s");
    CHECK(human_duration(7'320'000'000'000) == "2 h 02 min");
    CHECK(human_ratio(0) == "0 %");
    CHECK(human_ratio(1) == "100 %");
    CHECK(human_ratio(0.00001) == "less than 0.1 %");
    CHECK(human_ratio(0.99999) == "more than 99.9 %");
    CHECK(human_ratio(0.4666) == "47 %");
    CHECK(human_ratio(std::numeric_limits<double>::quiet_NaN()) == "not known");
}

TEST_CASE("nothing of a trace's texts can steer the terminal") {
    CHECK(printable("a\x1b[2J\nb\x7f", true) == "a\\x1b[2J b\\x7f");
    CHECK(printable("\xc3\xa9", true) == "\xc3\xa9");
    CHECK(printable("\xc3\xa9", false) == "\\xc3\\xa9");
    CHECK(printable("a\u2026b", false) == "a...b");
    CHECK(printable("\xc3", true) == "\\xc3");           // cut off
    CHECK(printable("\xc0\xaf", true) == "\\xc0\\xaf");  // too long an encoding
    CHECK(printable("\xc2\x9b"
                    "31m",
                    true) == "\\xc2\\x9b31m");                    // C1 control sequence introducer
    CHECK(printable("\xe2\x80\xae", true) == "\\xe2\\x80\\xae");  // turns the writing direction
    CHECK(printable("\xed\xa0\x80", true) == "\\xed\\xa0\\x80");  // surrogate
}

TEST_CASE("wrapping keeps the width, every word, and a number with its unit") {
    const auto lines = wrap("a request of 12 GiB did not fit", 15);
    CHECK(lines == std::vector<std::string>{"a request of", "12 GiB did not", "fit"});
    CHECK(wrap("", 10) == std::vector<std::string>{""});
    CHECK(wrap("abcdefghij", 4) == std::vector<std::string>{"abcd", "efgh", "ij"});
    CHECK(wrap("\xc3\xa9\xc3\xa9\xc3\xa9", 2) == std::vector<std::string>{"\xc3\xa9\xc3\xa9", "\xc3\xa9"});
    CHECK(wrap("x", 0) == std::vector<std::string>{"x"});
}

TEST_CASE("a table keeps to the page, and stands as a list where it cannot") {
    Table table;
    table.columns = {{"name", Table::Align::kLeft, true}, {"bytes", Table::Align::kRight}};
    table.rows = {{{"a name of many words that must be wrapped", "12 GiB"}, {"a note"}, false}};
    for (const int width : {20, 30, 80}) {
        Page page(Style{width, false, false});
        page.table(table);
        CHECK(widest_line(page.text()) <= static_cast<std::size_t>(width));
        CHECK(page.text().find("12 GiB") != std::string::npos);
    }
    Page narrow(Style{18, false, false});
    narrow.table(table);
    CHECK(narrow.text().find("bytes: 12 GiB") != std::string::npos);
}

TEST_CASE("colour only where the style has it") {
    Page plain(Style{80, false, false});
    plain.title("x");
    CHECK(plain.text() == "x\n");
    Page coloured(Style{80, false, true});
    coloured.title("x");
    CHECK(coloured.text() == "\x1b[1mx\x1b[0m\n");
}

TEST_CASE("quantities: exact, interval, open ends, not known") {
    CHECK(quantity_cell(between(1 << 20, 1 << 20)) == "1 MiB");
    CHECK(quantity_cell(between(1 << 20, 4 << 20)) == "1 MiB to 4 MiB");
    CHECK(quantity_words(between(1 << 20, 4 << 20)) == "between 1 MiB and 4 MiB");
    CHECK(quantity_words(between((1 << 30) - 1, 1 << 30)) == "between 1,073,741,823 B and 1,073,741,824 B");
    Quantity quantity;
    CHECK(quantity_cell(quantity) == "not known");
    CHECK(quantity_exact_cell(quantity).empty());
    quantity.set_reason("no record of it");
    CHECK(quantity_words(quantity) == "not known: no record of it");
    quantity.set_low_bytes(0);
    CHECK(quantity_words(quantity) == "at least 0 B");
    quantity.clear_low_bytes();
    quantity.set_high_bytes(0);
    CHECK(quantity_words(quantity) == "at most 0 B");
    CHECK(bound_words(quantity) == "at most 0 B; nothing was seen to fit");
    // The upper end is not proven not to fit; one byte below a request that failed, the request is.
    CHECK(bound_words(between(1 << 20, 2 << 20)) == "at least 1 MiB, at most 2 MiB");
    CHECK(bound_words(between(1 << 20, (2 << 20) - 1)) == "at least 1 MiB, less than 2 MiB");
    CHECK(bound_words(between(0, 64 << 20)) == "at most 64 MiB; nothing was seen to fit");
}

TEST_CASE("an amount that ends one byte below the need is less than the need") {
    const Quantity need = between(64 << 20, 64 << 20);
    CHECK(available_words(between(0, (64 << 20) - 1), need) == "less than 64 MiB");
    CHECK(available_cell(between(1 << 20, (64 << 20) - 1), need) == "at least 1 MiB, but less than 64 MiB");
    CHECK(available_words(between(0, 64 << 20), need) == "between 0 B and 64 MiB");
    // What is known exactly is said exactly.
    CHECK(available_words(between((64 << 20) - 1, (64 << 20) - 1), need) == "64.0 MiB (67,108,863 B)");
}

TEST_CASE("a margin at the end of its numbers stands for more than that") {
    report::Counterfactual one;
    one.set_margin_low(-std::numeric_limits<std::int64_t>::max());
    one.set_margin_high(-std::numeric_limits<std::int64_t>::max());
    CHECK(margin_cell(one) == "more than 8 EiB too little");
    one.set_margin_high(std::numeric_limits<std::int64_t>::max());
    CHECK(margin_cell(one) == "more than 8 EiB too little to more than +8 EiB");
}

TEST_CASE("margins of counterfactuals: absent ends are not known") {
    report::Counterfactual one;
    CHECK(margin_cell(one) == "not known");
    one.set_margin_low(-5);
    CHECK(margin_cell(one) == "at least -5 B");
    one.set_margin_high(7);
    CHECK(margin_cell(one) == "-5 B to +7 B");
    one.clear_margin_low();
    CHECK(margin_cell(one) == "at most +7 B");
}

TEST_CASE("every value of every enumeration has words, and none says 'free' alone") {
    const auto* definitions = Quantity::Definition_descriptor();
    for (int i = 0; i < definitions->value_count(); ++i) {
        const int number = definitions->value(i)->number();
        const Term term = definition_term(static_cast<Quantity::Definition>(number));
        INFO(definitions->value(i)->name());
        CHECK(unqualified_free(std::string(term.name)).empty());
        CHECK(unqualified_free(std::string(term.meaning)).empty());
        CHECK((term.name == "unnamed quantity") == (number == 0));
    }
    const auto* causes = report::Verdict::Cause_descriptor();
    for (int i = 0; i < causes->value_count(); ++i) {
        const Term term = cause_term(static_cast<report::Verdict::Cause>(causes->value(i)->number()));
        INFO(causes->value(i)->name());
        CHECK(unqualified_free(std::string(term.name) + " " + std::string(term.meaning)).empty());
        CHECK(term.name != "unnamed cause");
    }
    const auto* evidences = Quantity::Evidence_descriptor();
    for (int i = 0; i < evidences->value_count(); ++i) {
        CHECK(evidence_term(static_cast<Quantity::Evidence>(evidences->value(i)->number())).name !=
              "unnamed evidence");
    }
    CHECK(definition_term(static_cast<Quantity::Definition>(9999)).name == "unnamed quantity");
}

TEST_CASE("health: silence only when nothing is known to be missing") {
    report::Health health;
    CHECK(health_warnings(health).size() == 1);  // complete was never claimed
    health.set_complete(true);
    CHECK(health_warnings(health).empty());
    health.set_records_lost(1);
    CHECK(health_warnings(health) == std::vector<std::string>{"1 record was lost during the recording."});
}

TEST_CASE("the chart holds its width, keeps short peaks, and leaves blanks where nothing was measured") {
    report::Timeline timeline;
    for (int i = 0; i < 1000; ++i) {
        auto* point = timeline.add_points();
        point->set_time_ns(static_cast<std::uint64_t>(i) * 1'000'000);
        point->set_handle_bytes(i == 500 ? 1u << 30 : 1u << 20);
    }
    for (const int width : {60, 80, 110}) {
        Page page(Style{width, false, false});
        draw_timeline(page, timeline, ChartFrame{1'000'000'000, 1u << 30, {500'000'000}});
        CHECK(widest_line(page.text()) <= static_cast<std::size_t>(width));
        CHECK(page.text().find('#') != std::string::npos);
        CHECK(page.text().find("peak 1 GiB") != std::string::npos);
        CHECK(page.text().find("1 failure") != std::string::npos);
    }
    Page page(Style{110, false, false});
    draw_timeline(page, timeline, ChartFrame{});
    CHECK(page.text().find("device-free memory: not measured") != std::string::npos);
    CHECK(page.text().find("addresses reserved: none") != std::string::npos);
    Page tiny(Style{40, false, false});
    draw_timeline(tiny, timeline, ChartFrame{});
    CHECK(widest_line(tiny.text()) <= 40);
}

TEST_CASE("JSON: one line, the proto's own names, empty fields too") {
    report::Explanation explanation;
    explanation.set_id("failure:1");
    explanation.mutable_verdict()->set_cause(report::Verdict::virtual_space_fragmentation);
    const std::optional<std::string> line = json_line(explanation);
    REQUIRE(line.has_value());
    CHECK(line->find('\n') == std::string::npos);
    CHECK(line->find("\"id\":\"failure:1\"") != std::string::npos);
    CHECK(line->find("\"cause\":\"virtual_space_fragmentation\"") != std::string::npos);
    CHECK(line->find("\"constraint\":\"\"") != std::string::npos);
    CHECK(line->find("\"of_failures\":0") != std::string::npos);
}

TEST_CASE("a process whose end was not watched is not said to have ended in a way called unknown") {
    report::Report report;
    report.add_processes()->set_ended_how("unknown");
    const std::string text = render_report(report, Style{110, false, false});
    CHECK(text.find("Ended: unknown") == std::string::npos);
    CHECK(text.find("fragscope did not start this process itself") != std::string::npos);
    report.mutable_processes(0)->set_ended_how("signal 9");
    CHECK(render_report(report, Style{110, false, false}).find("Ended: signal 9.") != std::string::npos);
    report.mutable_processes(0)->set_ended_how("still running");
    CHECK(render_report(report, Style{110, false, false}).find("still running when the recording") !=
          std::string::npos);
}

TEST_CASE("removals that do not apply for one reason stand on one line with it") {
    report::Explanation e;
    e.set_id("failure:1");
    e.mutable_request()->set_function("cuMemAlloc_v2");
    for (const char* id : {"first", "second", "third"}) {
        report::Counterfactual& one = *e.add_counterfactuals();
        one.set_id(id);
        one.set_removed(id);
        one.set_outcome(report::Counterfactual::not_applicable);
        one.set_reason(id == std::string("third") ? "another" : "no pool is in use");
    }
    const std::string text = render_explanation(e, Style{110, false, false});
    CHECK(text.find("first; second: no pool is in use") != std::string::npos);
    CHECK(text.find("third: another") != std::string::npos);
}

TEST_CASE("a brief explanation is the beginning of the whole one, and says what it leaves out") {
    report::Explanation e;
    e.set_id("failure-1");
    e.mutable_verdict()->set_cause(report::Verdict::capacity_exhaustion);
    e.mutable_request()->set_function("cuMemAlloc_v2");
    e.add_actions("Ask for less.");
    const Style style{110, false, false};
    const std::string whole = render_explanation(e, style);
    const std::string brief = render_explanation(e, style, Pages::kBrief);
    const std::size_t note = brief.find("Without --brief also:");
    REQUIRE(note != std::string::npos);
    CHECK(brief.find("Ask for less.") < note);
    // Up to the blank line before the note they are the same.
    CHECK(whole.compare(0, note - 1, brief, 0, note - 1) == 0);
    CHECK(whole.find("The request") > note - 1);
    CHECK(brief.find("The state at that moment") == std::string::npos);
}

TEST_CASE("a page for a trace that may miss its failure does not say that nothing failed") {
    report::Explanation e;
    e.mutable_health()->add_warnings("The file is cut off.");
    e.mutable_verdict()->set_cause(report::Verdict::undetermined);
    e.mutable_verdict()->set_summary("Whether a request failed is not known.");
    const std::string text = render_explanation(e, Style{80, false, false});
    CHECK(text.find("Whether a request failed: undetermined") != std::string::npos);
    CHECK(text.find("no failure") == std::string::npos);
    CHECK(text.find("complete: nothing") == std::string::npos);
}

TEST_CASE("what was written is never called requested") {
    report::Explanation e;
    e.set_id("failure:1");
    report::Domain& domain = *e.add_domains();
    domain.set_name("physical");
    *domain.mutable_charged() = between(7u << 20, 7u << 20);
    *domain.mutable_requested() = between(1u << 20, 1u << 20);
    domain.mutable_requested()->set_definition(Quantity::payload_written);
    *domain.mutable_internal_waste() = between(6u << 20, 6u << 20);
    const std::string text = render_explanation(e, Style{110, false, false});
    CHECK(text.find("payload written: 1 MiB") != std::string::npos);
    CHECK(text.find("requested: 1 MiB") == std::string::npos);
    domain.mutable_requested()->set_definition(Quantity::requested);
    CHECK(render_explanation(e, Style{110, false, false}).find("requested: 1 MiB") != std::string::npos);
}

TEST_CASE("a call that failed for another reason than memory has no state laid out under it") {
    report::Explanation e;
    e.set_id("failure:1");
    e.mutable_request()->set_function("cuMemCreate");
    e.mutable_verdict()->set_cause(report::Verdict::not_an_allocation);
    e.mutable_verdict()->set_constraint("size_not_multiple_of_granularity");
    e.add_actions("Round the size up.");
    const std::string text = render_explanation(e, Style{110, false, false});
    CHECK(text.find("Why it failed: a size that is no multiple of the granularity") != std::string::npos);
    CHECK(text.find("1. Round the size up.") != std::string::npos);
    CHECK(text.find("call           cuMemCreate") != std::string::npos);
    CHECK(text.find("What if") == std::string::npos);
}

TEST_CASE("a size beyond any address space is said to be one, in an interval and alone") {
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    CHECK(quantity_cell(between(kMost, kMost)) == "more than any address space");
    CHECK(quantity_words(between(kMost - 4096, kMost)) == "more than any address space");
    CHECK(quantity_cell(between(1, kMost)) == "1 B to 16.0 EiB");
    CHECK(quantity_exact_cell(between(kMost, kMost)) == "18,446,744,073,709,551,615 B");
}

TEST_CASE("the chart draws what no record explains, and phases where they were") {
    report::Timeline timeline;
    report::TimelinePoint& point = *timeline.add_points();
    point.set_time_ns(0);
    point.set_linear_requested_bytes(1 << 20);
    for (const std::uint64_t time : {0, 900}) {
        report::UnattributedPoint& rest = *timeline.add_unattributed();
        rest.set_time_ns(time);
        rest.set_high_bytes(time == 0 ? 0 : 4 << 20);
    }
    report::Phase& phase = *timeline.add_phases();
    phase.set_name("warm up");
    phase.set_begun_ns(500);
    phase.set_times(1);
    Page page(Style{80, false, false});
    ChartFrame frame;
    frame.duration_ns = 1000;
    draw_timeline(page, timeline, frame);
    const std::string& text = page.text();
    CHECK(text.find("explained by no record") != std::string::npos);
    CHECK(text.find("peak 4 MiB") != std::string::npos);
    const std::size_t line = text.find("warm up");
    REQUIRE(line != std::string::npos);
    const std::string row = text.substr(line, text.find('\n', line) - line);
    CHECK(row.find("====") != std::string::npos);
    CHECK(row.find('=') > row.size() / 3);  // it began half-way
}

TEST_CASE("NVML's numbers stand beside the driver's, each with its moment, and unknown ones say so") {
    report::Report report;
    report::Management& management = *report.mutable_management();
    management.set_state("on");
    management.set_readings(3);
    management.set_driver_version("580.95.05");
    report::ManagedDevice& device = *management.add_devices();
    device.set_uuid("GPU-1");
    device.set_mig(true);
    report::ManagedMoment& moment = *device.add_moments();
    moment.add_moments("fullest reading");
    *moment.mutable_total() = between(std::uint64_t{8} << 30, std::uint64_t{8} << 30);
    moment.set_processes_known(true);
    report::ManagedProcess& own = *moment.add_processes();
    own.set_pid(5077);
    own.set_pid_here(77);
    own.set_process(0);
    own.set_name("train");
    *own.mutable_used() = between(300 << 20, 300 << 20);
    *own.mutable_attributed() = between(40 << 20, 44 << 20);
    own.mutable_attributed()->set_evidence(Quantity::bounded);
    own.set_more_low_bytes(256 << 20);
    own.set_more_high_bytes(260 << 20);
    moment.add_processes()->set_pid(9000);
    report::DriverWord& driver = *moment.mutable_driver();
    driver.set_after_ns(-3'000'000);
    *driver.mutable_device_free() = between(6 << 20, 6 << 20);
    *driver.mutable_total() = between(7 << 20, 7 << 20);
    driver.set_device_free_less_bytes(-(1 << 20));
    driver.set_total_less_bytes(0);
    const std::string text = render_report(report, Style{200, false, false});
    for (const char* part :
         {"Asked 3 times; driver 580.95.05", "cut up into instances (MIG)", "NVML total", "not known",
          "process 0 (pid 5077 there, 77 here), train", "between 256 MiB more and 260 MiB more",
          "pid 9000 as the library numbers them", "Whether it was recorded here is not known",
          "cuMemGetInfo, 3.00 ms earlier in process 0", "1 MiB less device-free and the same in all"}) {
        CHECK_MESSAGE(text.find(part) != std::string::npos, part, "\n", text);
    }
    management.clear_devices();
    management.set_readings(0);
    management.set_state("the management library cannot be loaded: no such file");
    CHECK(render_report(report, Style{200, false, false})
              .find("It was not asked: the management library cannot be loaded: no such file.") != std::string::npos);
}
