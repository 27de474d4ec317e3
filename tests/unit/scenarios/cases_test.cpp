// Every case of cases/*.jsonl, with the conclusion that its own line argues for. reported.jsonl has the
// numbers of public reports, derived.jsonl cases whose answer is computed by hand in their "why".
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
#include "tests/unit/analysis/audits.h"
#include "tests/unit/words/unqualified.h"
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
    CHECK(verdict.deciding_measurement().empty() ==
          (verdict.cause() != Verdict::undetermined && verdict.constraint() != "driver_refused"));
    CHECK(verdict.constraint().empty() == (verdict.cause() != Verdict::other_constraint));
    const Counterfactual* base = row_of(e, "as_it_was");
    REQUIRE(base != nullptr);
    for (const Counterfactual& row : e.counterfactuals()) {
        CAPTURE(row.id());
        if (row.outcome() == Counterfactual::not_applicable) continue;
        CHECK(row.outcome() != Counterfactual::outcome_unspecified);
        if (row.has_margin_low() && row.outcome() == Counterfactual::fits) CHECK(row.margin_low() >= 0);
        if (row.has_margin_high() && row.outcome() == Counterfactual::does_not_fit)
            CHECK(row.margin_high() < 0);
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
    REQUIRE(tools::json_line(e));
    report::Explanation ours = e;
    // In the words of who wrote the scenario.
    ours.clear_id();
    ours.mutable_scenario()->clear_title();
    CHECK(unqualified_free(*tools::json_line(ours)).empty());
    test::check_audit(e);
    test::check_domains(e.domains());
}

// What the line expects of single rows of the table.
void check_rows(const std::string& line, const report::Explanation& e) {
    const JsonText json = read_json(line);
    const JsonValue* rows = json.value->find("expected")->find("rows");
    if (rows == nullptr) return;
    for (const JsonMember& member : rows->members) {
        CAPTURE(member.name);
        const Counterfactual* row = row_of(e, member.name);
        REQUIRE(row != nullptr);
        CHECK(Counterfactual::Outcome_Name(row->outcome()) == member.value.text);
    }
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
    check_rows(line, e);
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

TEST_CASE("a share between two ends: what is known without the removal is wider than with it") {
    // 4 GiB with 3 GiB of blocks somewhere, 512 MiB besides, 1.5 GiB asked for. Without merging the largest
    // piece has a third of 1 GiB (rounded up: 357913942 B) to 1 GiB; merged, and with what nobody holds, it
    // is 1.5 GiB.
    const Verdict verdict = explained(R"({"id": "x", "events": [{"op": "device", "capacity": "4608 MiB"},
            {"op": "segment", "id": "s", "bytes": "4 GiB"}, {"op": "block", "id": "a", "segment": "s", "bytes": "2 GiB"},
            {"op": "block", "id": "b", "segment": "s", "bytes": "1 GiB"}],
            "request": {"kind": "allocator", "bytes": "1536 MiB"}})")
                                .verdict();
    CHECK(verdict.cause() == Verdict::allocator_external_fragmentation);
    REQUIRE(verdict.shares_size() == 1);
    CHECK(verdict.shares(0).removed() == "with_framework_gaps_merged");
    CHECK(verdict.shares(0).bytes_low() == 512 << 20);
    CHECK(verdict.shares(0).bytes_high() == 1610612736 - 357913942);
    CHECK(verdict.margin_low() == 0);
}

TEST_CASE(
    "the margin that a verdict tells: of a set, of a row that stands for itself, none of a number of "
    "things") {
    constexpr std::int64_t kGiB = std::int64_t{1} << 30;
    const auto verdict_of = [](const std::string& device, const std::string& events) {
        return explained(R"({"id": "x", "events": [{"op": "device", )" + device + "}" + events +
                         R"(], "request": {"kind": "driver", "bytes": "4 GiB"}})")
            .verdict();
    };
    // 2 GiB are left; the import keeps 4.
    const Verdict import = verdict_of(R"("capacity": "8 GiB")",
                                      R"(, {"op": "driver_alloc", "id": "a", "bytes": "4 GiB"},
            {"op": "driver_alloc", "id": "b", "bytes": "2 GiB"}, {"op": "driver_free", "id": "a", "held_by_importer": true})");
    CHECK(import.removed(0) == "with_importers_closed");
    CHECK(import.short_low() == -2 * kGiB);
    REQUIRE(import.has_margin_low());
    REQUIRE(import.has_margin_high());
    CHECK(import.margin_low() == 2 * kGiB);
    CHECK(import.margin_high() == 2 * kGiB);
    // 1 GiB is left; of all of the device 4 GiB would be.
    const Verdict full =
        verdict_of(R"("capacity": "8 GiB")", R"(, {"op": "driver_alloc", "id": "a", "bytes": "7 GiB"})");
    CHECK(full.cause() == Verdict::capacity_exhaustion);
    CHECK(full.removed(0) == "with_nothing_else_on_device");
    REQUIRE(full.has_margin_low());
    REQUIRE(full.has_margin_high());
    CHECK(full.margin_low() == 4 * kGiB);
    CHECK(full.margin_high() == 4 * kGiB);
    const Verdict mappings = verdict_of(R"("capacity": "8 GiB", "mapping_limit": 5, "mappings": 5)", "");
    CHECK(mappings.constraint() == "mapping_count");
    CHECK_FALSE(mappings.has_short_low());
    CHECK_FALSE(mappings.has_short_high());
}
