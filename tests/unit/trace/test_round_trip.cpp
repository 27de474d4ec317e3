// What goes into the writer comes out of the reader.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/trace/trace_file.h"

using namespace fragscope;

namespace {

void check_same(const analysis::Trace& trace, const analysis::Event& event, const collector::EventRow& row) {
    CHECK(event.sequence.value == row.sequence);
    CHECK(event.start.value == row.start_ns);
    CHECK(event.duration_ns == row.duration_ns);
    CHECK(event.address.value == row.address);
    CHECK(event.bytes.value == row.bytes);
    CHECK(event.object.value == row.object);
    CHECK(event.extra == row.extra);
    CHECK(event.thread == row.thread);
    CHECK(event.stack == row.stack);
    CHECK(trace.functions[event.function.value] == fmt::format("fn{}", row.function));
    CHECK(event.result == row.result);
    CHECK(event.flags == row.flags);
    CHECK(event.kind == row.kind);
    CHECK(event.device == (row.device == wire::kDeviceUnknown ? analysis::kNoDevice : row.device));
}

void name_all(collector::TraceWriter& writer, std::uint32_t process) {
    for (std::uint16_t f = 0; f < 100; ++f) writer.name_function(process, f, fmt::format("fn{}", f));
}

}  // namespace

TEST_CASE("events of every kind, of several processes, come back as they were") {
    collector::MemorySink sink;
    collector::TraceWriter writer(sink);
    REQUIRE(writer.begin({}));
    const std::size_t counts[] = {3, 1000, 150'000};
    std::uint64_t failures = 0;
    for (std::uint32_t p = 0; p < 3; ++p) {
        name_all(writer, p);
        for (const collector::EventRow& row : test::random_rows(counts[p], p)) {
            writer.event(p, row);
            failures += collector::is_program_failure(row.result, row.flags) ? 1 : 0;
        }
    }
    trace::SessionEnd end;
    end.set_reason("finished");
    writer.end(end);

    const analysis::ReadResult read = test::read_bytes(sink.bytes());
    REQUIRE(read.trace);
    CHECK(read.trace->file.problem == "");
    CHECK_FALSE(read.trace->file.cut_off);
    CHECK(read.trace->file.readable_bytes == sink.bytes().size());
    CHECK(read.trace->end.events() == 151'003);
    CHECK(read.trace->end.failures() == failures);
    CHECK(failures > 0);
    for (std::uint32_t p = 0; p < 3; ++p) {
        const std::vector<collector::EventRow> rows = test::random_rows(counts[p], p);
        REQUIRE(read.trace->events[p].size() == rows.size());
        for (std::size_t i = 0; i < rows.size(); i += p == 2 ? 997 : 1) {
            CHECK(read.trace->events[p][i].process.value == p);
            check_same(*read.trace, read.trace->events[p][i], rows[i]);
        }
    }
}

TEST_CASE("late arrivals come back in the order of their numbers, further records of one call behind it") {
    collector::MemorySink sink;
    collector::TraceWriter writer(sink);
    writer.begin({});
    const auto put = [&](std::uint64_t sequence, std::uint64_t extra) {
        collector::EventRow row;
        row.kind = wire::Kind::kAccessSet;
        row.sequence = sequence;
        row.extra = extra;
        writer.event(0, row);
    };
    put(1, 0);
    put(4, 0);
    put(4, 1);
    put(3, 0);  // late in the same batch
    writer.flush(0);
    put(2, 0);  // late in a later batch
    put(5, 0);
    put(4, 2);
    writer.end({});
    const analysis::ReadResult read = test::read_bytes(sink.bytes());
    REQUIRE(read.trace);
    std::string order;
    for (const analysis::Event& e : read.trace->events.at(0))
        order += fmt::format("{}.{} ", e.sequence.value, e.extra);
    CHECK(order == "1.0 2.0 3.0 4.0 4.1 4.2 5.0 ");
}

TEST_CASE("events that compress almost to nothing are still within what a reader accepts") {
    collector::MemorySink sink;
    collector::TraceWriter writer(sink);
    writer.begin({});
    collector::EventRow row;
    row.kind = wire::Kind::kSynchronized;
    for (std::uint64_t i = 1; i <= 3 * trace::kMaxEventsPerBatch; ++i) {
        row.sequence = i;
        writer.event(0, row);
    }
    writer.end({});
    const analysis::ReadResult read = test::read_bytes(sink.bytes());
    REQUIRE(read.trace);
    CHECK(read.trace->file.problem == "");
    CHECK(read.trace->events.at(0).size() == 3 * trace::kMaxEventsPerBatch);
}

TEST_CASE("a function without a known name is called by its number") {
    collector::MemorySink sink;
    collector::TraceWriter writer(sink);
    writer.begin({});
    collector::EventRow row;
    row.kind = wire::Kind::kCalled;
    row.sequence = 1;
    row.function = 77;
    writer.event(0, row);
    writer.end({});
    const analysis::ReadResult read = test::read_bytes(sink.bytes());
    REQUIRE(read.trace);
    CHECK(read.trace->functions == std::vector<std::string>{"function 77"});
}

TEST_CASE("later descriptions of a process win field by field, devices by ordinal") {
    trace::Chunk first;
    trace::Process& a = *first.mutable_process();
    a.set_pid(7);
    a.add_command_line("old");
    a.add_devices()->set_ordinal(1);
    a.mutable_devices(0)->set_name("card");
    trace::Chunk second;
    trace::Process& b = *second.mutable_process();
    b.add_command_line("new");
    b.add_command_line("argument");
    b.add_devices()->set_ordinal(1);
    b.mutable_devices(0)->set_capacity_bytes(99);
    b.add_devices()->set_ordinal(0);
    b.set_ended_how("exit 0");
    const analysis::ReadResult read =
        test::read_bytes(test::HandMade().session().chunk(first).chunk(second).end().bytes());
    REQUIRE(read.trace);
    REQUIRE(read.trace->processes.size() == 1);
    const trace::Process& merged = read.trace->processes[0];
    CHECK(merged.pid() == 7);
    CHECK(merged.ended_how() == "exit 0");
    REQUIRE(merged.command_line_size() == 2);
    CHECK(merged.command_line(0) == "new");
    REQUIRE(merged.devices_size() == 2);
    CHECK(merged.devices(0).ordinal() == 0);
    CHECK(merged.devices(1).name() == "card");
    CHECK(merged.devices(1).capacity_bytes() == 99);
}

TEST_CASE("names stand before the events that use them, however many come") {
    collector::MemorySink sink;
    collector::TraceWriter writer(sink);
    writer.begin({});
    constexpr std::uint32_t kStacks = 4000;  // some 4 MiB: several chunks of names and of events
    const std::vector<collector::EventRow> rows = test::random_rows(20 * kStacks, 3);
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
        collector::EventRow row = rows[i];
        row.stack = 1 + i / 20;
        if (i % 20 == 0) {
            trace::Names one;
            trace::Stack& stack = *one.add_stacks();
            stack.set_id(row.stack);
            for (std::uint64_t f = 0; f < 128; ++f) stack.add_frames(f * row.stack);
            writer.names(7, one);
        }
        writer.event(7, row);
    }
    // As if the recorder had been killed here: no end, and nothing flushed.
    writer.settle();
    const analysis::ReadResult read = test::read_bytes(sink.bytes());
    REQUIRE(read.trace);
    CHECK(read.trace->events.at(7).size() > rows.size() / 2);
    for (const analysis::Event& event : read.trace->events[7])
        REQUIRE(read.trace->names.at(7).stacks.count(event.stack) == 1);
    CHECK(read.trace->names[7].stacks.at(100).frames(127) == 12700);
}

TEST_CASE("a full sink: the file stays readable and says how much is missing") {
    for (const std::uint64_t limit : {70'000u, 100'000u, 300'000u}) {
        collector::MemorySink sink(limit, 64 * 1024);
        collector::TraceWriter writer(sink);
        REQUIRE(writer.begin({}));
        name_all(writer, 0);
        const std::vector<collector::EventRow> rows = test::random_rows(20'000, 1);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            writer.event(0, rows[i]);
            if (i % 1000 == 999) writer.flush(0);
        }
        trace::Process process;
        process.set_ended_how("exit 0");
        for (int i = 0; i < 5000; ++i) writer.process(process);  // the reserve is finite too
        trace::SessionEnd end;
        end.set_reason("out of space");
        writer.end(end);
        CHECK(writer.stopped());
        CHECK(sink.bytes().size() <= limit);

        const analysis::ReadResult read = test::read_bytes(sink.bytes());
        REQUIRE(read.trace);
        CHECK(read.trace->file.problem == "");
        CHECK_FALSE(read.trace->file.cut_off);
        CHECK(read.trace->end.reason() == "out of space");
        const std::size_t readable = read.trace->events.empty() ? 0 : read.trace->events[0].size();
        CHECK(read.trace->end.events() == readable);
        CHECK(read.trace->end.events_not_written() == rows.size() - readable);
        CHECK(readable < rows.size());
    }
}

TEST_CASE("a file that may not grow further: the same, on a real file") {
    ::signal(SIGXFSZ, SIG_IGN);
    struct rlimit before {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const test::TemporaryFile place({});
    collector::FileSink::Opened opened =
        collector::FileSink::open(place.path(), collector::Existing::kReplace);
    REQUIRE(opened.sink);
    struct rlimit small = before;
    small.rlim_cur = 200'000;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    collector::TraceWriter writer(*opened.sink);
    REQUIRE(writer.begin({}));
    name_all(writer, 0);
    const std::vector<collector::EventRow> rows = test::random_rows(20'000, 1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        writer.event(0, rows[i]);
        if (i % 1000 == 999) writer.flush(0);
    }
    writer.end({});
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(writer.stopped());
    CHECK(opened.sink->problem().find("File too large") != std::string::npos);
    CHECK(std::filesystem::file_size(place.path()) <= 200'000);
    const analysis::ReadResult read = analysis::read_trace(place.path());
    REQUIRE(read.trace);
    CHECK_FALSE(read.trace->file.cut_off);
    CHECK(read.trace->end.events() == read.trace->events.at(0).size());
    CHECK(read.trace->end.events() > 0);
    CHECK(read.trace->end.events_not_written() == rows.size() - read.trace->end.events());
}

TEST_CASE("a file's name: numbered, refused or replaced") {
    const test::TemporaryFile existing({std::byte{1}});
    using collector::Existing;
    using collector::FileSink;
    const FileSink::Opened refused = FileSink::open(existing.path(), Existing::kRefuse);
    CHECK(refused.sink == nullptr);
    CHECK(refused.error.find("exists already") != std::string::npos);
    CHECK(std::filesystem::file_size(existing.path()) == 1);
    {
        const FileSink::Opened numbered = FileSink::open(existing.path(), Existing::kNumber);
        REQUIRE(numbered.sink);
        CHECK(numbered.sink->path() == existing.path() + "-2");
        numbered.sink->discard();
    }
    CHECK_FALSE(std::filesystem::exists(existing.path() + "-2"));
    CHECK(FileSink::open(existing.path(), Existing::kReplace).sink != nullptr);
    CHECK(std::filesystem::file_size(existing.path()) == 0);
    CHECK(FileSink::open("/tmp", Existing::kReplace).error == "cannot write /tmp: it is a directory");
    CHECK(FileSink::open("/no-such-folder/x.fst", Existing::kNumber).error ==
          "cannot write /no-such-folder/x.fst: No such file or directory");
}

TEST_CASE("/dev/full takes nothing, and says so") {
    collector::FileSink::Opened opened = collector::FileSink::open("/dev/full", collector::Existing::kRefuse);
    REQUIRE(opened.sink);
    collector::TraceWriter writer(*opened.sink);
    CHECK_FALSE(writer.begin({}));
    CHECK(opened.sink->problem() == "cannot write more to /dev/full: No space left on device");
}
