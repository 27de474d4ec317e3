// Ingero's database: only what failed becomes events. The files are made here by SQLite with the tables of
// its public sources; the right values stand in each test's own statements.
#include "analysis/read/ingero_sqlite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "analysis/explain.h"
#include "analysis/failures.h"
#include "tests/unit/import/imported.h"
#include "tests/unit/import/sqlite_made.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

const std::string kSchema = R"(
CREATE TABLE events (id TEXT PRIMARY KEY, timestamp INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
    source INTEGER NOT NULL, op INTEGER NOT NULL, duration INTEGER NOT NULL, gpu_id INTEGER NOT NULL DEFAULT 0,
    arg0 INTEGER NOT NULL DEFAULT 0, arg1 INTEGER NOT NULL DEFAULT 0, ret_code INTEGER NOT NULL DEFAULT 0,
    stack_hash INTEGER NOT NULL DEFAULT 0, node TEXT NOT NULL DEFAULT '');
CREATE TABLE process_names (pid INTEGER NOT NULL, name TEXT NOT NULL, seen_at INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (pid));
)";

std::string event(int number, std::uint64_t at, int pid, int thread, int source, int op,
                  std::uint64_t duration, const std::string& bytes, int result) {
    return fmt::format("INSERT INTO events VALUES ('n:{}', {}, {}, {}, {}, {}, {}, 0, {}, 0, {}, 0, 'n');",
                       number, at, pid, thread, source, op, duration, bytes, result);
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("allocations that failed are failures with their sizes; the rest is counted") {
    constexpr std::uint64_t kDay = 1'700'000'000'000'000'000;
    const ReadResult read = import_sqlite(
        kSchema + event(1, kDay, 7, 8, 1, 1, 100, "4096", 0) +     // cudaMalloc, succeeded
        event(2, kDay + 1000, 7, 8, 1, 3, 50, "0", 2) +            // a launch: not an allocation
        event(3, kDay + 5000, 7, 8, 1, 1, 900, "1073741824", 2) +  // cudaMalloc: out of memory,
        event(4, kDay + 5100, 7, 8, 4, 5, 700, "1073741824", 2) +  // as the driver's call inside of it
        event(5, kDay + 6000, 9, 9, 4, 6, 10, "512", 2) +          // another process
        event(6, kDay + 7000, 7, 8, 1, 1, 10, "'much'", 2) +       // no number
        "INSERT INTO process_names VALUES (7, 'python3', 0);");
    REQUIRE_MESSAGE(read.trace, read.error);
    const Trace& trace = *read.trace;
    CHECK(trace.session.provenance().kind() == "ingero-sqlite");
    REQUIRE(trace.processes.size() == 2);
    CHECK(trace.processes[0].pid() == 7);
    CHECK(trace.processes[0].executable() == "python3");
    REQUIRE(trace.events[0].size() == 1);
    const Event& failed = trace.events[0][0];
    CHECK(failed.kind == wire::Kind::kLinearAcquired);
    CHECK(failed.bytes.value == 1073741824);
    CHECK(failed.result == 2);
    CHECK(failed.duration_ns == 900);
    CHECK(trace.functions[failed.function.value] == "cudaMalloc");
    CHECK(trace.events[1][0].kind == wire::Kind::kManagedAcquired);
    CHECK(trace.events[1][0].start.value == 1000);
    CHECK(trace.session.start_unix_ns() == kDay + 5000);
    CHECK(list_failures(trace).size() == 2);
    CHECK(
        holds(warnings_of(trace),
              "1 of the rows of allocations could not be read. The first: row 6: column arg0 holds a text"));
    const auto& unknown = trace.session.provenance().unknown();
    CHECK(std::any_of(unknown.begin(), unknown.end(),
                      [](const std::string& line) { return holds(line, "1 allocations succeeded"); }));
    // What the device held is nowhere, so nothing is concluded.
    CHECK(explain_failure(trace, 1).verdict().cause() == report::Verdict::undetermined);
}

TEST_CASE("a database in which nothing failed says so, and another SQLite file is not taken for one") {
    const ReadResult read = import_sqlite(kSchema + event(1, 1000, 7, 8, 1, 1, 100, "4096", 0));
    REQUIRE_MESSAGE(read.trace, read.error);
    CHECK(holds(warnings_of(*read.trace), "None of the 1 allocations that it tells of failed."));
    CHECK(holds(import_sqlite("CREATE TABLE other (a);", "ingero-sqlite").error, "without the table events"));
    CHECK(holds(
        import_sqlite("CREATE TABLE events (timestamp, source, op); INSERT INTO events VALUES (1, 1, 1);",
                      "ingero-sqlite")
            .error,
        "column pid holds none, expected a number from 0 on"));
}
