// The drain against producers that behave, die, or write rubbish.
#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "analysis/read/trace_reader.h"
#include "collector/drain.h"
#include "collector/liveness.h"
#include "tests/unit/collector/producer.h"

using namespace fragscope;
using wire::SlotState;

namespace {

// A session with its drain and a trace in memory.
struct Recording {
    Recording() {
        collector::SessionOptions options;
        options.bytes = collector::min_session_bytes();
        created = collector::RingHost::create(options);
        REQUIRE(created.host);
        start = collector::read_clock_pair(wire::Clock::kMonotonic);
        REQUIRE(writer.begin({}));
        drain.emplace(*created.host, writer, start);
    }
    collector::RingHost& host() { return *created.host; }

    // Rounds until `done` holds; the drain looks at processes and threads every few milliseconds only.
    template <typename Done>
    bool poll_until(Done&& done) {
        const std::uint64_t deadline = collector::monotonic_ns() + 20'000'000'000;
        while (!done()) {
            if (collector::monotonic_ns() > deadline) return false;
            drain->poll();
        }
        return true;
    }
    std::size_t file_bytes() {
        writer.settle();
        return sink.bytes().size();
    }
    analysis::Trace end() {
        drain->finish();
        writer.end({});
        char name[] = "/tmp/fragscope-test-XXXXXX";
        const int fd = ::mkstemp(name);
        REQUIRE(::write(fd, sink.bytes().data(), sink.bytes().size()) ==
                static_cast<ssize_t>(sink.bytes().size()));
        ::close(fd);
        analysis::ReadResult read = analysis::read_trace(name);
        ::unlink(name);
        REQUIRE(read.trace);
        CHECK(read.trace->file.problem == "");
        return std::move(*read.trace);
    }

    collector::RingHost::Created created;
    collector::MemorySink sink;
    collector::TraceWriter writer{sink};
    collector::ClockPair start;
    std::optional<collector::Drain> drain;
};

std::vector<std::uint64_t> numbers(const analysis::Trace& trace, std::size_t process = 0) {
    std::vector<std::uint64_t> out;
    for (const analysis::Event& e : trace.events.at(process)) out.push_back(e.sequence.value);
    return out;
}

using Numbers = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("records of two threads become one order, with names") {
    Recording recording;
    test::Producer producer(recording.host());
    wire::RingWriter a = producer.ring(11);
    wire::RingWriter b = producer.ring(22);
    test::put_text(a, wire::TextKind::kExecutable, 0, std::string(100, 'x'));
    test::put_text(a, wire::TextKind::kFunctionName, 5, "cuMemAlloc_v2");
    for (std::uint64_t n = 1; n <= 50; ++n) {
        wire::Record record = test::record_of(n);
        record.function = 5;
        record.duration = n == 7 ? UINT32_MAX : 10;
        record.result = n == 9 ? 2 : 0;
        test::put(n % 3 == 0 ? b : a, record);
    }
    CHECK(recording.drain->poll() == 50 + 4 + 1);
    const analysis::Trace trace = recording.end();
    REQUIRE(trace.events.size() == 1);
    REQUIRE(trace.events[0].size() == 50);
    CHECK(trace.functions == std::vector<std::string>{"cuMemAlloc_v2"});
    CHECK(trace.processes[0].pid() == ::getpid());
    CHECK(trace.processes[0].executable() == std::string(100, 'x'));
    CHECK(trace.processes[0].ended_how() == "still running");
    for (std::size_t i = 0; i < 50; ++i) {
        const analysis::Event& event = trace.events[0][i];
        CHECK(event.sequence.value == i + 1);
        CHECK(event.thread == ((i + 1) % 3 == 0 ? 22 : 11));
        CHECK(event.duration_ns == (i == 6 ? std::uint64_t{UINT32_MAX} << 4 : 160));
        CHECK(event.has(wire::kDurationFull) == (i == 6));
        CHECK(event.start.value >= recording.start.ns);
    }
    CHECK(trace.end.failures() == 1);
    CHECK(trace.losses[0].acquisitions() == 0);
}

TEST_CASE("a ring is emptied before it goes to the next thread") {
    Recording recording;
    test::Producer producer(recording.host());
    for (std::uint64_t n = 1; n <= 3; ++n) {
        wire::RingWriter ring = producer.ring(static_cast<std::int32_t>(n));
        CHECK(ring.header() == &recording.host().ring(0));
        test::put(ring, test::record_of(n));
        producer.give_back(ring);
        recording.drain->poll();
        CHECK(recording.host().ring(0).state.load() == SlotState::kFree);
    }
    const analysis::Trace trace = recording.end();
    CHECK(numbers(trace) == Numbers{1, 2, 3});
    CHECK(trace.events[0][2].thread == 3);
}

TEST_CASE("losses are counted once, whoever has the ring now") {
    Recording recording;
    test::Producer producer(recording.host());
    wire::RingWriter first = producer.ring();
    first.header()->lost_acquisitions = 3;
    first.header()->lost_acquired_bytes = 3000;
    recording.host().process_slot(producer.slot).launches = 17;
    producer.give_back(first);
    recording.drain->poll();
    wire::RingWriter second = producer.ring();
    CHECK(second.header()->lost_acquisitions.load() == 0);
    second.header()->lost_releases = 4;
    second.header()->lost_acquisitions = 1;
    recording.drain->poll();
    const analysis::Trace trace = recording.end();
    CHECK(recording.drain->records_lost() == 8);
    CHECK(trace.losses.at(0).acquisitions() == 4);
    CHECK(trace.losses[0].releases() == 4);
    CHECK(trace.losses[0].acquired_bytes() == 3000);
    CHECK(trace.losses[0].kernel_launches() == 17);
}

TEST_CASE("names, call stacks and thread names reach the trace, each once, whoever sent them") {
    Recording recording;
    test::Producer producer(recording.host());
    wire::RingWriter a = producer.ring(11);
    wire::RingWriter b = producer.ring(22);
    const std::string stack = test::stack_text(1, 0, {wire::module_frame(1, 0x40)});
    test::put_text(a, wire::TextKind::kThreadName, 0, "loader");
    test::put_text(a, wire::TextKind::kThreadName, 0, "renamed");
    test::put_text(b, wire::TextKind::kThreadName, 0, std::string(1000, 'n'));
    for (wire::RingWriter* ring : {&a, &b}) {
        test::put_text(*ring, wire::TextKind::kString, 0, "cudaMalloc", 1);
        test::put_text(*ring, wire::TextKind::kModule, 0, test::module_text(1, 2, 3, "id", "/bin/x"), 1);
        test::put_text(*ring, wire::TextKind::kStack, 0, stack, 1);
    }
    test::put_text(b, wire::TextKind::kStack, 0, stack.substr(1), 2);
    wire::Record record = test::record_of(1);
    record.stack = 1;
    test::put(a, record);
    record = test::record_of(2);
    record.stack = 2;  // its definition was refused
    test::put(b, record);
    recording.drain->poll();
    const analysis::Trace trace = recording.end();
    REQUIRE(trace.names.size() == 1);
    CHECK(trace.names[0].texts.at(1) == "cudaMalloc");
    CHECK(trace.names[0].modules.at(1).path() == "/bin/x");
    CHECK(trace.names[0].stacks.at(1).frames(0) == wire::module_frame(1, 0x40));
    CHECK(trace.names[0].stacks.size() == 1);
    CHECK(trace.events.at(0).at(0).stack == 1);
    CHECK(trace.events[0].at(1).stack == 2);
    CHECK(trace.losses.at(0).records_refused() == 1);
    CHECK(trace.processes.at(0).thread_names().at(11) == "loader");
    CHECK(trace.processes[0].thread_names().at(22) == std::string(64, 'n'));
}

TEST_CASE("names that came in different rounds are all there") {
    Recording recording;
    test::Producer producer(recording.host());
    for (std::uint32_t n = 1; n <= 3; ++n) {
        wire::RingWriter ring = producer.ring(static_cast<std::int32_t>(n));
        test::put_text(ring, wire::TextKind::kThreadName, 0, "thread " + std::to_string(n));
        test::put_text(ring, wire::TextKind::kString, 0, "text " + std::to_string(n), n);
        producer.give_back(ring);
        const std::size_t before = recording.file_bytes();
        CHECK(recording.poll_until([&] { return recording.file_bytes() > before; }));
    }
    const analysis::Trace trace = recording.end();
    CHECK(trace.processes.at(0).thread_names().size() == 3);
    CHECK(trace.processes[0].thread_names().at(1) == "thread 1");
    REQUIRE(trace.names.at(0).texts.size() == 3);
    CHECK(trace.names[0].texts.at(2) == "text 2");
}

TEST_CASE("what a process says of itself never grows beyond a chunk") {
    Recording recording;
    test::Producer producer(recording.host());
    wire::RingWriter ring = producer.ring();
    for (std::uint16_t ordinal = 0; ordinal < 255; ++ordinal) {
        test::put_text(ring, wire::TextKind::kDeviceName, ordinal, std::string(wire::kMaxTextBytes, 'd'));
        wire::Record attribute{};
        attribute.kind = wire::Kind::kDeviceAttribute;
        attribute.device = static_cast<std::uint8_t>(ordinal);
        for (attribute.address = 0; attribute.address < 100; ++attribute.address) {
            if (attribute.address % 90 == 0) recording.drain->poll();
            test::put(ring, attribute);
        }
        recording.drain->poll();
    }
    const analysis::Trace trace = recording.end();
    CHECK(trace.processes.at(0).pid() == ::getpid());
    CHECK(trace.processes[0].ended_how() == "still running");
}

TEST_CASE("losses are counted by kind, and the next process in the slot begins at none") {
    Recording recording;
    {
        test::Producer gone(recording.host(), ::getpid(), 1);  // started when the machine did: long dead
        wire::ProcessSlot& slot = recording.host().process_slot(gone.slot);
        slot.lost_kinds[static_cast<std::uint32_t>(wire::Kind::kLinearAcquired)] = 7;
        slot.lost_kinds[static_cast<std::uint32_t>(wire::Kind::kText)] = 2;
        slot.lost_kinds[wire::kLostKinds - 1] = 9;  // no kind: rubbish
    }
    CHECK(recording.poll_until([&] {
        return recording.host().process_slot(0).state.load() == SlotState::kFree &&
               recording.drain->processes_seen() == 1;
    }));
    for (const std::atomic<std::uint32_t>& counter : recording.host().process_slot(0).lost_kinds)
        CHECK(counter.load() == 0);
    test::Producer next(recording.host());
    recording.drain->poll();
    const analysis::Trace trace = recording.end();
    REQUIRE(trace.losses.size() == 2);
    CHECK(trace.losses[0].records_by_kind().size() == 2);
    CHECK(trace.losses[0].records_by_kind().at(1) == 7);
    CHECK(trace.losses[0].records_by_kind().at(41) == 2);
    CHECK(trace.losses[1].records_by_kind().empty());
}

TEST_CASE("records that make no sense are refused and counted") {
    Recording recording;
    test::Producer producer(recording.host());
    wire::RingWriter ring = producer.ring();
    test::put(ring, test::record_of(1));
    test::put(ring, test::record_of(2, wire::Kind::kNone));
    test::put(ring, test::record_of(3, static_cast<wire::Kind>(200)));
    test::put(ring, test::record_of(0));
    wire::Record strange = test::record_of(4);
    strange.flags = 1u << 15;
    test::put(ring, strange);
    wire::Record future = test::record_of(5);
    future.start += 1'000'000'000'000;
    test::put(ring, future);
    wire::Record past = test::record_of(6);
    past.start = 1;
    test::put(ring, past);
    test::put(ring, test::record_of(7));
    recording.drain->poll();
    const analysis::Trace trace = recording.end();
    CHECK(numbers(trace) == Numbers{1, 7});
    CHECK(trace.losses.at(0).records_refused() == 6);
}

TEST_CASE("a ring with an impossible head is given up; the others go on") {
    Recording recording;
    test::Producer producer(recording.host());
    wire::RingWriter bad = producer.ring();
    wire::RingWriter good = producer.ring();
    test::put(bad, test::record_of(1));
    recording.drain->poll();
    bad.header()->head = 1'000'000;
    test::put(good, test::record_of(2));
    recording.drain->poll();
    bad.header()->head = 2;  // looks right again, and is not believed
    recording.drain->poll();
    producer.give_back(bad);
    recording.drain->poll();
    CHECK(bad.header()->state.load() != SlotState::kFree);  // nobody gets it again
    test::put(good, test::record_of(3));
    const analysis::Trace trace = recording.end();
    CHECK(numbers(trace) == Numbers{1, 2, 3});
    CHECK(trace.losses.at(0).rings_damaged() == 1);
    CHECK(recording.drain->rings_damaged() == 1);
}

TEST_CASE("a ring that names no process is left alone") {
    Recording recording;
    wire::RingHeader& ring = recording.host().ring(0);
    ring.process = 1u << 30;
    ring.head = 1;
    ring.state = SlotState::kLive;
    CHECK(recording.drain->poll() == 0);
    ring.process = 5;  // a slot that nobody has
    CHECK(recording.drain->poll() == 0);
    CHECK(recording.end().events.empty());
}

TEST_CASE("a process that dies at once: all that it committed is there, and its slots are free again") {
    Recording recording;
    const pid_t child = ::fork();
    if (child == 0) {
        test::Producer producer(recording.host());
        wire::RingWriter ring = producer.ring();
        for (std::uint64_t n = 1; n <= 50; ++n) test::put(ring, test::record_of(n));
        test::put(ring, test::record_of(53));  // two numbers were taken and never committed
        wire::Record* half = ring.reserve();
        half->sequence = 54;
        recording.host().process_slot(producer.slot).opaque_writes = 3;
        ::_exit(0);
    }
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    CHECK(recording.poll_until([&] {
        return recording.host().process_slot(0).state.load() == SlotState::kFree &&
               recording.drain->processes_seen() == 1;
    }));
    CHECK(recording.host().ring(0).state.load() == SlotState::kFree);
    CHECK(recording.host().process_slot(0).opaque_writes.load() == 0);
    CHECK(recording.drain->processes_attached() == 0);
    recording.drain->note_end(child, "signal 9");
    const analysis::Trace trace = recording.end();
    REQUIRE(trace.events.at(0).size() == 51);
    CHECK(trace.events[0].back().sequence.value == 53);
    CHECK(trace.processes[0].ended_how() == "signal 9");
    CHECK(trace.processes[0].pid() == child);
    CHECK(trace.losses[0].opaque_writes() == 3);
}

TEST_CASE("a process that never had the driver lacks nothing that the driver could have said") {
    for (const bool succeeded : {false, true}) {
        for (const bool lost : {false, true}) {
            CAPTURE(succeeded);
            CAPTURE(lost);
            Recording recording;
            test::Producer producer(recording.host());
            wire::RingWriter ring = producer.ring();
            wire::Record record = test::record_of(1);
            record.result = succeeded ? 0 : 3;  // CUDA_ERROR_NOT_INITIALIZED
            test::put(ring, record);
            if (lost) ring.header()->lost_others = 1;
            recording.drain->poll();
            const analysis::Trace trace = recording.end();
            CHECK(numbers(trace) == Numbers{1});
            CHECK(trace.processes.at(0).environment_complete() == (!succeeded && !lost));
        }
    }
}

TEST_CASE("another process of the same number is another process") {
    Recording recording;
    test::Producer gone(recording.host(), ::getpid(), 1);  // started when the machine did
    wire::RingWriter ring = gone.ring();
    test::put(ring, test::record_of(1));
    CHECK(recording.poll_until([&] {
        return recording.host().process_slot(0).state.load() == SlotState::kFree &&
               recording.drain->processes_seen() == 1;
    }));
    test::Producer alive(recording.host());
    CHECK(alive.slot == 0);
    recording.drain->poll();
    CHECK(recording.drain->processes_attached() == 1);
    const analysis::Trace trace = recording.end();
    CHECK(numbers(trace) == Numbers{1});
    CHECK(trace.processes.at(0).ended_how() == "unknown");
    CHECK(trace.processes.at(1).ended_how() == "still running");
}

TEST_CASE("a process that executes another program is seen as two, one after the other") {
    Recording recording;
    test::Producer before(recording.host());
    wire::RingWriter old_ring = before.ring();
    test::put(old_ring, test::record_of(1));
    recording.drain->poll();
    test::put(old_ring, test::record_of(2));
    test::Producer after(recording.host());
    wire::RingWriter new_ring = after.ring();
    test::put(new_ring, test::record_of(1));
    recording.drain->poll();
    CHECK(recording.host().process_slot(before.slot).state.load() == SlotState::kFree);
    CHECK(recording.drain->processes_attached() == 1);
    recording.drain->note_end(::getpid(), "exit 0");
    const analysis::Trace trace = recording.end();
    CHECK(numbers(trace, 0) == Numbers{1, 2});
    CHECK(numbers(trace, 1) == Numbers{1});
    CHECK(trace.processes.at(0).ended_how() == "exec");
}

TEST_CASE("two programs of one process found in one round: the one that gave its place back was first") {
    Recording recording;
    // Somebody else's, until the second program takes it: the later one in the lower place, which is looked at first.
    recording.host().process_slot(0).state.store(SlotState::kClaimed);
    test::Producer before(recording.host());
    wire::RingWriter old_ring = before.ring();
    for (const std::uint64_t number : {1, 2, 3}) test::put(old_ring, test::record_of(number));
    before.give_back(old_ring);
    recording.host().process_slot(before.slot).state.store(SlotState::kReleased);
    recording.host().process_slot(0).state.store(SlotState::kFree);
    test::Producer after(recording.host());
    CHECK(after.slot < before.slot);
    wire::RingWriter new_ring = after.ring();
    test::put(new_ring, test::record_of(1));
    recording.drain->poll();
    CHECK(recording.drain->processes_attached() == 1);
    test::put(new_ring, test::record_of(2));
    recording.drain->poll();
    recording.drain->note_end(::getpid(), "exit 7");
    const analysis::Trace trace = recording.end();
    CHECK(numbers(trace, 0) == Numbers{1, 2});
    CHECK(trace.processes.at(0).ended_how() == "exit 7");
    CHECK(numbers(trace, 1) == Numbers{1, 2, 3});
    CHECK(trace.processes.at(1).ended_how() == "exec");
}

TEST_CASE("a thread that ended without giving its ring back loses nothing and the ring") {
    Recording recording;
    test::Producer producer(recording.host());
    std::int32_t gone = 0;
    std::thread([&] { gone = static_cast<std::int32_t>(::syscall(SYS_gettid)); }).join();
    wire::RingWriter orphaned = producer.ring(gone);
    wire::RingWriter kept = producer.ring();
    test::put(orphaned, test::record_of(1));
    test::put(kept, test::record_of(2));
    CHECK(recording.poll_until([&] { return orphaned.header()->state.load() == SlotState::kFree; }));
    CHECK(kept.header()->state.load() == SlotState::kLive);
    CHECK(numbers(recording.end()) == Numbers{1, 2});
}

TEST_CASE("a ring that is being claimed is not yet that of its last thread") {
    Recording recording;
    test::Producer producer(recording.host());
    std::int32_t gone = 0;
    std::thread([&] { gone = static_cast<std::int32_t>(::syscall(SYS_gettid)); }).join();
    wire::RingHeader& header = recording.host().ring(0);
    header.state.store(SlotState::kClaimed);
    header.process = producer.slot;
    header.thread = gone;  // left by the one before
    recording.drain->poll();
    header.thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
    header.state.store(SlotState::kLive);
    wire::RingWriter ring(&header, const_cast<wire::Record*>(recording.host().records(0)), recording.host().ring_records());
    test::put(ring, test::record_of(1));
    // Once a ring behind it was found to be without its thread, all before it were looked at.
    wire::RingWriter orphaned = producer.ring(gone);
    CHECK(recording.poll_until([&] { return orphaned.header()->state.load() == SlotState::kFree; }));
    CHECK(header.state.load() == SlotState::kLive);
    test::put(ring, test::record_of(2));
    CHECK(numbers(recording.end()) == Numbers{1, 2});
}

TEST_CASE("rubbish everywhere: the collector lives and the trace can be read") {
    std::mt19937_64 random(5);
    for (int round = 0; round < 20; ++round) {
        Recording recording;
        collector::RingHost& host = recording.host();
        for (int step = 0; step < 5; ++step) {
            for (std::uint32_t i = 0; i < 20; ++i) {
                wire::ProcessSlot& slot = host.process_slot(i);
                slot.pid = static_cast<std::int32_t>(random() % 3 == 0 ? random()
                                                                       : static_cast<unsigned>(::getpid()));
                slot.start_time = random() % 2 == 0 ? random() : 0;
                slot.pid_namespace = random() % 2 == 0 ? collector::own_pid_namespace() : random();
                slot.launches = random();
                slot.state = static_cast<SlotState>(random() % 6);
            }
            for (std::uint32_t i = 0; i < collector::kRings; ++i) {
                wire::RingHeader& ring = host.ring(i);
                ring.process = static_cast<std::uint32_t>(random() % 30);
                ring.thread = static_cast<std::int32_t>(random());
                ring.head = random() % 2 == 0 ? random() % host.ring_records() : random();
                ring.tail = random();
                ring.lost_others = random();
                ring.state = static_cast<SlotState>(random() % 6);
                auto* records = const_cast<wire::Record*>(host.records(i));
                for (std::uint32_t k = 0; k < host.ring_records(); ++k) {
                    std::uint64_t words[8];
                    for (std::uint64_t& word : words) word = random();
                    std::memcpy(&records[k], words, sizeof words);
                    if (random() % 2 != 0) continue;
                    records[k].kind = static_cast<wire::Kind>(random() % 100);
                    records[k].flags &= 0x3ff;
                    records[k].start = collector::monotonic_ns();
                }
            }
            recording.drain->poll();
        }
        const analysis::Trace trace = recording.end();
        CHECK(recording.drain->records_refused() > 0);
        CHECK(trace.processes.size() == recording.drain->processes_seen());
    }
}
