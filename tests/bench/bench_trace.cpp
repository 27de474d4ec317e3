// What an event costs on its way from the ring to the file and back: bytes, and events per second.
//   bench_trace [EVENTS] [ROUNDS]
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "analysis/read/trace_reader.h"
#include "collector/drain.h"
#include "proto/ring.h"
#include "tests/bench/measure.h"
#include "tests/bench/workload.h"

using namespace fragscope;
using namespace fragscope::bench;

namespace {

// Aims of the project; the storage ones for these two kinds of workload, with a call site in every event.
constexpr const char* kAimBytesRandom = "<= 9";
constexpr const char* kAimBytesRepeating = "<= 5.5";
constexpr const char* kAimWriter = ">= 14";
constexpr const char* kAimReader = ">= 25";

constexpr const char* kMillions = "M/s";

double millions_per_second(std::size_t events, std::uint64_t ns) {
    return static_cast<double>(events) * 1e3 / static_cast<double>(ns);
}

std::vector<wire::Record> records_of(const Rows& rows) {
    std::vector<wire::Record> records;
    records.reserve(rows.size());
    for (const collector::EventRow& row : rows) {
        wire::Record record{};
        record.sequence = row.sequence;
        record.start = row.start_ns;
        record.duration = static_cast<std::uint32_t>(row.duration_ns >> wire::kDurationShift);
        record.function = row.function;
        record.result = row.result;
        record.kind = row.kind;
        record.device = row.device;
        record.flags = row.flags;
        record.stack = row.stack;
        record.address = row.address;
        record.bytes = row.bytes;
        record.object = row.object;
        record.extra = row.extra;
        records.push_back(record);
    }
    return records;
}

// The plain alternative: records as they lie in the ring, in compressed pieces of 64 Ki events.
std::size_t plain_compressed_bytes(const std::vector<wire::Record>& records) {
    constexpr std::size_t kPiece = 1 << 16;
    std::size_t total = 0;
    std::vector<char> room(ZSTD_compressBound(kPiece * sizeof(wire::Record)));
    for (std::size_t at = 0; at < records.size(); at += kPiece) {
        const std::size_t count = std::min(kPiece, records.size() - at);
        total +=
            ZSTD_compress(room.data(), room.size(), records.data() + at, count * sizeof(wire::Record), 1);
    }
    return total;
}

// The whole collector: a ring in shared memory is filled (not timed) and drained and merged (timed), while
// its second thread writes (timed where it is behind at the end).
double drain_speed(const Rows& rows) {
    auto created = collector::RingHost::create(collector::SessionOptions{});
    if (created.host == nullptr) {
        fmt::print(stderr, "bench_trace: no shared memory for the collector: {}\n", created.problem);
        return 0;
    }
    collector::RingHost& host = *created.host;
    collector::MemorySink sink;
    collector::TraceWriter writer(sink);
    trace::Session session;
    writer.begin(session);
    collector::Drain drain(host, writer, collector::read_clock_pair(host.clock()));

    wire::ProcessSlot& process = host.process_slot(0);
    process.pid = static_cast<std::int32_t>(getpid());
    process.state.store(wire::SlotState::kLive, std::memory_order_release);
    wire::RingHeader& ring = host.ring(0);
    ring.process = 0;
    ring.thread = process.pid;
    ring.state.store(wire::SlotState::kLive, std::memory_order_release);
    wire::RingWriter producer(&ring, const_cast<wire::Record*>(host.records(0)), host.ring_records());

    const std::uint64_t now = collector::read_clock_pair(host.clock()).ticks;
    std::uint64_t spent = 0;
    for (std::size_t at = 0; at < rows.size();) {
        while (at < rows.size()) {
            wire::Record* slot = producer.reserve();
            if (slot == nullptr) break;
            const collector::EventRow& row = rows[at++];
            *slot = wire::Record{
                row.sequence, now,        static_cast<std::uint32_t>(row.duration_ns >> wire::kDurationShift),
                row.function, row.result, row.kind,
                row.device,   row.flags,  row.stack,
                row.address,  row.bytes,  row.object,
                row.extra};
            producer.commit();
        }
        const std::uint64_t begin = monotonic_ns();
        drain.poll();
        spent += monotonic_ns() - begin;
    }
    const std::uint64_t begin = monotonic_ns();
    drain.finish();
    writer.settle();
    spent += monotonic_ns() - begin;
    if (writer.events_written() != rows.size()) {
        fmt::print(stderr, "bench_trace: {} events went in, {} were written\n", rows.size(),
                   writer.events_written());
    }
    return millions_per_second(rows.size(), spent);
}

struct TraceFile {
    std::string path;
    ~TraceFile() {
        if (!path.empty()) unlink(path.c_str());
    }
};

bool write_file(const std::vector<std::byte>& bytes, TraceFile& file) {
    const char* folder = getenv("TMPDIR");
    std::string path = fmt::format("{}/fragscope-bench-XXXXXX", folder == nullptr ? "/tmp" : folder);
    const int fd = mkstemp(path.data());
    if (fd < 0) return false;
    file.path = path;
    FILE* stream = fdopen(fd, "wb");
    const bool written = stream != nullptr && fwrite(bytes.data(), 1, bytes.size(), stream) == bytes.size();
    return stream != nullptr && fclose(stream) == 0 && written;
}

enum class Reader { kOpen, kDecode };

// Opening a file, or going through all events of one that is open.
double reader_speed(const std::string& path, std::size_t events, Reader what) {
    const std::uint64_t begin = monotonic_ns();
    const analysis::ReadResult result = analysis::read_trace(path);
    const std::uint64_t opened = monotonic_ns();
    if (!result.trace.has_value() || result.trace->events.at(0).size() != events) {
        fmt::print(stderr, "bench_trace: the trace did not read back whole: {}\n", result.error);
        return 0;
    }
    if (what == Reader::kOpen) return millions_per_second(events, opened - begin);
    std::uint64_t sum = 0;
    const auto add = [&](std::size_t, const analysis::Event& event) { sum += event.address.value; };
    result.trace->events[0].for_each(0, events, add);
    const std::uint64_t spent = monotonic_ns() - opened;
    keep(sum);
    return millions_per_second(events, spent);
}

void measure(const std::string& name, const Rows& rows, int rounds, const char* aim_bytes,
             std::vector<Line>& lines) {
    const auto events = static_cast<double>(rows.size());
    collector::MemorySink kept;
    write_trace(rows, kept);
    TraceFile file;
    if (!write_file(kept.bytes(), file)) {
        fmt::print(stderr, "bench_trace: cannot write a file for the reader\n");
        return;
    }
    const std::vector<double> speeds = interleaved_medians(
        {{"writer",
          [&] {
              collector::MemorySink sink;
              const std::uint64_t begin = monotonic_ns();
              write_trace(rows, sink);
              return millions_per_second(rows.size(), monotonic_ns() - begin);
          }},
         {"collector", [&] { return drain_speed(rows); }},
         {"opened", [&] { return reader_speed(file.path, rows.size(), Reader::kOpen); }},
         {"decoded", [&] { return reader_speed(file.path, rows.size(), Reader::kDecode); }}},
        rounds);
    const auto plain = static_cast<double>(plain_compressed_bytes(records_of(rows)));
    lines.push_back({name + ": in the ring", 64.0, "B/event", "", "one record"});
    lines.push_back(
        {name + ": records as they are, zstd-1", plain / events, "B/event", "", "for comparison"});
    lines.push_back(
        {name + ": trace file", static_cast<double>(kept.size()) / events, "B/event", aim_bytes, ""});
    lines.push_back({name + ": writer", speeds[0], kMillions, kAimWriter, "rows to compressed chunks"});
    lines.push_back({name + ": collector", speeds[1], kMillions, kAimWriter,
                     "ring, order, rows; a second thread writes"});
    lines.push_back(
        {name + ": opened", speeds[2], kMillions, "", "every chunk and column checked, from the page cache"});
    lines.push_back(
        {name + ": decoded", speeds[3], kMillions, kAimReader, "file to events, of an open file"});
}

}  // namespace

int main(int argc, char** argv) {
    const std::size_t events = argc > 1 ? strtoull(argv[1], nullptr, 10) : 2'000'000;
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    if (events < 1000 || rounds < 1) {
        fmt::print(stderr, "usage: bench_trace [EVENTS, at least 1000] [ROUNDS]\n");
        return 2;
    }
    std::vector<Line> lines;
    measure("random pool", random_pool(events, 1), rounds, kAimBytesRandom, lines);
    measure("repeating iterations", repeating_iterations(events, 2), rounds, kAimBytesRepeating, lines);
    print("bench_trace", fmt::format("{} events, median of {} interleaved rounds", events, rounds), lines);
    return 0;
}
