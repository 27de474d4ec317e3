// Nsight Systems' SQLite exports. The files are made here by SQLite, with the tables and columns of real
// exports; the right values are the ones that stand in each test's own statements.
#include "analysis/read/nsight_sqlite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/callers.h"
#include "analysis/failures.h"
#include "analysis/health.h"
#include "analysis/read/kind_name.h"
#include "analysis/read/nsight_calls.h"
#include "analysis/session.h"
#include "tests/unit/import/imported.h"
#include "tests/unit/import/sqlite_made.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Serialized ids: the process's number above 24 bits of the thread's.
std::uint64_t global(std::uint64_t pid, std::uint64_t thread = 0) { return pid << 24 | thread; }

struct Row {
    std::uint64_t at = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    int kind = 2;
    int operation = 0;
    int device = 0;
    std::uint64_t pid = 4711;
    std::string correlation = "NULL";
    std::string pool = "NULL, NULL, NULL, NULL";  // address, threshold, size, used
    std::string stream = "NULL";
};

std::string memory(const Row& row) {
    return fmt::format(
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES ({}, {}, {}, 1, {}, 0, {}, {}, {}, NULL, {}, {}, "
        "{}, NULL, NULL);",
        row.at, global(row.pid), row.device, row.address, row.bytes, row.kind, row.operation, row.correlation,
        row.stream, row.pool);
}

std::string call(std::uint64_t from, std::uint64_t to, std::uint64_t thread, int correlation, int name,
                 int result, const std::string& chain = "NULL") {
    return fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}, {}, 0, {}, {}, {}, {}, {});",
                       from, to, global(4711, thread), correlation, name, result, chain);
}

Trace imported(const std::string& statements) {
    ReadResult read = import_sqlite(kNsightSchema + statements);
    REQUIRE_MESSAGE(read.trace, read.error);
    return std::move(*read.trace);
}

// "linear_acquired 1000 4096 @+500 device 0\n": address, bytes and nanoseconds since the session's start.
std::string words(const Trace& trace, std::size_t process = 0) {
    std::string out;
    for (const Event& event : trace.events.at(process))
        out += fmt::format("{} {:x} {} @+{}{}\n", kind_name(event.kind).id, event.address.value,
                           event.bytes.value, event.start.value - trace.session.start_ns(),
                           event.failed() ? " failed" : "");
    return out;
}

ProcessState at_the_end(const Trace& trace, std::size_t process = 0) {
    ProcessState state;
    for (const Event& event : trace.events.at(process)) state.apply(event);
    return state;
}

bool unknown_mentions(const Trace& trace, const std::string& part) {
    const auto& unknown = trace.session.provenance().unknown();
    return std::any_of(unknown.begin(), unknown.end(),
                       [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("each row of the memory events becomes an event of its kind, in the order of the times") {
    const Trace trace =
        imported(memory({.at = 2000, .address = 0x30000, .bytes = 5, .kind = 2, .operation = 0}) +
                 memory({.at = 1000, .address = 0x10000, .bytes = 4096}) +
                 memory({.at = 3000, .address = 0x10000, .bytes = 4096, .operation = 1}) +
                 memory({.at = 4000, .address = 0x50000, .bytes = 100, .kind = 1}) +
                 memory({.at = 5000, .address = 0x60000, .bytes = 200, .kind = 4}) +
                 memory({.at = 6000, .address = 0x70000, .bytes = 300, .kind = 3}) +
                 memory({.at = 7000, .address = 0x80000, .bytes = 400, .kind = 5}) +
                 memory({.at = 8000, .address = 0x90000, .bytes = 500, .kind = 0}) +
                 memory({.at = 9000, .address = 0xa0000, .bytes = 600, .kind = 7}));
    CHECK(words(trace) ==
          "linear_acquired 10000 4096 @+0\n"
          "linear_acquired 30000 5 @+1000\n"
          "linear_released 10000 0 @+2000\n"
          "host_acquired 50000 100 @+3000\n"
          "managed_acquired 60000 200 @+4000\n"
          "array_created 1 300 @+5000\n"
          "global_found 80000 400 @+6000\n");
    for (std::size_t i = 0; i < trace.events[0].size(); ++i) {
        CHECK(trace.events[0][i].sequence.value == i + 1);
        CHECK(trace.events[0][i].device == 0);
    }
    // 5 of linear memory are left, 300 of texels, 100 page-locked; the pageable row is host memory, the
    // unknown one is told and in no sum.
    const ProcessState state = at_the_end(trace);
    CHECK(state.totals(0).linear_requested == 5);
    CHECK(state.totals(0).array_texels == 300);
    CHECK(state.host_pinned_bytes() == 100);
    CHECK(state.contradictions().unknown_releases == 0);
    CHECK(warnings_of(trace).find(
              "Of 1 rows the profiler did not know what kind of memory they are about (600 bytes") !=
          std::string::npos);
    CHECK(trace.processes[0].pid() == 4711);
    CHECK(trace.session.provenance().kind() == "nsight-sqlite");
}

TEST_CASE("pools: what they hold, what the driver said of them, and frees that wait for their stream") {
    const std::string pool = fmt::format("{}, -1, {}, {}", 0x5000, 32 * kMiB, 3 * kMiB);
    const Trace trace = imported(
        fmt::format(
            "INSERT INTO CUDA_GPU_MEMORY_POOL_EVENTS VALUES (100, {0}, 0, {1}, 1, 1, NULL, 0, 0, 0, 0),"
            "(900, {0}, 0, {1}, 3, 1, NULL, 1048576, 0, 1048576, 0),"
            "(950, {0}, 0, {1}, 2, 1, NULL, 0, 0, 0, 0);",
            global(4711), 0x5000) +
        memory({.at = 200, .address = 0x100000, .bytes = 2 * kMiB, .pool = pool, .stream = "13"}) +
        memory({.at = 300, .address = 0x400000, .bytes = kMiB, .pool = pool, .stream = "14"}) +
        memory({.at = 400,
                .address = 0x100000,
                .bytes = 2 * kMiB,
                .operation = 1,
                .pool = pool,
                .stream = "13"}) +
        memory(
            {.at = 410, .address = 0x400000, .bytes = kMiB, .operation = 1, .pool = pool, .stream = "14"}) +
        // An event's synchronisation says nothing of a stream; the stream's does.
        fmt::format(
            "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (420, 500, 0, 1, 13, NULL, {0}, 1, 7),"
            "(600, 700, 0, 1, 13, NULL, {0}, 3, 0);",
            global(4711)));
    CHECK(words(trace) ==
          "pool_created 0 0 @+0\n"
          "pool_state 0 0 @+0\n"
          "pool_acquired 100000 2097152 @+100\n"
          "pool_state 300000 33554432 @+100\n"
          "pool_acquired 400000 1048576 @+200\n"
          "pool_state 300000 33554432 @+200\n"
          "pool_released 100000 0 @+300\n"
          "pool_state 300000 33554432 @+300\n"
          "pool_released 400000 0 @+310\n"
          "pool_state 300000 33554432 @+310\n"
          "synchronized 0 0 @+500\n"
          "pool_trimmed 0 1048576 @+800\n"
          "pool_state 0 1048576 @+800\n"
          "pool_destroyed 0 0 @+850\n");
    // Up to the synchronisation of stream 13 both frees wait; then that of stream 14 does.
    ProcessState state;
    std::vector<std::size_t> waiting;
    for (const Event& event : trace.events[0]) {
        state.apply(event);
        waiting.push_back(state.pending_frees().size());
    }
    CHECK(waiting == std::vector<std::size_t>{0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 1, 1, 1, 1});
    CHECK(trace.events[0][3].extra == ~std::uint64_t{0});  // threshold: keep everything
    CHECK(trace.events[0][2].object.value == 0x5000);
    CHECK(trace.events[0][2].extra == 13);
}

TEST_CASE("processes are told apart, and what a device's number means is each process's own") {
    const Trace trace = imported(
        memory({.at = 100, .address = 0x1000, .bytes = 10, .device = 0, .pid = 100}) +
        memory({.at = 200, .address = 0x1000, .bytes = 20, .device = 0, .pid = 200}) +
        memory({.at = 300, .address = 0x2000, .bytes = 30, .device = 1, .pid = 100}) +
        fmt::format("INSERT INTO PROCESSES VALUES ({}, 100, 'python3'), ({}, 200, 'worker');", global(100),
                    global(200)) +
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'H100', 85899345920, "
        "'GPU-00112233-4455-6677-8899-aabbccddeeff', 0),"
        "(0, 1, 'L4', 24000000000, 'GPU-ffeeddcc-bbaa-9988-7766-554433221100', 1);"
        // Process 200 sees only the second one.
        "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 100, NULL), (1, 1, 100, NULL), (1, 0, 200, NULL);"
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');"
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', 1, 'node7');"
        "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2024.6.2.225'), "
        "('EXPORT_SCHEMA_VERSION', '3.16.1');");
    REQUIRE(trace.processes.size() == 2);
    CHECK(process_in_words(trace, {0}).find("python3") != std::string::npos);
    CHECK(trace.processes[1].pid() == 200);
    CHECK(words(trace, 0) == "linear_acquired 1000 10 @+0\nlinear_acquired 2000 30 @+200\n");
    CHECK(words(trace, 1) == "linear_acquired 1000 20 @+100\n");
    CHECK(device_uuid(trace, {0}, 1) == "GPU-ffeeddcc-bbaa-9988-7766-554433221100");
    CHECK(device_uuid(trace, {1}, 0) == "GPU-ffeeddcc-bbaa-9988-7766-554433221100");
    CHECK(device_of(trace, {0}, 0)->capacity_bytes() == 85899345920);
    CHECK(device_of(trace, {1}, 0)->name() == "L4");
    CHECK(trace.session.start_unix_ns() == 1700000000000000100);
    CHECK(trace.session.host_name() == "node7");
    CHECK(trace.session.collector_version() == "Nsight Systems 2024.6.2.225 (schema 3.16.1)");
    CHECK(warnings_of(trace).empty());
    CHECK(health_of(trace).complete());
}

TEST_CASE("events have the function, thread, duration and call chain of the call that they belong to") {
    const Trace trace = imported(
        "INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (2, 'cudaFree_v3020'), (3, 'train'), (4, "
        "'/opt/app'),"
        "(5, 'main'), (6, 'cuMemAlloc_v2');" +
        memory({.at = 1500, .address = 0x1000, .bytes = 64, .correlation = "7"}) +
        memory({.at = 2500, .address = 0x1000, .bytes = 64, .operation = 1, .correlation = "8"}) +
        memory({.at = 3500, .address = 0x2000, .bytes = 64, .correlation = "9"}) +
        call(1000, 1800, 12, 7, 1, 0, "70") + call(2400, 2600, 13, 8, 2, 0) +
        // Of another process: not this call.
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, {}, 9, 6, 0, NULL);",
                    global(9, 9)) +
        // Stored in any order, read from the innermost.
        "INSERT INTO CUDA_CALLCHAINS VALUES (70, 5, 4, 0, 4096, 1), (70, 3, 4, 0, 8192, 0), (71, 3, 4, 0, 1, "
        "0);");
    const EventLog& events = trace.events[0];
    REQUIRE(events.size() == 3);
    CHECK(trace.functions[events[0].function.value] == "cudaMalloc");
    CHECK(events[0].thread == 12);
    CHECK(events[0].start.value == 1000);
    CHECK(events[0].duration_ns == 800);
    CHECK(trace.functions[events[1].function.value] == "cudaFree");
    CHECK(events[1].stack == 0);
    CHECK(trace.functions[events[2].function.value] == "allocation");
    CHECK(events[2].start.value == 3500);
    CHECK(events[2].duration_ns == 0);
    const trace::Stack& stack = trace.names[0].stacks.at(events[0].stack);
    REQUIRE(stack.frames_size() == 2);
    CHECK(text_of(trace, {0}, wire::frame_place(stack.frames(0))) == "train\n/opt/app");
    CHECK(text_of(trace, {0}, wire::frame_place(stack.frames(1))) == "main\n/opt/app");
    CHECK(trace.names[0].stacks.size() == 1);  // chain 71 is nobody's
    CHECK(!unknown_mentions(trace, "cudabacktrace"));
}

TEST_CASE("calls that failed are failures without a size, once each, on the device where there is only one") {
    const std::string names =
        "INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (2, 'cudaEventQuery_v3020'), (3, "
        "'cuMemAlloc_v2'),"
        "(4, 'cudaLaunchKernel_v7000'), (5, 'cudaMallocHost_v3020'), (6, 'cuMemCreate');";
    const std::string calls = call(1000, 2000, 12, 1, 1, 2) +    // cudaMalloc: out of memory,
                              call(1100, 1900, 12, 2, 3, 2) +    // as the driver's call inside
                              call(1100, 1900, 13, 3, 3, 2) +    // of another thread: its own
                              call(2000, 2100, 12, 4, 2, 600) +  // not ready: no failure
                              call(3000, 3100, 12, 5, 4, 2) +    // a launch
                              call(4000, 4100, 12, 6, 5, 1) +    // an invalid value
                              call(5000, 5100, 12, 7, 6, 0) + call(5200, 5300, 12, 8, 6, 0);
    const std::string gpu = "INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'H100', 85899345920, NULL, 0);";
    const Trace trace = imported(names + calls + gpu + memory({.at = 500, .address = 0x1000, .bytes = 64}));
    CHECK(words(trace) ==
          "linear_acquired 1000 64 @+0\n"
          "linear_acquired 0 0 @+600 failed\n"
          "linear_acquired 0 0 @+500 failed\n"
          "called 0 0 @+2500 failed\n"
          "host_acquired 0 0 @+3500 failed\n");
    const std::vector<Failure> failures = list_failures(trace);
    REQUIRE(failures.size() == 4);
    CHECK(failures[0].allocation);
    CHECK(failures[1].allocation);
    CHECK(failures[2].allocation);
    CHECK(!failures[3].allocation);
    CHECK(trace.end.failures() == 4);
    for (const Failure& failure : failures) CHECK(trace.events[0][failure.index].device == 0);
    CHECK(trace.functions[trace.events[0][2].function.value] == "cudaMalloc");
    CHECK(trace.functions[trace.events[0][1].function.value] == "cuMemAlloc_v2");
    CHECK(warnings_of(trace).find("2 successful calls of cuMemCreate have no memory event") !=
          std::string::npos);
    CHECK(unknown_mentions(trace, "What a call that failed asked for"));
    // They change nothing in the books.
    CHECK(at_the_end(trace).totals(0).linear_requested == 64);

    // With two devices it is not known which one refused.
    const Trace two = imported(names + calls + gpu +
                               "INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'H100', 85899345920, NULL, 1);" +
                               memory({.at = 500, .address = 0x1000, .bytes = 64}));
    for (const Failure& failure : list_failures(two)) {
        CHECK(two.events[0][failure.index].device == kNoDevice);
        CHECK(two.events[0][failure.index].has(wire::kUnknownDevice));
    }
}

TEST_CASE(
    "older exports: fewer columns, other numbers, no enumerations, the driver's calls in a table of their "
    "own") {
    const std::string old = R"(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT NOT NULL, globalPid INT NOT NULL, deviceId INT NOT NULL,
    contextId INT NOT NULL, address INT NOT NULL, pc INT NOT NULL, bytes INT NOT NULL, memKind INT NOT NULL,
    memoryOperationType INT NOT NULL, correlationId INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER (start INT NOT NULL, end INT NOT NULL, globalTid INT NOT NULL,
    correlationId INT NOT NULL, nameId INT NOT NULL, returnValue INT NOT NULL);
INSERT INTO StringIds VALUES (1, 'cuMemAlloc_v2');
)";
    const std::string rows = fmt::format(
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (10, {0}, 0, 1, 4096, 0, 64, 2, 0, 5), (20, {0}, 0, "
        "1, 8192, 0, 32, 1, 0, 6),"
        "(30, {0}, 0, 1, 4096, 0, 64, 2, 1, 0);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES (8, 12, {1}, 5, 1, 0), (40, 50, {1}, 9, 1, 2);",
        global(4711), global(4711, 3));
    const ReadResult read = import_sqlite(old + rows);
    REQUIRE_MESSAGE(read.trace, read.error);
    CHECK(words(*read.trace) ==
          "linear_acquired 1000 64 @+0\n"
          "host_acquired 2000 32 @+12\n"
          "linear_released 1000 0 @+22\n"
          "linear_acquired 0 0 @+32 failed\n");
    CHECK(read.trace->functions[read.trace->events[0][0].function.value] == "cuMemAlloc_v2");
    CHECK(unknown_mentions(*read.trace, "The capacity of every device."));
    CHECK(unknown_mentions(*read.trace, "cudabacktrace=memory"));

    // The export's own numbers go before those that are usual.
    const ReadResult other =
        import_sqlite(old +
                      "CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER PRIMARY KEY, label TEXT);"
                      "INSERT INTO ENUM_CUDA_MEM_KIND VALUES (1, 'Device'), (2, 'Managed');" +
                      rows);
    REQUIRE_MESSAGE(other.trace, other.error);
    CHECK(words(*other.trace) ==
          "managed_acquired 1000 64 @+0\n"
          "linear_acquired 2000 32 @+12\n"
          "linear_released 1000 0 @+22\n"
          "linear_acquired 0 0 @+32 failed\n");
}

TEST_CASE("an export without memory events says how they are recorded, and what failed all the same") {
    const std::string calls =
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, "
        "correlationId INTEGER,"
        "nameId INTEGER, returnValue INTEGER);"
        "INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020');";
    const ReadResult none = import_sqlite(calls);
    CHECK(!none.trace);
    CHECK(none.error.find(
              "holds no memory events (no table CUDA_GPU_MEMORY_USAGE_EVENTS): they are recorded with "
              "`nsys profile --cuda-memory-usage=true`") != std::string::npos);
    CHECK(none.error.find("failed") == std::string::npos);
    const ReadResult failed = import_sqlite(
        calls +
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1500000000, 1600000000, {}, 1, 1, 2);",
                    global(1, 1)));
    CHECK(failed.error.find("of its calls 1 failed for want of memory, the first at 1.500000 s") !=
          std::string::npos);
    CHECK(
        import_sqlite("CREATE TABLE other (a INTEGER);").error.find("without the tables of Nsight Systems") !=
        std::string::npos);
}

TEST_CASE("functions by the names that Nsight gives them") {
    CHECK(nsight_function("cudaMalloc_v3020") == "cudaMalloc");
    CHECK(nsight_function("cudaMallocAsync_ptsz_v11020") == "cudaMallocAsync");
    CHECK(nsight_function("cuMemAlloc_v2") == "cuMemAlloc_v2");
    CHECK(nsight_function("cuMemAllocAsync_ptsz") == "cuMemAllocAsync_ptsz");
    CHECK(nsight_function("cuda_v1x") == "cuda_v1x");
    CHECK(nsight_function("") == "");
    CHECK(taken_by("cudaMalloc") == wire::Kind::kLinearAcquired);
    CHECK(taken_by("cuMemAlloc_v2") == wire::Kind::kLinearAcquired);
    CHECK(taken_by("cuMemAllocAsync_ptsz") == wire::Kind::kPoolAcquired);
    CHECK(taken_by("cuMemAllocFromPoolAsync") == wire::Kind::kPoolAcquired);
    CHECK(taken_by("cuMemCreate") == wire::Kind::kHandleCreated);
    CHECK(taken_by("cudaFree") == wire::Kind::kNone);
    CHECK(taken_by("_v2") == wire::Kind::kNone);
}
