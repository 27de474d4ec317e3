// A log of a file gives the same events as one in memory would, in whatever order they are asked for; and
// where the file changes after it was opened, an error.
#include <doctest/doctest.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "analysis/kinds.h"
#include "analysis/read/varint.h"
#include "tests/unit/trace/trace_file.h"

using namespace fragscope;
using analysis::Event;
using analysis::EventLog;
using wire::Kind;

namespace {

using Random = std::mt19937_64;

// One event in the model: what tells it from all others is its address.
struct Row {
    std::uint64_t sequence = 0;
    std::uint64_t address = 0;
    Kind kind = Kind::kLinearAcquired;
    std::uint16_t result = 0;
    std::uint16_t flags = 0;
    std::uint64_t start = 0;
    std::uint64_t duration = 0;
};

trace::Chunk chunk_of(const std::vector<Row>& rows) {
    trace::Chunk chunk;
    trace::EventBatch& batch = *chunk.mutable_events();
    batch.set_count(static_cast<std::uint32_t>(rows.size()));
    batch.add_function_names("cuMemAlloc_v2");
    batch.add_thread_ids(7);
    Row last;
    for (const Row& row : rows) {
        batch.add_sequence(static_cast<std::int64_t>(row.sequence - last.sequence));
        batch.add_address(static_cast<std::int64_t>(row.address - last.address));
        batch.add_start_ns(static_cast<std::int64_t>(row.start - last.start));
        batch.add_duration_ns(row.duration);
        batch.add_kind(static_cast<std::uint32_t>(row.kind));
        batch.add_result(row.result);
        batch.add_flags(row.flags);
        last = row;
    }
    return chunk;
}

// Batches whose ranges of sequence numbers overlap as `late` says: the n-th batch begins up to so many
// numbers before where the one before it ended.
std::vector<std::vector<Row>> random_batches(std::size_t count, std::size_t most, std::uint64_t late,
                                             Random& random) {
    std::vector<std::vector<Row>> batches;
    std::uint64_t end = 1;
    std::uint64_t address = 0;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<Row>& rows = batches.emplace_back();
        std::uint64_t sequence = end - std::min(end - 1, late == 0 ? 0 : random() % late);
        const std::size_t events = 1 + random() % most;
        const bool rare = random() % 8 == 0;  // only some batches have failures, marks and flags
        for (std::size_t k = 0; k < events; ++k) {
            Row row;
            row.sequence = std::max<std::uint64_t>(sequence, 1);
            row.address = ++address;
            row.start = random() % 1'000'000;
            row.duration = random() % 1000;
            if (rare && random() % 16 == 0) row.kind = random() % 2 == 0 ? Kind::kMark : Kind::kBlockRefused;
            if (rare && random() % 16 == 0) row.result = 2;
            if (rare && random() % 16 == 0) row.flags = wire::kCaptured;
            rows.push_back(row);
            sequence += random() % 3;  // several records of one call have one number
        }
        end = std::max(end, sequence + 1);
    }
    return batches;
}

analysis::ReadResult read(const std::vector<std::vector<Row>>& batches) {
    test::HandMade file;
    file.session();
    for (const std::vector<Row>& rows : batches) file.chunk(chunk_of(rows));
    return test::read_bytes(file.end().bytes());
}

// FORMAT.md: in the order of the sequence numbers, stably.
std::vector<Row> in_order(const std::vector<std::vector<Row>>& batches) {
    std::vector<Row> rows;
    for (const std::vector<Row>& batch : batches) rows.insert(rows.end(), batch.begin(), batch.end());
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.sequence < b.sequence; });
    return rows;
}

// Whether the log is what the rows say; one comparison, as there are many of them.
bool same(const EventLog& log, const std::vector<Row>& rows) {
    if (log.size() != rows.size()) return false;
    std::size_t i = 0;
    return std::all_of(log.begin(), log.end(), [&](const Event& event) {
        const Row& row = rows[i++];
        return event.sequence.value == row.sequence && event.address.value == row.address &&
               event.kind == row.kind && event.result == row.result && event.flags == row.flags &&
               event.start.value == row.start && event.duration_ns == row.duration && event.thread == 7;
    });
}

}  // namespace

TEST_CASE("batches that overlap give the order of the sequence numbers") {
    Random random(1);
    for (const std::uint64_t late : {0u, 1u, 5u, 300u, 100'000u}) {
        for (const std::size_t most : {1u, 20u, 3000u}) {
            CAPTURE(late);
            CAPTURE(most);
            const auto batches = random_batches(60, most, late, random);
            const auto result = read(batches);
            REQUIRE(result.trace);
            REQUIRE(result.trace->file.problem == "");
            CHECK(same(result.trace->events.at(0), in_order(batches)));
        }
    }
}

TEST_CASE("more events than a block holds, all of them overlapping") {
    Random random(2);
    // 60 batches of up to 9,000 events, each anywhere among all the numbers before it: some 270,000 events in
    // one group, of which a block holds a quarter.
    const auto batches = random_batches(60, 9000, 1u << 30, random);
    const auto result = read(batches);
    REQUIRE(result.trace);
    const EventLog& log = result.trace->events.at(0);
    const std::vector<Row> rows = in_order(batches);
    CHECK(rows.size() > 3 * trace::kMaxEventsPerBatch);
    CHECK(same(log, rows));
    // Anywhere, and copies of the log too.
    const EventLog copy = log;
    for (int i = 0; i < 500; ++i) {
        const std::size_t at = random() % rows.size();
        const std::size_t other = random() % rows.size();
        CHECK(log[at].address.value == rows[at].address);
        CHECK(copy[other].address.value == rows[other].address);
    }
    CHECK_THROWS_AS(static_cast<void>(log.at(rows.size())), std::out_of_range);
}

TEST_CASE("searches find what a walk over all events finds") {
    Random random(3);
    for (const std::size_t most : {30u, 8000u}) {
        const auto batches = random_batches(40, most, 50, random);
        const auto result = read(batches);
        REQUIRE(result.trace);
        const std::vector<Row> rows = in_order(batches);
        EventLog memory;
        for (const Event& event : result.trace->events.at(0)) memory.push_back(event);
        for (const EventLog* log : {&result.trace->events.at(0), static_cast<const EventLog*>(&memory)}) {
            std::vector<std::size_t> marks, refused, flagged, found;
            std::uint64_t latest = 0;
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (rows[i].kind == Kind::kMark) marks.push_back(i);
                if (rows[i].result != 0 || rows[i].kind == Kind::kBlockRefused) refused.push_back(i);
                if (rows[i].flags != 0) flagged.push_back(i);
                latest = std::max(latest, rows[i].start + rows[i].duration);
            }
            const auto note = [&](std::size_t index, const Event& event) {
                CHECK(event.address.value == rows[index].address);
                found.push_back(index);
            };
            const analysis::Kinds mark = analysis::kinds_of({Kind::kMark});
            log->for_each_of(mark, note);
            CHECK(std::exchange(found, {}) == marks);
            log->for_each_failed(note);
            CHECK(std::exchange(found, {}) == refused);
            log->for_each_flagged(wire::kCaptured, note);
            CHECK(std::exchange(found, {}) == flagged);
            CHECK(log->latest_ns() == latest);
            CHECK(log->holds(mark) == !marks.empty());
            CHECK_FALSE(log->holds(analysis::kinds_of({Kind::kProbe})));
            for (int i = 0; i < 20; ++i) {
                const std::size_t end = random() % (rows.size() + 1);
                const auto behind = std::lower_bound(marks.begin(), marks.end(), end);
                const auto always = [](const Event&) { return true; };
                CHECK(log->last_of(mark, end, SIZE_MAX, always) ==
                      (behind == marks.begin() ? SIZE_MAX : *(behind - 1)));
                const std::size_t from = random() % rows.size();
                std::uint64_t earliest = UINT64_MAX;
                for (std::size_t k = from; k < rows.size(); ++k)
                    if (analysis::acquires(rows[k].kind)) earliest = std::min(earliest, rows[k].start);
                CHECK(log->earliest_acquired_ns(from) <= earliest);
                log->for_each_of(mark, from, rows.size(), note);
                CHECK(std::exchange(found, {}) ==
                      std::vector(std::lower_bound(marks.begin(), marks.end(), from), marks.end()));
            }
        }
    }
}

TEST_CASE("logs of one file that are gone through side by side, left in the middle, and begun again") {
    Random random(6);
    // Blocks are decoded ahead of who goes from one to the next: nobody may get another's, or an old one.
    std::vector<std::vector<std::vector<Row>>> batches;  // by process
    test::HandMade file;
    file.session();
    for (std::uint32_t process = 0; process < 3; ++process) {
        batches.push_back(random_batches(70, 8000, 0, random));
        for (const std::vector<Row>& rows : batches.back()) {
            trace::Chunk chunk = chunk_of(rows);
            chunk.mutable_events()->set_process(process);
            file.chunk(chunk);
        }
    }
    auto result = test::read_bytes(file.end().bytes());
    REQUIRE(result.trace);
    std::vector<std::vector<Row>> rows;
    for (const auto& each : batches) rows.push_back(in_order(each));
    std::vector<std::size_t> at(3);
    bool right = true;
    for (int step = 0; step < 120; ++step) {
        const std::size_t process = random() % 3;
        const EventLog& log = result.trace->events.at(process);
        if (at[process] >= log.size() || random() % 16 == 0) at[process] = random() % log.size();
        const EventLog::Run run = log.run(at[process], log.size());
        for (std::size_t i = 0; i < run.events.size(); ++i)
            right &= run.events[i].address.value == rows[process][at[process] + i].address;
        at[process] += run.events.size();
    }
    CHECK(right);
    // One that goes away while its next block is decoded, and the others after it.
    static_cast<void>(result.trace->events.at(0).run(0, 1));
    for (std::size_t i = 0; i + 1 < rows[0].size() && i < 150'000; i += 60'000)
        static_cast<void>(result.trace->events.at(0)[i]);
    result.trace->events.erase(result.trace->events.begin());
    CHECK(same(result.trace->events.at(0), rows[1]));
    CHECK(same(result.trace->events.at(1), rows[2]));
}

TEST_CASE("a log of a file can be changed: it is taken into memory") {
    const auto result = read({{Row{1, 1}, Row{2, 2}}, {Row{3, 3}}});
    REQUIRE(result.trace);
    EventLog log = result.trace->events.at(0);
    log.edit(1).address = {20};
    log.push_back(log[0]);
    CHECK(log.size() == 4);
    CHECK(log[1].address.value == 20);
    CHECK(log[2].address.value == 3);
    CHECK(log[3].address.value == 1);
    CHECK(result.trace->events.at(0)[1].address.value == 2);
}

TEST_CASE("a file that changes after it was opened gives an error, whatever it becomes") {
    Random random(4);
    const auto batches = random_batches(4, 60, 0, random);
    test::HandMade file;
    file.session();
    for (const std::vector<Row>& rows : batches) file.chunk(chunk_of(rows));
    const test::Bytes good = file.end().bytes();
    const std::vector<Row> rows = in_order(batches);
    const auto write = [](const std::string& path, const test::Bytes& bytes) {
        std::ofstream out(path, std::ios::binary | std::ios::trunc);
        out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    };
    std::size_t errors = 0;
    for (std::size_t i = 0; i < 400; ++i) {
        const test::TemporaryFile place(good);
        const auto result = analysis::read_trace(place.path());
        REQUIRE(result.trace);
        test::Bytes bad = good;
        if (i % 4 == 0) {
            bad.resize(random() % good.size());
        } else {
            for (std::size_t k = 0; k < i % 4; ++k) bad[random() % bad.size()] ^= std::byte{0x55};
        }
        write(place.path(), bad);
        try {
            // Where the change is in no event it is not noticed; where it is, nothing wrong comes of it.
            const bool unchanged = same(result.trace->events.at(0), rows);
            CHECK(unchanged);
        } catch (const analysis::EventsLost& lost) {
            ++errors;
            CHECK(std::string(lost.what())
                      .rfind(place.path() + " has changed since it was opened: at offset ", 0) == 0);
        }
    }
    CHECK(errors > 200);
}

TEST_CASE("however protobuf may encode a batch, the events are the same") {
    const std::vector<Row> rows = {Row{1, 10, Kind::kLinearAcquired, 0, 0, 5, 7},
                                   Row{2, 20, Kind::kMark, 2, wire::kCaptured, 6, 8}};
    const trace::Chunk chunk = chunk_of(rows);
    const std::string batch = chunk.events().SerializeAsString();
    const auto tag = [](int field, int type) { return std::string(1, static_cast<char>(field << 3 | type)); };
    // Of a message that is not as long as 128 bytes.
    const auto as_chunk = [&](const std::string& content) {
        return tag(trace::Chunk::kEventsFieldNumber, 2) + static_cast<char>(content.size()) + content;
    };
    REQUIRE(batch.size() < 100);
    trace::EventBatch half = chunk.events();
    half.clear_kind();
    half.clear_function_names();
    std::string kinds;  // not packed
    for (const Row& row : rows)
        kinds += tag(trace::EventBatch::kKindFieldNumber, 0) + static_cast<char>(row.kind);
    trace::EventBatch umlaut = chunk.events();
    umlaut.set_function_names(0, "cuMemAlloc_v2\xc3\xa4");
    const std::string of_another = tag(trace::Chunk::kLossFieldNumber, 2) + '\0';
    const std::string unknown =
        "\xfa\x7f\x03"
        "abc";  // field 2047, of three bytes
    for (const std::string& content :
         {as_chunk(batch), as_chunk(batch + unknown),
          as_chunk(kinds + half.SerializeAsString() + tag(3, 2) + '\x01' + "f"),
          as_chunk(umlaut.SerializeAsString()), of_another + as_chunk(batch),
          as_chunk(half.SerializeAsString()) + as_chunk(kinds + tag(3, 2) + '\x01' + "f"),
          unknown + as_chunk(batch)}) {
        const auto result = test::read_bytes(
            test::HandMade()
                .session()
                .raw(trace::ChunkKind::kEvents, content, static_cast<std::uint32_t>(content.size()))
                .end()
                .bytes());
        REQUIRE(result.trace);
        CHECK(result.trace->file.problem == "");
        CHECK(same(result.trace->events.at(0), rows));
    }
    // Text has to be UTF-8.
    umlaut.set_function_names(0, "cuMemAlloc_v2\xff");
    const std::string content = as_chunk(umlaut.SerializePartialAsString());
    const auto result = test::read_bytes(
        test::HandMade()
            .session()
            .raw(trace::ChunkKind::kEvents, content, static_cast<std::uint32_t>(content.size()))
            .bytes());
    REQUIRE(result.trace);
    CHECK(result.trace->file.problem.find("the chunk's content is not a trace message") != std::string::npos);
}

TEST_CASE("numbers as protobuf packs them") {
    Random random(5);
    for (int round = 0; round < 2000; ++round) {
        std::string bytes;
        std::vector<std::uint64_t> values;
        {
            google::protobuf::io::StringOutputStream stream(&bytes);
            google::protobuf::io::CodedOutputStream out(&stream);
            const unsigned longest = random() % 64;
            for (std::size_t i = random() % 40; i-- > 0;) {
                values.push_back(random() >> (random() % (longest + 1)));
                out.WriteVarint64(values.back());
            }
        }
        const std::size_t size = bytes.size();
        bytes.resize(size + analysis::kLongestVarint);
        const auto* begin = reinterpret_cast<const unsigned char*>(bytes.data());
        REQUIRE(analysis::count_varints({begin, size}) == values.size());
        const unsigned char* at = begin;
        for (const std::uint64_t value : values) REQUIRE(analysis::next_varint(at) == value);
        REQUIRE(at == begin + size);
        // Any bytes: as many numbers as protobuf finds there, or none at all.
        for (char& byte : bytes)
            if (random() % 3 != 0)
                byte = static_cast<char>(random() % 8 == 0 ? random() % 128 : 128 + random() % 128);
        google::protobuf::io::CodedInputStream in(begin, static_cast<int>(size));
        std::size_t count = 0;
        std::uint64_t value = 0;
        while (in.CurrentPosition() < static_cast<int>(size) && in.ReadVarint64(&value)) ++count;
        const bool whole =
            in.CurrentPosition() == static_cast<int>(size) && (size == 0 || bytes[size - 1] >= 0);
        REQUIRE(analysis::count_varints({begin, size}) == (whole ? count : SIZE_MAX));
    }
}
