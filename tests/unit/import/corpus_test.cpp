// Files of others, where FRAGSCOPE_CORPUS names a folder that holds them: what is read is held against sums
// that are made here by other means. Without that folder there is nothing to hold it against, and the test
// says so.
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "analysis/read/importer.h"
#include "analysis/report.h"
#include "analysis/state.h"

using namespace fragscope;
using namespace fragscope::analysis;

namespace {

// `visit(path, trace)` of each file in that folder of real files, if there is one.
template <typename Visit>
void for_each_imported(const char* folder, Visit&& visit) {
    const char* corpus = std::getenv("FRAGSCOPE_CORPUS");
    if (corpus == nullptr) {
        MESSAGE("FRAGSCOPE_CORPUS is not set: no files of others are read");
        return;
    }
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(corpus) / folder)) {
        const std::string path = entry.path().string();
        CAPTURE(path);
        const ReadResult read = import_file(path, "");
        REQUIRE_MESSAGE(read.trace, read.error);
        visit(path, *read.trace);
    }
}

// What is live at the end by SQLite's own answer: bytes by kind, of allocations that no later row takes back.
std::map<int, std::uint64_t> live_by_kind(const std::string& path) {
    sqlite3* opened = nullptr;
    REQUIRE(sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK);
    const std::unique_ptr<sqlite3, decltype(&sqlite3_close)> database(opened, &sqlite3_close);
    std::map<int, std::uint64_t> out;
    const auto take = [](void* to, int, char** cells, char**) {
        (*static_cast<std::map<int, std::uint64_t>*>(to))[std::atoi(cells[0])] =
            std::strtoull(cells[1], nullptr, 10);
        return 0;
    };
    const char* sql =
        "SELECT memKind, SUM(bytes) FROM CUDA_GPU_MEMORY_USAGE_EVENTS a WHERE memoryOperationType = 0 AND "
        "NOT EXISTS "
        "(SELECT 1 FROM CUDA_GPU_MEMORY_USAGE_EVENTS d WHERE d.memoryOperationType = 1 AND d.address = "
        "a.address AND "
        "d.globalPid = a.globalPid AND d.start > a.start) GROUP BY memKind";
    REQUIRE(sqlite3_exec(opened, sql, take, &out, nullptr) == SQLITE_OK);
    return out;
}

}  // namespace

TEST_CASE("what Nsight's exports hold at the end is what SQLite sums up") {
    for_each_imported("nsys", [](const std::string& path, const Trace& trace) {
        std::map<int, std::uint64_t> live = live_by_kind(path);
        std::uint64_t pinned = 0;
        std::uint64_t managed = 0;
        std::uint64_t device = 0;
        for (const EventLog& log : trace.events) {
            ProcessState state;
            for (const Event& event : log) state.apply(event);
            pinned += state.host_pinned_bytes();
            for (const auto& [ordinal, totals] : state.all_totals()) {
                managed += totals.managed;
                device += totals.linear_requested + totals.pool_live;
            }
        }
        CHECK(pinned == live[1]);
        CHECK(device == live[2]);
        CHECK(managed == live[4]);
    });
}

TEST_CASE("what JAX's profiles hold is named by kind and device") {
    for_each_imported("jax_profiles", [](const std::string&, const Trace& trace) {
        const report::Report report = make_report(trace);
        CHECK(report.held_size() != 0);
        for (const report::HeldAtMoment& held : report.held()) {
            const std::string& what = held.what();
            CHECK((what == "buffer" || what == "executable"));
            CHECK(held.device().empty() == (what == "executable"));
            CHECK(held.count() != 0);
        }
    });
}
