// RMM's CSV log, read as its sources write it (logging_resource_adaptor: header, pattern "%t,%H:%M:%S.%f,%v",
// the three actions) and as its older versions did. The right values are the ones that stand in each test's
// own lines.
#include "analysis/read/rmm_log.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/health.h"
#include "analysis/read/trace_reader.h"
#include "tests/unit/import/imported.h"
#include "tools/write_trace.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

const std::string kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

Trace imported(const std::string& text, const std::string& name = "log.csv") {
    ReadResult read = import_text(text, "", name);
    REQUIRE_MESSAGE(read.trace, read.error);
    return std::move(*read.trace);
}

bool unknown_mentions(const Trace& trace, const std::string& part) {
    const auto& unknown = trace.session.provenance().unknown();
    return std::any_of(unknown.begin(), unknown.end(),
                       [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

constexpr std::uint64_t kHour = 3'600'000'000'000;

// Of the blocks that were given out, since the beginning of the session.
std::vector<std::uint64_t> times_of(const Trace& trace) {
    std::vector<std::uint64_t> out;
    for (const Event& event : trace.events[0])
        if (event.kind == wire::Kind::kBlockAcquired)
            out.push_back(event.start.value - trace.session.start_ns());
    return out;
}

}  // namespace

TEST_CASE("each line becomes one event, and a change of a thread's stream one before it") {
    const Trace trace = imported(kHeader +
                                 "4711,13:37:05.000123,allocate,0x7f2a00000000,1048576,0x0\n"
                                 "4711,13:37:05.000200,allocate,0x7f2a00100000,256,0x2\n"
                                 "4712,13:37:05.000300,allocate failure,(nil),99999999999,0x2\n"
                                 "4711,13:37:05.000400,free,0x7f2a00000000,1048576,0x2\n"
                                 "4711,13:37:06.000000,free,0x7f2a00100000,256,0x0\n");
    CHECK(events_in_words(trace) ==
          "stream 0 @4711 +0\n"
          "allocate 7f2a00000000 1048576 @4711 +0\n"
          "stream 2 @4711 +77000\n"
          "allocate 7f2a00100000 256 @4711 +77000\n"
          "stream 2 @4712 +177000\n"
          "refused 99999999999 @4712 +177000\n"
          "free 7f2a00000000 1048576 @4711 +277000\n"
          "stream 0 @4711 +999877000\n"
          "free 7f2a00100000 256 @4711 +999877000\n");
    CHECK(warnings_of(trace).empty());
    for (std::size_t i = 0; i < trace.events[0].size(); ++i)
        CHECK(trace.events[0][i].sequence.value == i + 1);
    // The log gives no totals and no device, and neither is made up.
    for (const Event& event : trace.events[0]) {
        CHECK(event.device == kNoDevice);
        if (event.kind == wire::Kind::kBlockStream) continue;
        CHECK(event.object.value == wire::kTotalNotTold);
        CHECK(event.extra == wire::kTotalNotTold);
        CHECK(event.failed() == (event.kind == wire::Kind::kBlockRefused));
    }
    CHECK(trace.session.provenance().kind() == "rmm-csv");
    CHECK(unknown_mentions(trace, "The device."));
    CHECK(trace.end.failures() == 1);
}

TEST_CASE("pointers, streams and times are read as every version of RMM spells them") {
    const std::string expected =
        "stream 0 @1 +0\n"
        "allocate 7f2a00000000 64 @1 +0\n"
        "free 7f2a00000000 64 @1 +1000\n"
        "refused 128 @1 +2000\n";
    // fmt::ptr, as until 24.10; hexadecimal digits alone ("%llx"); "%p" and a stream of an ostream, as
    // since 24.12.
    CHECK(events_in_words(imported(kHeader + "1,01:02:03.000004,allocate,0x7f2a00000000,64,0x0\n"
                                             "1,01:02:03.000005,free,0x7f2a00000000,64,0x0\n"
                                             "1,01:02:03.000006,allocate failure,0x0,128,0x0\n")) ==
          expected);
    CHECK(events_in_words(imported(kHeader + "1,01:02:03.000004,allocate,7f2a00000000,64,0\n"
                                             "1,01:02:03.000005,free,7f2a00000000,64,0\n"
                                             "1,01:02:03.000006,allocate failure,0,128,0\n")) == expected);
    CHECK(events_in_words(imported(kHeader + "1,01:02:03.000004,allocate,0x7f2a00000000,64,0\n"
                                             "1,01:02:03.000005,free,0x7f2a00000000,64,0\n"
                                             "1,01:02:03.000006,allocate failure,(nil),128,0\n")) ==
          expected);
    // A colon before the microseconds; lines of Windows; a byte-order mark; spaces.
    CHECK(events_in_words(imported("\xef\xbb\xbf" + kHeader +
                                   "1,01:02:03:000004,allocate,0x7F2A00000000,64,(nil)\r\n"
                                   "1, 01:02:03:000005, free, 0x7f2a00000000, 64, 0\r\n\r\n"
                                   "1,01:02:03:000006,allocate failure,(nil),128,0\r\n")) == expected);
    const Trace streams = imported(kHeader + "1,01:02:03.000004,allocate,0x100,64,0x55d2c0a81230\n");
    CHECK(streams.events[0][0].object.value == 0x55d2c0a81230);
}

TEST_CASE("columns are found by their names, and absent ones are listed as unknown") {
    const Trace trace = imported(
        "Action,Size,Pointer,Note\n"
        "allocate,64,0x100,a\n"
        "free,64,0x100,b\n");
    CHECK(events_in_words(trace) == "allocate 100 64 @0 +0\nfree 100 64 @0 +0\n");
    CHECK(unknown_mentions(trace, "The times."));
    CHECK(unknown_mentions(trace, "The threads."));
    CHECK(unknown_mentions(trace, "The streams."));
}

TEST_CASE("a log without its beginning is known by its lines") {
    const Trace trace = imported(
        "0100,64,0x0\n"
        "1,01:02:03.000005,free,0x100,64,0x0\n");
    CHECK(events_in_words(trace) == "stream 0 @1 +0\nfree 100 64 @1 +0\n");
    CHECK(trace.losses[0].records_refused() == 1);
    CHECK(warnings_of(trace).find("line 1: 3 fields, expected 6") != std::string::npos);
}

TEST_CASE("times go on over midnight, and threads that overtake each other do not turn the day") {
    const Trace trace = imported(kHeader +
                                 "1,23:59:59.999999,allocate,0x100,64,0\n"
                                 "2,23:59:59.999998,allocate,0x200,64,0\n"  // overtaken: a little earlier
                                 "1,00:00:00.000001,allocate,0x300,64,0\n"  // midnight
                                 "2,23:59:59.999999,allocate,0x400,64,0\n"  // late: still of the day before
                                 "1,00:00:00.000002,allocate,0x500,64,0\n"
                                 "1,23:00:00.000000,allocate,0x600,64,0\n"
                                 "1,01:00:00.000000,allocate,0x700,64,0\n");  // midnight again
    // Since 23:59:59.999998.
    CHECK(times_of(trace) ==
          std::vector<std::uint64_t>{1000, 0, 3000, 1000, 4000, 23 * kHour + 2000, 25 * kHour + 2000});
    CHECK(unknown_mentions(trace, "midnight passed 2 times"));
    // The order is that of the lines, whatever the times say.
    std::uint64_t address = 0;
    for (const Event& event : trace.events[0])
        if (event.kind == wire::Kind::kBlockAcquired) CHECK(event.address.value == (address += 0x100));
}

TEST_CASE("a rest of half a day is a rest: neither yesterday nor overtaken") {
    const auto of_two = [](const std::string& first, const std::string& second) {
        return times_of(imported(kHeader + "1," + first + ".000000,allocate,0x100,64,0\n1," + second +
                                 ".000000,allocate,0x200,64,0\n"));
    };
    using Times = std::vector<std::uint64_t>;
    CHECK(of_two("01:00:00", "14:00:00") == Times{0, 13 * kHour});
    CHECK(of_two("01:00:00", "23:00:00") == Times{0, 22 * kHour});
    CHECK(of_two("14:00:00", "01:00:00") == Times{0, 11 * kHour});
    CHECK(of_two("13:00:00", "02:00:00") == Times{0, 13 * kHour});
    CHECK(of_two("02:00:00", "00:30:00") == Times{0, 22 * kHour + kHour / 2});
    // Summer time ends: the clock is put back by an hour.
    CHECK(of_two("02:59:59", "02:00:00") == Times{kHour - 1'000'000'000, 0});
    // The same after a midnight that was seen.
    const Trace later = imported(kHeader +
                                 "1,23:00:00.000000,allocate,0x100,64,0\n"
                                 "1,01:00:00.000000,allocate,0x200,64,0\n"
                                 "1,14:00:00.000000,allocate,0x300,64,0\n");
    CHECK(times_of(later) == Times{0, 2 * kHour, 15 * kHour});
    CHECK(unknown_mentions(later, "midnight passed once"));
    CHECK(unknown_mentions(later, "23 hours or more"));
    // A leap second stands before the midnight that follows it.
    CHECK(of_two("23:59:60", "00:00:01") == Times{0, 1'000'000'000});
}

TEST_CASE("a device is taken from the file's name as RMM's Python package makes it, and said to be") {
    const std::string line = kHeader + "1,01:02:03.000004,allocate,0x100,64,0\n";
    const Trace third = imported(line, "run.dev3.csv");
    CHECK(third.events[0].back().device == 3);
    CHECK(!third.events[0].back().has(wire::kUnknownDevice));
    CHECK(unknown_mentions(third, "its number, 3, is taken from the file's name"));
    for (const char* name : {"run.csv", "run.dev.csv", "run.dev1x.csv", "run.dev999.csv"}) {
        const Trace none = imported(line, name);
        CHECK(none.events[0].back().device == kNoDevice);
        CHECK(none.events[0].back().has(wire::kUnknownDevice));
    }
}

TEST_CASE("lines that hold RMM's format instead of its values are counted as lost") {
    const Trace trace = imported(kHeader +
                                 "1,01:02:03.000004,allocate,%p,%zu,%s\n"
                                 "1,01:02:03.000005,allocate,%llx,%zu,%llx\n"
                                 "1,01:02:03.000006,free,{},{},{}\n"
                                 "1,01:02:03.000007,allocate,0x100,64,0\n");
    CHECK(events_in_words(trace) == "stream 0 @1 +0\nallocate 100 64 @1 +0\n");
    CHECK(trace.losses[0].records_refused() == 3);
    CHECK(warnings_of(trace).find("3 lines of the log hold RMM's format instead of its values") !=
          std::string::npos);
    CHECK(!health_of(trace).complete());
    // Nothing else in it: refused, with the place.
    const ReadResult none = import_text(kHeader + "1,01:02:03.000004,allocate,%p,%zu,%s\n");
    CHECK(!none.trace);
    CHECK(none.error.find("line 2: column Pointer holds '%p'") != std::string::npos);
    // Only the stream is garbage: the block is known.
    const Trace stream = imported(kHeader + "1,01:02:03.000004,allocate,0x100,64,\x01\x7f?\n");
    CHECK(events_in_words(stream) == "allocate 100 64 @1 +0\n");
    CHECK(warnings_of(stream).find("line 2: column Stream holds '?"
                                   "?"
                                   "?'") != std::string::npos);
}

TEST_CASE("allocations of nothing are no blocks") {
    const Trace trace = imported(kHeader +
                                 "1,01:02:03.000004,allocate,(nil),0,0\n"
                                 "1,01:02:03.000005,free,(nil),0,0\n"
                                 "1,01:02:03.000006,allocate,0x100,64,0\n");
    CHECK(events_in_words(trace) == "stream 0 @1 +2000\nallocate 100 64 @1 +2000\n");
    CHECK(warnings_of(trace).empty());
}

TEST_CASE("an imported trace comes back from its file as it was") {
    Trace before = imported(kHeader +
                                "4711,23:59:59.999999,allocate,0x7f2a00000000,1048576,0x0\n"
                                "4712,00:00:00.000000,allocate failure,(nil),77,0x2\n"
                                "4712,00:00:00.000001,nonsense,(nil),77,0x2\n"
                                "4711,00:00:01.000000,free,0x7f2a00000000,1048576,0x2\n",
                            "run.dev1.csv");
    // No log of RMM's holds readings of the management library; another tool's file may.
    for (const std::uint64_t used : {1024, 2048}) {
        trace::Readings& readings = before.readings.emplace_back();
        readings.set_time_ns(before.session.start_ns() + used);
        readings.set_driver_version("580.65.06");
        readings.add_devices()->set_used_bytes(used);
    }
    char path[] = "/tmp/fragscope-test-XXXXXX";
    REQUIRE(::close(::mkstemp(path)) == 0);
    collector::FileSink::Opened opened = collector::FileSink::open(path, collector::Existing::kReplace);
    REQUIRE(opened.sink);
    REQUIRE(tools::write_trace(before, *opened.sink).empty());
    opened.sink->finish();
    const ReadResult read = read_trace(path);
    ::unlink(path);
    REQUIRE_MESSAGE(read.trace, read.error);
    const Trace& after = *read.trace;
    CHECK(after.session.SerializeAsString() == before.session.SerializeAsString());
    CHECK(after.losses[0].SerializeAsString() == before.losses[0].SerializeAsString());
    CHECK(after.end.SerializeAsString() == before.end.SerializeAsString());
    CHECK(!after.file.cut_off);
    REQUIRE(after.readings.size() == before.readings.size());
    for (std::size_t i = 0; i < before.readings.size(); ++i)
        CHECK(after.readings[i].SerializeAsString() == before.readings[i].SerializeAsString());
    CHECK(events_in_words(after) == events_in_words(before));
    for (std::size_t i = 0; i < before.events[0].size(); ++i) {
        const Event& a = after.events[0].at(i);
        const Event& b = before.events[0][i];
        CHECK(after.functions[a.function.value] == before.functions[b.function.value]);
        CHECK(a.device == b.device);
        CHECK(a.flags == b.flags);
        CHECK(a.result == b.result);
        CHECK(a.object == b.object);
        CHECK(a.extra == b.extra);
    }
}
