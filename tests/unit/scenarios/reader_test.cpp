// Lines of scenarios: amounts as people write them, and one sentence with the place for whatever cannot be.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <string>

#include "analysis/explain_scenario.h"
#include "analysis/read/scenario_reader.h"
#include "tools/words_explain.h"

using namespace fragscope;
using namespace fragscope::analysis;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// One scenario, with these events behind the device and this request.
std::string line(const std::string& events, const std::string& request = R"("kind": "driver", "bytes": 1)",
                 const std::string& device = R"("capacity": 8589934592)") {
    return fmt::format(R"({{"id": "x", "events": [{{"op": "device", {}}}{}{}], "request": {{{}}}}})", device,
                       events.empty() ? "" : ", ", events, request);
}

Scenario taken(const std::string& text) {
    const ScenarioText read = read_scenario(text);
    REQUIRE_MESSAGE(read.scenario, text << ": " << read.problem);
    return *read.scenario;
}

// The sentence names the place and what was expected.
void refused(const std::string& text, const std::string& place, const std::string& expected) {
    const ScenarioText read = read_scenario(text);
    CAPTURE(text);
    CAPTURE(read.problem);
    CHECK_FALSE(read.scenario);
    CHECK(read.problem.find(place) != std::string::npos);
    CHECK(read.problem.find(expected) != std::string::npos);
}

constexpr char kSegment[] = R"({"op": "segment", "id": "s", "bytes": 1000})";

}  // namespace

TEST_CASE("amounts in words are the interval of their last decimal place") {
    // 15.895 GiB = 17067126292.48, 15.905 GiB = 17077863710.72
    CHECK(amount_in_words("15.90 GiB") == Interval{17067126293, 17077863710});
    // 0.5 to 1.5 tenths of a KiB: 51.2 to 153.6
    CHECK(amount_in_words("0.1 KiB") == Interval{52, 153});
    CHECK(amount_in_words("0.0 KiB") == Interval{0, 51});
    CHECK(amount_in_words("20 MiB") == Interval::exactly(20 << 20));
    CHECK(amount_in_words("20MiB") == Interval::exactly(20 << 20));
    CHECK(amount_in_words("7 B") == Interval::exactly(7));
    CHECK(amount_in_words("2 GB") == Interval::exactly(2000000000));
    // 1.45 to 1.55 MB
    CHECK(amount_in_words("1.5 MB") == Interval{1450000, 1550000});
    CHECK(amount_in_words("15 EiB") == Interval::exactly(std::uint64_t{15} << 60));
    for (const char* none :
         {"", "GiB", "1", "1 ", "1 gib", "1.", "1. GiB", ".5 GiB", "-1 GiB", "1,5 GiB", "1e3 B", "1 GiB ",
          " 1 GiB", "1  GiB", "16 EiB", "9999999999999999999 B", "1.2.3 GiB"}) {
        CAPTURE(none);
        CHECK_FALSE(amount_in_words(none));
    }
}

TEST_CASE("an amount: a number, words, two ends, or not known") {
    const auto capacity = [](const std::string& amount) {
        return taken(line("", R"("kind": "driver", "bytes": 1)", "\"capacity\": " + amount)).device.capacity;
    };
    CHECK(capacity("18446744073709551615") == Interval::exactly(UINT64_MAX));
    CHECK(capacity("9007199254740993") == Interval::exactly(9007199254740993));
    CHECK(capacity("\"8 GiB\"") == Interval::exactly(8 * kGiB));
    CHECK(capacity("{\"low\": 5, \"high\": \"1 KiB\"}") == Interval{5, 1024});
    CHECK(capacity("{\"low\": \"0.1 KiB\", \"high\": \"0.1 KiB\"}") == Interval{52, 153});
    CHECK(capacity("{\"low\": 5}") == Interval{5, std::nullopt});
    CHECK(capacity("{\"high\": 5}") == Interval{0, 5});
    CHECK(capacity("null") == Interval{0, std::nullopt});
    for (const char* none : {"-1", "1.5", "1e9", "18446744073709551616", "\"8\"", "true", "[]",
                             "{\"low\": 5, \"high\": 4}", "{\"mid\": 4}", "{\"low\": {\"low\": 1}}"}) {
        refused(line("", R"("kind": "driver", "bytes": 1)", std::string("\"capacity\": ") + none),
                "events[0].capacity", "expected bytes");
    }
}

TEST_CASE("what is absent is 0 only where that is documented") {
    const Scenario plain = taken(line(""));
    CHECK(plain.device.context == Interval::exactly(0));
    CHECK(plain.device.other_processes == Interval::exactly(0));
    CHECK(plain.device.granularity == 2 << 20);
    CHECK_FALSE(plain.device.allocator_limit);
    CHECK_FALSE(plain.device.device_free);
    const Scenario unknown = taken(
        line("", R"("kind": "driver", "bytes": 1)", R"("capacity": 8589934592, "context_bytes": null)"));
    CHECK(unknown.device.context == Interval{0, std::nullopt});
}

TEST_CASE("blocks come and go; one that waits keeps its place") {
    const Scenario s = taken(line(std::string(kSegment) +
                                  R"(, {"op": "block", "id": "a", "segment": "s", "offset": 0, "bytes": 100},
        {"op": "block", "id": "b", "segment": "s", "offset": 100, "bytes": 100},
        {"op": "block_free", "id": "a"}, {"op": "block", "id": "a", "segment": "s", "offset": 20, "bytes": 80},
        {"op": "block_free", "id": "b", "pending_on_stream": "s1"}, {"op": "block", "id": "b", "segment": "s", "offset": 200, "bytes": 800})"));
    REQUIRE(s.segments.size() == 1);
    REQUIRE(s.segments[0].blocks.size() == 3);
    CHECK(s.segments[0].blocks[0].pending);
    CHECK(s.segments[0].blocks[0].offset == 100);
    CHECK(s.segments[0].blocks[1].offset == 20);
    CHECK(s.segments[0].blocks[2].offset == 200);
}

TEST_CASE("what is freed twice, is not there, overlaps or lies outside is refused") {
    const std::string segment = kSegment;
    const std::string a = R"(, {"op": "block", "id": "a", "segment": "s", "offset": 100, "bytes": 100})";
    const auto block = [](const char* offset, const char* bytes) {
        return fmt::format(R"(, {{"op": "block", "id": "b", "segment": "s", "offset": {}, "bytes": {}}})",
                           offset, bytes);
    };
    taken(line(segment + a + block("0", "100")));
    taken(line(segment + a + block("200", "800")));
    refused(line(segment + a + block("0", "101")), "events[3].offset", "overlaps 'a'");
    refused(line(segment + a + block("199", "1")), "events[3].offset", "overlaps 'a'");
    refused(line(segment + a + block("150", "10")), "events[3].offset", "overlaps 'a'");
    refused(line(segment + a + block("50", "300")), "events[3].offset", "overlaps 'a'");
    refused(line(segment + block("901", "100")), "events[2].offset", "ends inside of its segment");
    refused(line(segment + block("18446744073709551615", "100")), "events[2].offset",
            "ends inside of its segment");
    refused(line(segment + block("0", "1001")), "events[2].bytes", "no more than their segment");
    refused(line(segment + a + block("null", "901")), "events[3].bytes", "no more than their segment");
    refused(line(segment + a + a), "events[3].offset", "overlaps");
    refused(line(segment + a + R"(, {"op": "block", "id": "a", "segment": "s", "bytes": 1})"), "events[3].id",
            "no live block has");
    refused(line(segment + R"(, {"op": "block", "id": "b", "segment": "t", "bytes": 1})"),
            "events[2].segment", "the name of a segment before it");
    refused(line(segment + R"(, {"op": "block_free", "id": "b"})"), "events[2].id", "a live block before it");
    refused(line(segment + a + R"(, {"op": "block_free", "id": "a"}, {"op": "block_free", "id": "a"})"),
            "events[4].id", "a live block before it");
    refused(line(segment + ", " + segment), "events[2].id", "no other segment has");
    refused(line(R"({"op": "driver_free", "id": "a"})"), "events[1].id", "a driver_alloc before it");
    refused(
        line(
            R"({"op": "driver_alloc", "id": "a", "bytes": 1}, {"op": "driver_alloc", "id": "a", "bytes": 1})"),
        "events[2].id", "no allocation has");
    refused(line(segment + R"(, {"op": "block", "id": "b", "segment": "s", "bytes": 5, "requested": 6})"),
            "events[2].requested", "no more than the block's bytes");
    refused(line(R"({"op": "segment", "id": "s", "bytes": 10, "several": true},
        {"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": 5})"),
            "events[2].offset", "stands for several");
}

TEST_CASE("more than there is is refused") {
    refused(line(R"({"op": "driver_alloc", "id": "a", "bytes": "9 GiB"})"), "events",
            "no more on the device than it has");
    refused(line("", R"("kind": "driver", "bytes": 1)",
                 R"("capacity": 100, "context_bytes": 60, "other_processes_bytes": 41)"),
            "events", "101 B are held");
    taken(line("", R"("kind": "driver", "bytes": 1)",
               R"("capacity": 100, "context_bytes": 60, "other_processes_bytes": 40)"));
    // Freed memory that an importer still maps is held all the same.
    refused(line(R"({"op": "driver_alloc", "id": "a", "bytes": "8 GiB"},
        {"op": "driver_free", "id": "a", "held_by_importer": true}, {"op": "driver_alloc", "id": "b", "bytes": 1})"),
            "events", "no more on the device than it has");
    refused(line("", R"("kind": "driver", "bytes": 1)",
                 R"("capacity": 100, "context_bytes": 60, "device_free": 41)"),
            "device_free", "at most the 40 B");
    refused(line(R"({"op": "physical_free_runs", "bytes": ["8 GiB", 1]})"), "physical_free_runs",
            "sum to at most");
    refused(line(R"({"op": "physical_free_runs", "bytes": [1]}, {"op": "physical_free_runs", "bytes": [1]})"),
            "events[2].op", "one list of runs");
    const std::string space = R"("capacity": 100, "address_space_bytes": 100)";
    const std::string request = R"("kind": "address_space", "bytes": 1)";
    refused(line(R"({"op": "va_reserve", "bytes": 60}, {"op": "va_reserve", "bytes": 41})", request, space),
            "events", "101 B are reserved");
    refused(line(R"({"op": "va_reserve", "bytes": 60, "offset": 41})", request, space), "events[1].offset",
            "ends inside of the address space");
    refused(
        line(
            R"({"op": "va_reserve", "bytes": 60, "offset": 0}, {"op": "va_reserve", "bytes": 2, "offset": 59})",
            request, space),
        "events[2].offset", "overlaps none");
    refused(
        line(
            R"({"op": "va_reserve", "bytes": 60, "offset": 40}, {"op": "va_reserve", "bytes": 41, "offset": 0})",
            request, space),
        "events[2].offset", "overlaps none");
    taken(line(
        R"({"op": "va_reserve", "bytes": 60, "offset": 40}, {"op": "va_reserve", "bytes": 40, "offset": 0})",
        request, space));
}

TEST_CASE("members that the format does not have are told with their places, and the answer is one without them") {
    const Scenario scenario = taken(line(R"({"op": "segment", "id": "s", "bytes": 1, "size": 2})",
                                         R"("kind": "driver", "bytes": 1, "block_rounding": 512)"));
    REQUIRE(scenario.not_used.size() == 2);
    CHECK(scenario.not_used[0].find("events[1].'size' (column ") == 0);
    CHECK(scenario.not_used[1].find("request.'block_rounding' (column ") == 0);
    const report::Explanation e = explain_scenario(scenario);
    CHECK_FALSE(e.health().complete());
    CHECK(e.health().warnings_size() == 2);
    const std::string page = tools::render_explanation(e, tools::Style());
    CHECK(page.find("'size'") != std::string::npos);
    CHECK(page.find("'block_rounding'") != std::string::npos);
    CHECK(explain_scenario(taken(line(""))).health().complete());
}

TEST_CASE("unknown operations and kinds are refused, whatever else is there") {
    refused(line(R"({"op": "segmant", "id": "s", "bytes": 1})"), "events[1].op", "one of device, driver_alloc");
    refused(line("", R"("kind": "drivers", "bytes": 1)"), "request.kind", "one of allocator, driver");
    refused(line("", R"("kind": "driver")"), "request.bytes", "it is not there");
    refused(line("", R"("kind": "driver", "bytes": 0)"), "request.bytes", "1 byte or more");
    refused(line("", R"("kind": "driver", "bytes": null)"), "request.bytes", "1 byte or more");
    refused(R"({"id": "x", "events": [], "request": {"kind": "driver", "bytes": 1}})", "events",
            "the device first");
    refused(R"({"id": "x", "request": {"kind": "driver", "bytes": 1}})", "events", "the device first");
    refused(R"({"id": "x", "events": [{"op": "device", "capacity": 1}]})", "request",
            "an object with kind and bytes");
    refused(R"({"events": [{"op": "device", "capacity": 1}], "request": {"kind": "driver", "bytes": 1}})",
            "id", "a text");
    refused(
        R"({"id": "x", "events": [{"op": "host_pin", "bytes": 1}], "request": {"kind": "driver", "bytes": 1}})",
        "events[0].op", "\"device\" in the first event");
    refused(line(R"({"op": "device", "capacity": 1})"), "events[1].op", "one device only");
    refused(line("5"), "events[1]", "expected an object");
    refused("[]", "column 1", "expected an object");
    refused("{\"id\": \"x\"", "column 11", "expected ',' or '}'");
    refused(line("", R"("kind": "driver", "bytes": 1)", R"("capacity": 1, "granularity": 0)"), "granularity",
            "at least 1 byte");
    refused(line("", R"("kind": "driver", "bytes": 1)", R"("capacity": 1, "contiguity_required": "yes")"),
            "contiguity_required", "true or false");
    refused(line("", R"("kind": "driver", "bytes": 1)", R"("capacity": 1, "handle_types": "fabric")"),
            "handle_types", "a list of texts");
    // The column is that of the value, counted from 1.
    refused(R"({"id": "x", "events": [{"op": "device", "capacity": -1}], "request": {}})", "column 53",
            "capacity");
}

TEST_CASE("a file: empty lines are skipped, each line stands for itself, a line without an end is refused") {
    std::string path = "/tmp/fragscope-scenarios-XXXXXX";
    const int fd = mkstemp(path.data());
    REQUIRE(fd >= 0);
    close(fd);
    {
        std::ofstream out(path);
        out << line("") << "\n\n  \nnonsense\r\n"
            << std::string(kMaxScenarioBytes + 1, ' ') << "\n"
            << line("");
    }
    ScenarioFile file;
    REQUIRE(file.open(path).empty());
    ScenarioLine read;
    REQUIRE(file.next(read));
    CHECK(read.number == 1);
    CHECK(read.text.scenario);
    REQUIRE(file.next(read));
    CHECK(read.number == 4);
    CHECK_FALSE(read.text.scenario);
    REQUIRE(file.next(read));
    CHECK(read.number == 5);
    CHECK(read.text.problem.find("expected a line of at most") != std::string::npos);
    REQUIRE(file.next(read));
    CHECK(read.number == 6);
    CHECK(read.text.scenario);
    CHECK_FALSE(file.next(read));
    CHECK(file.problem().empty());
    unlink(path.c_str());
    ScenarioFile none;
    CHECK_FALSE(none.open(path).empty());
}

TEST_CASE("hostile lines: whatever is taken is also explained") {
    const std::string seed =
        R"({"id":"x","events":[{"op":"device","capacity":"8.00 GiB","context_bytes":null,"allocator_limit":9,"commit_limit":99},)"
        R"({"op":"segment","id":"s","bytes":4000,"owner":"g"},{"op":"block","id":"a","segment":"s","offset":0,"bytes":10},)"
        R"({"op":"block","id":"b","segment":"s","bytes":{"low":1,"high":20},"requested":1},{"op":"block_free","id":"a","pending_on_stream":"q"},)"
        R"({"op":"va_reserve","bytes":5,"offset":3},{"op":"host_pin","bytes":3},{"op":"handle_leak","bytes":7},{"op":"physical_free_runs","bytes":[1,2]}],)"
        R"("request":{"kind":"allocator","bytes":999,"segment_rounding":7,"block_rounding":3}})";
    const std::string kinds[] = {"allocator",     "driver",       "pinned_host",
                                 "address_space", "peer_mapping", "launch_stack"};
    const std::string amounts[] = {
        "0",    "1",     "18446744073709551615", "null", "\"8.00 GiB\"", "{\"low\":1}", "4096",
        "true", "\"x\"", "9223372036854775808"};
    std::mt19937 random(11);
    std::size_t taken_lines = 0;
    for (int i = 0; i < 3000; ++i) {
        std::string text = seed;
        // Numbers are exchanged for other amounts, the kind for another, and now and then a byte for any
        // other.
        for (int change = 0; change < 1 + static_cast<int>(random() % 4); ++change) {
            const std::size_t from = random() % text.size();
            const std::size_t at = text.find_first_of("0123456789", from);
            if (at == std::string::npos) continue;
            const std::size_t end = text.find_first_not_of("0123456789", at);
            if (text[at - 1] != ':' && text[at - 1] != '[' && text[at - 1] != ',') continue;
            text.replace(at, end - at, amounts[random() % std::size(amounts)]);
        }
        if (const std::size_t at = text.find("allocator\","); at != std::string::npos && random() % 2 == 0) {
            text.replace(at, 9, kinds[random() % std::size(kinds)]);
            const std::size_t cut = text.find(",\"segment_rounding");
            if (cut != std::string::npos && text.find("allocator\",") == std::string::npos)
                text.erase(cut, text.find('}', cut) - cut);
        }
        if (random() % 5 == 0) text[random() % text.size()] = static_cast<char>(random() % 256);
        const ScenarioText read = read_scenario(text);
        if (!read.scenario) {
            CHECK_FALSE(read.problem.empty());
            continue;
        }
        ++taken_lines;
        const report::Explanation e = explain_scenario(*read.scenario);
        CHECK(e.verdict().cause() != report::Verdict::cause_unspecified);
        CHECK_FALSE(e.verdict().summary().empty());
    }
    CHECK(taken_lines > 300);
}
