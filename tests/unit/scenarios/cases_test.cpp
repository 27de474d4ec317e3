// Every case of cases/*.jsonl, with the conclusion that its own line argues for. reported.jsonl has the numbers of
// public reports, derived.jsonl cases whose answer is computed by hand in their "why".
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "analysis/explain_scenario.h"
#include "analysis/read/json.h"
#include "analysis/read/scenario_reader.h"
#include "tools/words_explain.h"
#include "tools/words_json.h"

using namespace fragscope;
using namespace fragscope::analysis;
using report::Counterfactual;
using report::Verdict;

namespace {

std::vector<std::string> lines_of(const std::string& file) {
    std::ifstream in(std::string(FRAGSCOPE_CASES_FOLDER) + "/" + file);
    REQUIRE_MESSAGE(in.good(), file);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
}

report::Explanation explained(const std::string& line) {
    const ScenarioText read = read_scenario(line);
    REQUIRE_MESSAGE(read.scenario, read.problem);
    return explain_scenario(*read.scenario);
}

const Counterfactual* row_of(const report::Explanation& e, const std::string& id) {
    for (const Counterfactual& row : e.counterfactuals()) {
        if (row.id() == id) return &row;
    }
    return nullptr;
}

// What a table and a verdict owe each other, whatever the case.
void check_coherent(const report::Explanation& e) {
    const Verdict& verdict = e.verdict();
    CHECK(verdict.cause() != Verdict::cause_unspecified);
    CHECK_FALSE(verdict.summary().empty());
    CHECK(verdict.deciding_measurement().empty() == (verdict.cause() != Verdict::undetermined &&
                                                     verdict.constraint() != "driver_refused"));
    CHECK(verdict.constraint().empty() == (verdict.cause() != Verdict::other_constraint));
    const Counterfactual* base = row_of(e, "as_it_was");
    REQUIRE(base != nullptr);
    for (const Counterfactual& row : e.counterfactuals()) {
        CAPTURE(row.id());
        if (row.outcome() == Counterfactual::not_applicable) continue;
        CHECK(row.outcome() != Counterfactual::outcome_unspecified);
        if (row.has_margin_low() && row.outcome() == Counterfactual::fits) CHECK(row.margin_low() >= 0);
        if (row.has_margin_high() && row.outcome() == Counterfactual::does_not_fit) CHECK(row.margin_high() < 0);
        // Taking something away never makes less available.
        if (row.id() != "with_nothing_else_on_device" && base->outcome() == Counterfactual::fits)
            CHECK(row.outcome() == Counterfactual::fits);
    }
    // What is removed is in the table; alone it flips the outcome where it is one thing.
    for (const std::string& removed : verdict.removed()) {
        CAPTURE(removed);
        const Counterfactual* row = row_of(e, removed);
        REQUIRE(row != nullptr);
        if (verdict.removed_size() == 1 && verdict.cause() != Verdict::capacity_exhaustion)
            CHECK(row->outcome() == Counterfactual::fits);
        if (verdict.removed_size() > 1) CHECK(row->outcome() != Counterfactual::fits);
    }
    const bool decided = verdict.cause() != Verdict::undetermined && verdict.constraint() != "driver_refused";
    if (decided) CHECK(base->outcome() == Counterfactual::does_not_fit);
    if (decided && verdict.has_short_high()) CHECK(verdict.short_high() < 0);
    if (verdict.shares_size() != 0) CHECK(verdict.shares_size() == verdict.removed_size());
    // Every text can be written, in words and as JSON.
    tools::Style style;
    CHECK_FALSE(tools::render_explanation(e, style).empty());
    CHECK(tools::json_line(e));
}

void check_case(const std::string& line) {
    const ScenarioText read = read_scenario(line);
    REQUIRE_MESSAGE(read.scenario, read.problem);
    const Scenario& scenario = *read.scenario;
    const report::Explanation e = explain_scenario(scenario);
    CAPTURE(scenario.id);
    CAPTURE(e.verdict().summary());
    CHECK(e.id() == scenario.id);
    CHECK(Verdict::Cause_Name(e.verdict().cause()) == scenario.expected_cause);
    CHECK(e.verdict().constraint() == scenario.expected_constraint);
    check_coherent(e);
    // The numbers that the line expects of the state.
    const JsonText json = read_json(line);
    const JsonValue* expected = json.value->find("expected");
    const Situation situation = situation_of(scenario);
    const auto number = [&](const char* name) -> std::optional<std::uint64_t> {
        const JsonValue* value = expected->find(name);
        return value == nullptr ? std::nullopt : whole_number(*value);
    };
    if (const auto bytes = number("driver_free_bytes"))
        CHECK(situation.device_free.interval() == Interval::exactly(*bytes));
    if (const auto bytes = number("allocator_reserved_bytes"))
        CHECK((situation.framework ? situation.framework->reserved.interval() : Interval::exactly(0)) ==
              Interval::exactly(*bytes));
    if (const auto bytes = number("free_extents_bytes"))
        CHECK((situation.framework ? situation.framework->cached.interval() : Interval::exactly(0)) ==
              Interval::exactly(*bytes));
    if (const auto bytes = number("largest_free_extent_bytes")) {
        std::uint64_t largest = 0;
        if (situation.framework) {
            for (const FrameworkDomain& domain : situation.framework->domains)
                largest = std::max(largest, domain.gaps.largest());
        }
        CHECK(largest == *bytes);
    }
}

}  // namespace

TEST_CASE("the cases of public reports") {
    const std::vector<std::string> lines = lines_of("reported.jsonl");
    CHECK(lines.size() == 28);
    for (const std::string& line : lines) check_case(line);
}

TEST_CASE("the cases computed by hand") {
    for (const std::string& line : lines_of("derived.jsonl")) check_case(line);
}

TEST_CASE("what a line expects is no part of the analysis") {
    for (const std::string& line : lines_of("reported.jsonl")) {
        const std::size_t at = line.find("\"cause\": \"");
        REQUIRE(at != std::string::npos);
        const std::size_t end = line.find('"', at + 10);
        const std::string other = line.substr(0, at + 10) + "anything" + line.substr(end);
        CHECK(google::protobuf::util::MessageDifferencer::Equals(explained(line), explained(other)));
    }
}

TEST_CASE("a combined cause says what each part is worth") {
    for (const std::string& line : lines_of("derived.jsonl")) {
        if (line.find("\"leaked-and-imported\"") == std::string::npos) continue;
        const Verdict verdict = explained(line).verdict();
        // 1 GiB is left, 5 GiB are needed: 4 GiB short; with both, 5 GiB are there.
        constexpr std::int64_t kGiB = std::int64_t{1} << 30;
        CHECK(verdict.short_low() == -4 * kGiB);
        CHECK(verdict.short_high() == -4 * kGiB);
        CHECK(verdict.margin_low() == 0);
        CHECK(verdict.margin_high() == 0);
        REQUIRE(verdict.shares_size() == 2);
        CHECK(verdict.shares(0).removed() == "with_importers_closed");
        CHECK(verdict.shares(0).constraint() == "IPC_import_keeps_memory");
        CHECK(verdict.shares(0).bytes_low() == 3 * kGiB);
        CHECK(verdict.shares(0).bytes_high() == 3 * kGiB);
        CHECK(verdict.shares(1).removed() == "with_leaked_handles_released");
        CHECK(verdict.shares(1).constraint() == "leaked_handles");
        CHECK(verdict.shares(1).bytes_low() == kGiB);
        return;
    }
    FAIL("the case is not there");
}
