// SQLite files that are cut, damaged, or made to harm: a sentence with the place, or a trace that says what
// is missing; nothing is written, nothing runs without end.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>

#include "analysis/health.h"
#include "analysis/read/sqlite_file.h"
#include "tests/unit/import/imported.h"
#include "tests/unit/import/sqlite_made.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

constexpr std::uint64_t kProcess = std::uint64_t{4711} << 24;

std::string row(std::string_view start, std::string_view address, std::string_view bytes,
                std::string_view kind = "2", std::string_view operation = "0",
                std::string_view device = "0") {
    return fmt::format(
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES ({}, {}, {}, 1, {}, 0, {}, {}, {}, NULL, NULL, "
        "NULL, NULL, NULL, "
        "NULL, NULL, NULL, NULL);",
        start, kProcess, device, address, bytes, kind, operation);
}

// Some pages of everything that an importer reads.
std::string large() {
    std::string out =
        kNsightSchema + "INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (2, 'main'), (3, '/app');";
    for (int i = 0; i < 300; ++i) {
        out += fmt::format(
            "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES ({}, {}, 0, 1, {}, 0, 4096, 2, 0, NULL, {}, "
            "NULL, NULL, NULL, NULL, "
            "NULL, NULL, NULL);"
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}, {}, 0, {}, {}, 1, {}, {});"
            "INSERT INTO CUDA_CALLCHAINS VALUES ({}, 2, 3, 0, 1, 0);",
            1000 + i * 10, kProcess, 0x1000000 + i * 4096, i + 1, 995 + i * 10, 1005 + i * 10, kProcess + 12,
            i + 1, i % 50 == 49 ? 2 : 0, i + 1, i + 1);
    }
    return out;
}

std::string refusal_of(const std::string& statements) {
    const ReadResult read = import_sqlite(statements);
    CHECK(!read.trace);
    return read.error;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("cut at any page or inside of one, a file is refused with a reason") {
    const Folder folder;
    make_sqlite(folder.file("whole.sqlite"), large());
    const std::string whole = bytes_of(folder.file("whole.sqlite"));
    REQUIRE(import_file(folder.file("whole.sqlite"), "").trace);
    const std::string path = folder.file("cut.sqlite");
    for (std::size_t length = 0; length < whole.size(); length += length < 200 ? 7 : 1531) {
        CAPTURE(length);
        write_bytes(path, whole.substr(0, length));
        const ReadResult read = import_file(path, "nsight-sqlite");
        CHECK(!read.trace);
        CHECK(holds(read.error, path));
    }
}

TEST_CASE("bits that flip give a sentence or a trace, never an end of this program") {
    const Folder folder;
    make_sqlite(folder.file("whole.sqlite"), large());
    const std::string whole = bytes_of(folder.file("whole.sqlite"));
    const std::string path = folder.file("flipped.sqlite");
    std::mt19937 random(20240611);
    for (int round = 0; round < 150; ++round) {
        std::string damaged = whole;
        const unsigned flips = 1 + random() % 8;
        for (unsigned flip = 0; flip < flips; ++flip) {
            // Every other round in the head and the list of tables.
            const std::size_t at = random() % (round % 2 == 0 ? damaged.size() : 8192);
            damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        }
        write_bytes(path, damaged);
        const ReadResult read = import_file(path, "nsight-sqlite");
        CHECK((read.trace.has_value() || holds(read.error, path)));
        if (!read.trace) continue;
        std::uint64_t events = 0;
        for (const EventLog& log : read.trace->events) events += log.size();
        CHECK(read.trace->end.events() == events);
    }
}

TEST_CASE("a row whose cells make no sense is left out and counted, with its place") {
    struct Wrong {
        std::string statement;
        const char* said;
    };
    const std::string table = "table CUDA_GPU_MEMORY_USAGE_EVENTS: row 2: column ";
    for (const Wrong& wrong : {
             Wrong{row("20", "4096", "'many'"), "bytes holds a text, expected a whole number"},
             Wrong{row("20", "4096", "-64"), "bytes holds -64, expected a number from 0 on"},
             Wrong{row("20", "4096", "1.5"), "bytes holds a number with a fraction, expected a whole number"},
             Wrong{row("20", "4096", "9223372036854775807"),
                   "bytes holds 9223372036854775807, expected a number of bytes"},
             Wrong{row("20", "-4096", "64"), "address holds -4096, expected a number from 0 on"},
             Wrong{row("-20", "4096", "64"), "start holds -20, expected a number from 0 on"},
             Wrong{row("20", "x'1234'", "64"), "address holds bytes, expected a whole number"},
             Wrong{row("20", "4096", "64", "99"), "memKind holds 99, expected a value that is known"},
             Wrong{row("20", "4096", "64", "2", "2"),
                   "memoryOperationType holds 2, expected a value that is known"},
             Wrong{row("20", "4096", "64", "2", "0", "300"),
                   "deviceId holds 300, expected the number of a device"},
         }) {
        CAPTURE(wrong.said);
        const ReadResult read = import_sqlite(kNsightSchema + row("10", "8192", "64") + wrong.statement +
                                              row("30", "4096", "32"));
        REQUIRE_MESSAGE(read.trace, read.error);
        CHECK(read.trace->events[0].size() == 2);
        CHECK(read.trace->losses[0].records_refused() == 1);
        CHECK(holds(warnings_of(*read.trace), table + wrong.said));
        CHECK(!health_of(*read.trace).complete());
        // Nothing else: refused.
        CHECK(holds(refusal_of(kNsightSchema + wrong.statement), "none of its memory events can be read"));
    }
    // NULL, where the schema lets it be.
    const ReadResult nothing = import_sqlite(
        "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, bytes, "
        "memKind, "
        "memoryOperationType);"
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (1, 16777216, 0, 1, 4096, NULL, 2, 0), (1, "
        "16777216, 0, NULL, 4096, 64, 2, 0);");
    REQUIRE_MESSAGE(nothing.trace, nothing.error);
    CHECK(nothing.trace->events[0].size() == 1);
    CHECK(holds(warnings_of(*nothing.trace), "row 1: column bytes holds nothing, expected a number"));
    // A needed column that is not there.
    CHECK(holds(refusal_of("CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, address); INSERT INTO "
                           "CUDA_GPU_MEMORY_USAGE_EVENTS "
                           "VALUES (1, 2);"),
                "column globalPid holds nothing, expected a number"));
}

TEST_CASE("what is no plain table is not read: views, computed columns, virtual tables, hidden row numbers") {
    const std::string endless =
        "CREATE VIEW CUDA_GPU_MEMORY_USAGE_EVENTS AS WITH RECURSIVE endless(start) AS (SELECT 1 UNION ALL "
        "SELECT start + 1 FROM "
        "endless) SELECT start, 0 AS globalPid, 0 AS deviceId, 0 AS address, 1 AS bytes, 2 AS memKind, 0 AS "
        "memoryOperationType "
        "FROM endless;";
    CHECK(holds(refusal_of(endless), "what it calls CUDA_GPU_MEMORY_USAGE_EVENTS is no plain table"));
    CHECK(holds(
        refusal_of(
            "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, bytes INTEGER GENERATED ALWAYS AS "
            "(length(zeroblob(1000000000))) VIRTUAL);"),
        "column bytes of table CUDA_GPU_MEMORY_USAGE_EVENTS is not one that an exporter makes"));
    CHECK(holds(refusal_of("CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (rowid INTEGER, start INTEGER);"),
                "column rowid of table CUDA_GPU_MEMORY_USAGE_EVENTS is not one"));
    CHECK(holds(
        refusal_of("CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER PRIMARY KEY) WITHOUT ROWID;"),
        "table CUDA_GPU_MEMORY_USAGE_EVENTS cannot be read"));
    CHECK(holds(refusal_of("CREATE VIRTUAL TABLE CUDA_GPU_MEMORY_USAGE_EVENTS USING rtree(id, a, b);"),
                "is no plain table"));
    // A view beside the tables, and triggers, are nobody's business: they never run.
    const ReadResult read = import_sqlite(
        kNsightSchema + row("10", "4096", "64") +
        "CREATE VIEW v AS WITH RECURSIVE e(a) AS (SELECT 1 UNION ALL SELECT a FROM e) SELECT a FROM e;"
        "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS; END;");
    REQUIRE_MESSAGE(read.trace, read.error);
    CHECK(read.trace->events[0].size() == 1);
}

TEST_CASE("a giant cell and a giant list of tables do not become giant memory") {
    CHECK(holds(refusal_of(kNsightSchema + row("10", "4096", "64") +
                           fmt::format("INSERT INTO StringIds VALUES (1, zeroblob({}));",
                                       SqliteFile::kMaxCellBytes + 1)),
                "table StringIds cannot be read at its first row"));
    std::string many = kNsightSchema + row("10", "4096", "64");
    for (int i = 0; i < 2000; ++i) many += fmt::format("CREATE TABLE t{} (a);", i);
    const ReadResult read = import_sqlite(many);
    REQUIRE_MESSAGE(read.trace, read.error);
    // Names of a megabyte are cut where they are kept.
    const ReadResult named = import_sqlite(
        kNsightSchema + row("10", "4096", "64") +
        fmt::format("INSERT INTO PROCESSES VALUES ({}, 4711, '{}');", kProcess, std::string(1'000'000, 'x')));
    REQUIRE_MESSAGE(named.trace, named.error);
    CHECK(named.trace->processes[0].executable().size() < 2000);
}

TEST_CASE("text that is no UTF-8 becomes text that is") {
    const ReadResult read = import_sqlite(
        kNsightSchema + row("10", "4096", "64") +
        fmt::format("INSERT INTO PROCESSES VALUES ({}, 4711, CAST(x'61ff620a63c3a9' AS TEXT));", kProcess));
    REQUIRE_MESSAGE(read.trace, read.error);
    CHECK(read.trace->processes[0].executable() == "a?b?c\u00e9");
}

TEST_CASE("nothing is written: not the file, not beside it; changes that are only beside it are told") {
    const Folder folder;
    const std::string path = folder.file("run.sqlite");
    make_sqlite(path, kNsightSchema + row("10", "4096", "64"));
    // In this mode any other reader makes two files beside it.
    std::string bytes = bytes_of(path);
    bytes[18] = bytes[19] = 2;  // the format's versions of writing and reading: with a write-ahead log
    write_bytes(path, bytes);
    const ReadResult alone = import_file(path, "");
    REQUIRE_MESSAGE(alone.trace, alone.error);
    CHECK(warnings_of(*alone.trace).empty());
    write_bytes(path + "-wal", "something");
    const ReadResult read = import_file(path, "");
    REQUIRE_MESSAGE(read.trace, read.error);
    CHECK(holds(warnings_of(*read.trace),
                "run.sqlite-wal, with changes that had not reached the file: they are not read."));
    CHECK(bytes_of(path) == bytes);
    CHECK(bytes_of(path + "-wal") == "something");
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
    CHECK(files == 2);
}

TEST_CASE("paths with signs that mean something in addresses; pipes, folders and gzip are refused") {
    const Folder folder;
    const std::string path = folder.file("100% of #run?mode=rwc&x='y'.sqlite");
    make_sqlite(path, kNsightSchema + row("10", "4096", "64"));
    const ReadResult read = import_file(path, "");
    CHECK_MESSAGE(read.trace, read.error);
    const std::string packed = folder.file("run.sqlite.gz");
    write_bytes(packed, gzipped(bytes_of(path)));
    CHECK(holds(import_file(packed, "").error, "this one is gzipped: unpack it first"));
    SqliteFile file;
    CHECK(holds(file.open(folder.path().string()), "must be a regular file"));
    SqliteFile none;
    CHECK(holds(none.open(folder.file("none")), "cannot open"));
    write_bytes(folder.file("text"), "Thread,Time\n");
    CHECK(
        holds(import_file(folder.file("text"), "nsight-sqlite").error, "its list of tables cannot be read"));
}
