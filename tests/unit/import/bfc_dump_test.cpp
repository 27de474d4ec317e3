// Dumps of the BFC allocator in all shapes that its versions print, whole and cut, with numbers of our own.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/explain_state.h"
#include "tests/unit/import/imported.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

const std::string kAt = "2024-03-01 10:00:00.000001: I tensorflow/core/common_runtime/bfc_allocator.cc:1083] ";
const std::string kWarn = "2024-03-01 10:00:00.000001: W tensorflow/core/common_runtime/bfc_allocator.cc:479] ";

std::string region(std::uint64_t bytes) { return fmt::format("{}Next region of size {}\n", kAt, bytes); }
std::string chunk(bool in_use, std::uint64_t address, std::uint64_t bytes) {
    return fmt::format("{}{} at {:x} of size {} next 7\n", kAt, in_use ? "InUse" : "Free ", address, bytes);
}
std::string statistics(std::uint64_t limit, std::uint64_t in_use) {
    return fmt::format("{}Stats: \nLimit:        {:>14}\nInUse:        {:>14}\nMaxInUse:     {:>14}\nNumAllocs:    {:>14}\n"
                       "MaxAllocSize: {:>14}\nReserved:                   0\n\n",
                       kAt, limit, in_use, in_use, 77, 1024);
}
std::string request(std::uint64_t rounded) {
    return fmt::format("{}Allocator (GPU_0_bfc) ran out of memory trying to allocate {:.2f}MiB (rounded to {})requested by op "
                       "MatMul\n",
                       kWarn, static_cast<double>(rounded) / static_cast<double>(kMiB), rounded);
}

// Two regions: 1 MiB with 512 KiB in use at its beginning, and 3 MiB with 1.5 MiB in use in the middle (0.75 MiB free
// on each side). Free: 0.5, 0.75 and 0.75 MiB, 2 MiB in all.
constexpr std::uint64_t kFirst = 0x7f0000000000;
constexpr std::uint64_t kSecond = 0x7f0000100000;  // right behind the first: its free chunk ends where this begins
const std::string kChunks = region(kMiB) + chunk(true, kFirst, 256 * kKiB) +
                            chunk(true, kFirst + 256 * kKiB, 256 * kKiB) +
                            chunk(false, kFirst + 512 * kKiB, 512 * kKiB) + region(3 * kMiB) +
                            chunk(false, kSecond, 768 * kKiB) + chunk(true, kSecond + 768 * kKiB, 1536 * kKiB) +
                            chunk(false, kSecond + 2304 * kKiB, 768 * kKiB);
const std::string kTotals = fmt::format("{}Sum Total of in-use chunks: 2.00MiB\n{}Total bytes in pool: {} memory_limit_: {} "
                                        "available bytes: 0 curr_region_allocation_bytes_: {}\n",
                                        kAt, kAt, 4 * kMiB, 4 * kMiB, 8 * kMiB) +
                            statistics(4 * kMiB, 2 * kMiB);

ImportedStates states_in(const std::string& text) {
    InputResult read = read_text(text);
    REQUIRE_MESSAGE(read.states, read.error);
    return std::move(*read.states);
}

report::Verdict verdict_of(const std::string& text) {
    const ImportedStates states = states_in(text);
    return explain_state(states, states.states.size() - 1).verdict();
}

std::string cause_of(const std::string& text) {
    return report::Verdict::Cause_Name(verdict_of(text).cause());
}

bool says(const std::vector<std::string>& texts, const std::string& part) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("a whole dump: regions, chunks at their places, the largest gap of each region") {
    const ImportedStates states = states_in(request(7 * kMiB / 4) + kChunks + kTotals);
    REQUIRE(states.states.size() == 1);
    const ImportedState& state = states.states[0];
    CHECK(state.kind == "bfc-dump");
    CHECK(state.warnings.empty());
    CHECK(state.line == 1);
    const Scenario& scenario = state.scenario;
    REQUIRE(scenario.segments.size() == 2);
    CHECK(scenario.segments[0].bytes == Interval::exactly(kMiB));
    CHECK(scenario.segments[1].bytes == Interval::exactly(3 * kMiB));
    // Two chunks in use side by side are one block.
    REQUIRE(scenario.segments[0].blocks.size() == 1);
    CHECK(scenario.segments[0].blocks[0].bytes == Interval::exactly(512 * kKiB));
    REQUIRE(scenario.segments[1].blocks.size() == 1);
    CHECK(scenario.segments[1].blocks[0].offset == 768 * kKiB);
    CHECK(scenario.request.bytes == Interval{7 * kMiB / 4 - 255, 7 * kMiB / 4});
    // 1.75 MiB: 2 MiB are free, the largest piece has 0.75.
    CHECK(explain_state(states, 0).verdict().cause() == report::Verdict::allocator_external_fragmentation);
}

TEST_CASE("more than all that is free below the limit is capacity") {
    CHECK(cause_of(request(9 * kMiB / 4) + kChunks + kTotals) == "capacity_exhaustion");
    // The statistics alone say so too: 4 MiB less 2 MiB.
    CHECK(cause_of(statistics(4 * kMiB, 2 * kMiB) + kWarn + "Ran out of memory trying to allocate 2.25MiB.  See logs for "
                                                            "memory state.\n") == "capacity_exhaustion");
}

TEST_CASE("statistics alone do not tell pieces from regions that are not taken yet") {
    CHECK(cause_of(statistics(4 * kMiB, 2 * kMiB) + kWarn + "Ran out of memory trying to allocate 1.75MiB.  See logs for "
                                                            "memory state.\n") == "undetermined");
}

TEST_CASE("the end of a dump: what is not listed stays open, and decides only as far as its sum goes") {
    // Without the first region's lines: 1 MiB is not listed, with 512 KiB in use.
    const std::string tail = kChunks.substr(kChunks.find(region(3 * kMiB)));
    const std::string tensor = kWarn + "OP_REQUIRES failed at matmul.cc:1 : Resource exhausted: OOM when allocating tensor with "
                                       "shape[1024,448] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by "
                                       "allocator GPU_0_bfc\n";
    const ImportedStates states = states_in(tail + kTotals + tensor);
    REQUIRE(states.states.size() == 1);
    const Scenario& scenario = states.states[0].scenario;
    CHECK(scenario.request.bytes == Interval::exactly(1024 * 448 * 4));
    REQUIRE(scenario.segments.size() == 2);
    CHECK(scenario.segments[1].several);
    CHECK(scenario.segments[1].unused == Interval::exactly(512 * kKiB));
    // 1.75 MiB: the listed pieces have 0.75 at most, the rest 0.5 in all; together 2.
    CHECK(explain_state(states, 0).verdict().cause() == report::Verdict::allocator_external_fragmentation);
    CHECK(says(states.states[0].not_in_source, "only a part of the dump"));
}

TEST_CASE("below its limit it asked the driver: what the device had is not in the dump") {
    const std::string growing =
        request(3 * kMiB) + kChunks +
        fmt::format("{}total_region_allocated_bytes_: {} memory_limit_: {} available bytes: {} "
                    "curr_region_allocation_bytes_: {}\n",
                    kAt, 4 * kMiB, 64 * kMiB, 60 * kMiB, 8 * kMiB) +
        statistics(64 * kMiB, 2 * kMiB);
    const ImportedStates states = states_in(growing);
    CHECK(explain_state(states, 0).verdict().cause() == report::Verdict::undetermined);
    CHECK(says(states.states[0].not_in_source, "leaves 60 MiB to take"));
}

TEST_CASE("the older shape lists what is in use first and what is free behind it") {
    const std::string at = "I tensorflow/core/common_runtime/bfc_allocator.cc:661] ";
    const std::string old =
        "W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_1_bfc) ran out of memory trying to allocate "
        "1.00MiB.  Current allocation summary follows.\n" +
        at + "Bin (256): \tTotal Chunks: 4, Chunks in use: 4 1.0KiB allocated for chunks. 1.0KiB client-requested for chunks.\n" +
        at + "Chunk at 0x905a40000 of size 262144\n" + at + "Chunk at 0x905b00000 of size 1310720\n" + at +
        "Free at 0x905a80000 of size 524288\n" + at + "     Summary of in-use Chunks by size: \n" + at +
        "1 Chunks of size 262144 totalling 256.0KiB\n" + at + "1 Chunks of size 1310720 totalling 1.25MiB\n" + at +
        "Sum Total of in-use chunks: 1.50MiB\n" + at + "Stats: \nLimit:  2097152\nInUse:  1572864\n";
    const ImportedStates states = states_in(old);
    REQUIRE(states.states.size() == 1);
    const Scenario& scenario = states.states[0].scenario;
    // 0x905a40000 + 256 KiB is 0x905a80000, + 512 KiB is 0x905b00000: one region of 2 MiB.
    REQUIRE(scenario.segments.size() == 1);
    CHECK(scenario.segments[0].bytes == Interval::exactly(2 * kMiB));
    CHECK(scenario.segments[0].blocks.size() == 2);
    // 512 KiB are free, 1 MiB was asked for.
    CHECK(cause_of(old) == "capacity_exhaustion");
    CHECK(scenario.title.find("GPU_1_bfc") != std::string::npos);
}

TEST_CASE("what contradicts itself is said") {
    CHECK(says(states_in(request(kMiB) + kChunks + chunk(true, kFirst + 100 * kKiB, 4096) + kTotals).states[0].warnings,
               "lie on top of each other"));
    CHECK(says(states_in(request(kMiB) + kChunks + statistics(4 * kMiB, kMiB)).states[0].warnings, "contradicts itself"));
    CHECK(says(states_in(kWarn + "Allocator (GPU_0_bfc) ran out of memory trying to allocate 5.00MiB (rounded to 1048576)\n" +
                         kChunks + kTotals)
                   .states[0]
                   .warnings,
               "is not rounded to"));
}

TEST_CASE("two dumps in one log are two failures, a warning of performance is none") {
    const std::string dump = request(7 * kMiB / 4) + kChunks + kTotals;
    CHECK(states_in(dump + dump).states.size() == 2);
    const std::string warning = kWarn + "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.38GiB with "
                                        "freed_by_count=0. The caller indicates that this is not a failure, but this may mean "
                                        "that there could be performance gains if more memory were available.\n";
    CHECK_FALSE(read_text(warning).states);
}

TEST_CASE("a message without its dump: the request, and nothing else") {
    const ImportedStates states = states_in(
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[8,16] and type "
        "half on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:MatMul]\n");
    REQUIRE(states.states.size() == 1);
    CHECK(states.states[0].scenario.request.bytes == Interval::exactly(8 * 16 * 2));
    CHECK(explain_state(states, 0).verdict().cause() == report::Verdict::undetermined);
}
