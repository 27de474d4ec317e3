// RMM's CSV log when it is cut, damaged, or something else: a sentence with the place, or a trace that says
// what is missing; never a part passed off as the whole.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>
#include <string>

#include "analysis/health.h"
#include "tests/unit/import/imported.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

const std::string kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

std::string line(unsigned i) {
    return fmt::format("{},01:02:03.{:06},allocate,0x{:x},{},0x2\n", 100 + i % 3, i,
                       0x7f0000000000 + i * 4096ull, i + 1);
}

std::size_t blocks_of(const Trace& trace) {
    std::size_t count = 0;
    for (const Event& event : trace.events.at(0)) count += event.kind != wire::Kind::kBlockStream ? 1 : 0;
    return count;
}

}  // namespace

TEST_CASE(
    "a log that is cut anywhere gives its whole lines, and says that it is cut unless a line ends there") {
    std::string text = kHeader;
    std::vector<std::size_t> ends{text.size()};
    for (unsigned i = 0; i < 8; ++i) ends.push_back((text += line(i)).size());
    for (std::size_t length = kHeader.size(); length <= text.size(); ++length) {
        CAPTURE(length);
        const ReadResult read = import_text(text.substr(0, length));
        REQUIRE_MESSAGE(read.trace, read.error);
        std::size_t whole = 0;
        while (whole + 1 < ends.size() && ends[whole + 1] <= length) ++whole;
        const bool at_end = ends[whole] == length;
        // In the last field of a line all but the stream is there.
        const std::size_t blocks = blocks_of(*read.trace);
        CHECK(blocks >= whole);
        CHECK(blocks <= whole + (at_end ? 0 : 1));
        CHECK(read.trace->end.events() == read.trace->events[0].size());
        // Each as line() wrote it, also the one that breaks off.
        unsigned i = 0;
        for (const Event& event : read.trace->events[0]) {
            if (event.kind == wire::Kind::kBlockStream) continue;
            CAPTURE(i);
            CHECK(event.kind == wire::Kind::kBlockAcquired);
            CHECK(event.thread == static_cast<std::int32_t>(100 + i % 3));
            CHECK(event.address.value == 0x7f0000000000 + i * 4096ull);
            CHECK(event.bytes.value == i + 1);
            CHECK(event.start.value - read.trace->session.start_ns() == i * 1000ull);
            ++i;
        }
        CHECK((warnings_of(*read.trace).find("breaks off inside line") != std::string::npos) == !at_end);
        CHECK(health_of(*read.trace).complete() == (at_end && whole != 0));
    }
    // A number that is cut is not taken for a whole one.
    const ReadResult cut = import_text(kHeader + line(0) + "1,01:02:03.000004,allocate,0x100,1024");
    REQUIRE(cut.trace);
    CHECK(blocks_of(*cut.trace) == 1);
    const ReadResult stream = import_text(kHeader + "1,01:02:03.000004,allocate,0x100,1024,0x");
    REQUIRE(stream.trace);
    CHECK(events_in_words(*stream.trace) == "allocate 100 1024 @1 +0\n");
}

TEST_CASE("a cut inside the header, an empty file and other kinds are refused with a reason") {
    CHECK(import_text("").error.find("is of no kind that can be imported") != std::string::npos);
    CHECK(import_text("Thread,Time,Act").error.find("is of no kind that can be imported") !=
          std::string::npos);
    CHECK(import_text("a,b,c\n1,2,3\n").error.find("rmm-csv") != std::string::npos);
    CHECK(import_text("", "rmm-csv").error.find("it is empty, expected the line Thread,Time,Action") !=
          std::string::npos);
    CHECK(import_text("a,b,c\n", "rmm-csv").error.find("line 1: 3 fields, expected 6: 'a,b,c'") !=
          std::string::npos);
    CHECK(import_text(kHeader, "rmm").error.find("there is no kind 'rmm'") != std::string::npos);
    const ReadResult twice = import_text(kHeader + line(0) + kHeader + line(1));
    CHECK(twice.error.find("line 3 is a second header") != std::string::npos);
    CHECK(import_file("/nonexistent/log.csv", "").error.find("cannot open /nonexistent/log.csv") !=
          std::string::npos);
    const ReadResult only_header = import_text(kHeader);
    REQUIRE(only_header.trace);
    CHECK(warnings_of(*only_header.trace).find("no rows, only its header") != std::string::npos);
}

TEST_CASE("what a field may hold is said with the line") {
    struct Wrong {
        const char* line;
        const char* said;
    };
    for (const Wrong& wrong : {
             Wrong{"x,01:02:03.000004,allocate,0x100,64,0",
                   "line 3: column Thread holds 'x', expected the number of a thread"},
             Wrong{"99999999999,01:02:03.000004,allocate,0x100,64,0", "column Thread holds '99999999999'"},
             Wrong{"-1,01:02:03.000004,allocate,0x100,64,0", "column Thread holds '-1'"},
             Wrong{"1,24:02:03.000004,allocate,0x100,64,0",
                   "column Time holds '24:02:03.000004', expected a time such as"},
             Wrong{"1,01:60:03.000004,allocate,0x100,64,0", "column Time"},
             Wrong{"1,01:02:03,allocate,0x100,64,0", "column Time"},
             Wrong{"1,01:02:03.0000000004,allocate,0x100,64,0", "column Time"},
             Wrong{"1,01:02:03.000004,Allocate,0x100,64,0",
                   "column Action holds 'Allocate', expected allocate, allocate failure or free"},
             Wrong{"1,01:02:03.000004,allocate,0x,64,0", "column Pointer holds '0x', expected an address"},
             Wrong{"1,01:02:03.000004,allocate,0x10000000000000000,64,0", "column Pointer"},
             Wrong{"1,01:02:03.000004,allocate,0x100,-64,0",
                   "column Size holds '-64', expected a number of bytes"},
             Wrong{"1,01:02:03.000004,allocate,0x100,99999999999999999999,0", "column Size"},
             Wrong{"1,01:02:03.000004,allocate,0x100,64", "5 fields, expected 6"},
             Wrong{"1,01:02:03.000004,allocate,0x100,64,0,7", "7 fields, expected 6"},
             Wrong{"\x1b[31m\x80\xff",
                   "1 fields, expected 6: '?[31m?"
                   "?'"},
         }) {
        CAPTURE(wrong.line);
        const ReadResult read = import_text(kHeader + line(0) + wrong.line + "\n" + line(1));
        REQUIRE_MESSAGE(read.trace, read.error);
        CHECK(blocks_of(*read.trace) == 2);
        CHECK(read.trace->losses[0].records_refused() == 1);
        CHECK(warnings_of(*read.trace).find(wrong.said) != std::string::npos);
        CHECK(warnings_of(*read.trace).find("line 3: ") != std::string::npos);
    }
}

TEST_CASE("a line without an end costs no memory, and most of a file of rubbish is not read") {
    const ReadResult read = import_text(kHeader + line(0) + std::string(1 << 20, 'a') + "\n" + line(1));
    REQUIRE_MESSAGE(read.trace, read.error);
    CHECK(blocks_of(*read.trace) == 2);
    CHECK(read.trace->losses[0].records_refused() == 1);
    std::string rubbish = kHeader;
    for (int i = 0; i < 5000; ++i) rubbish += "rubbish\n";
    CHECK(import_text(rubbish).error.find("most of its first 1002 lines are no rows") != std::string::npos);
}

TEST_CASE("changed, cut, joined and shuffled logs are read or refused, and every line is accounted for") {
    std::mt19937_64 random(20241130);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
    for (int round = 0; round < 1500; ++round) {
        std::string text = kHeader;
        const std::size_t lines = 1 + below(12);
        for (std::size_t i = 0; i < lines; ++i) text += line(static_cast<unsigned>(i));
        const std::size_t changes = 1 + below(6);
        for (std::size_t change = 0; change < changes && !text.empty(); ++change) {
            const std::size_t at = below(text.size());
            switch (below(5)) {
                case 0:
                    text[at] = static_cast<char>(random());
                    break;
                case 1:
                    text.erase(at, 1 + below(40));
                    break;
                case 2:
                    text.insert(at, std::string(1 + below(8), "\n,0x%(\"9"[below(8)]));
                    break;
                case 3:
                    text.insert(at, text.substr(below(text.size()), below(100)));
                    break;
                default:
                    text.resize(at);
                    break;
            }
        }
        CAPTURE(round);
        CAPTURE(text);
        const ReadResult read = import_text(text, "rmm-csv");
        CHECK(read.error.empty() == read.trace.has_value());
        if (!read.trace) {
            CHECK(read.error.find("log.csv") != std::string::npos);
            continue;
        }
        const Trace& trace = *read.trace;
        std::size_t filled = 0;  // lines with anything in them
        bool nothing = true;
        for (const char c : text) {
            if (c == '\n') {
                filled += nothing ? 0 : 1;
                nothing = true;
            } else if (c != ' ' && c != '\t' && c != '\r') {
                nothing = false;
            }
        }
        const bool broken_off = !nothing;
        const std::size_t read_or_refused = blocks_of(trace) + trace.losses[0].records_refused();
        // One line may be the header, and a line of zero bytes is no block.
        CHECK(read_or_refused <= filled + (broken_off ? 1 : 0));
        std::uint64_t sequence = 0;
        for (const Event& event : trace.events[0]) {
            CHECK(event.sequence.value == ++sequence);
            CHECK(event.start.value >= trace.session.start_ns());
        }
        if (trace.losses[0].records_refused() != 0 || broken_off) CHECK(!health_of(trace).complete());
    }
}
