// Reports of a framework's allocator: what arrives of them, and that the program sees nothing of it. What is
// expected are the arguments in blocks.cpp and framework/fake_c10_cuda.cpp; which field has which,
// proto/wire.h says.
#include <doctest/doctest.h>

#include <sstream>
#include <tuple>

#include "session.h"

using namespace fragscope;
using namespace fragscope::preload_test;
using wire::Kind;

namespace {

std::vector<std::string> program(const std::string& scenario, const std::string& scope = "local") {
    return {paths().blocks, scenario, paths().framework, scope};
}

// What was said of blocks, in order.
std::vector<wire::Record> block_records(const Sent& sent) {
    std::vector<wire::Record> found;
    for (const wire::Record& record : sent.records)
        if (record.kind >= Kind::kBlockAcquired && record.kind <= Kind::kBlockStream) found.push_back(record);
    return found;
}

using Told = std::tuple<Kind, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, int>;

std::vector<Told> told(const Sent& sent) {
    std::vector<Told> all;
    for (const wire::Record& record : block_records(sent))
        all.emplace_back(record.kind, record.address, record.bytes, record.object, record.extra,
                         record.device);
    return all;
}

std::string shown(const std::vector<Told>& all) {
    std::ostringstream text;
    for (const auto& [kind, address, bytes, object, extra, device] : all)
        text << static_cast<int>(kind) << std::hex << ' ' << address << ' ' << bytes << ' ' << object << ' '
             << extra << std::dec << ' ' << device << '\n';
    return text.str();
}

// Events that the block released at `address` was said to wait for.
using Waits = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // event, stream

}  // namespace

TEST_CASE("reports about CUDA devices are recorded as they were made, and reach PyTorch unchanged") {
    for (const char* scope : {"local", "global"}) {
        CAPTURE(scope);
        const Outcome plain = run_plain(program("reports", scope));
        REQUIRE(plain.status == 0);
        CHECK(plain.output.find("usage 80000 -9223372036854775808 0 0 1 0\n") != std::string::npos);
        Session session;
        const Outcome outcome = session.run(program("reports", scope));
        CHECK(outcome.status == 0);
        CHECK(outcome.output == plain.output);
        const auto sent = session.sent();
        REQUIRE(sent.size() == 1);
        constexpr std::uint64_t kReserved = 2097152;
        const std::vector<Told> expected = {
            {Kind::kBlockAcquired, 0x10000, 512, 512, kReserved, 0},
            {Kind::kBlockAcquired, 0x20000, 1024, 1536, kReserved, 3},
            {Kind::kBlockAcquired, 0x60000, 2048, 2048, kReserved, wire::kDeviceUnknown},
            {Kind::kBlockAcquired, 0x70000, std::uint64_t{1} << 40, UINT64_MAX, UINT64_MAX, 0},
            {Kind::kBlockReleased, 0x10000, 512, 1024, kReserved, 0},
            {Kind::kBlockReleased, 0x80000, std::uint64_t{1} << 63, 0, 0, 0},
            {Kind::kBlockRefused, 0, std::uint64_t{3} << 30, 1024, 4096, 1}};
        CHECK(shown(told(sent[0])) == shown(expected));
        for (const wire::Record& record : block_records(sent[0])) {
            CHECK(record.result == 0);
            CHECK(record.flags == (record.device == wire::kDeviceUnknown ? wire::kUnknownDevice : 0));
            CHECK(sent[0].functions.at(record.function) == (record.kind == Kind::kBlockRefused
                                                                ? "c10::reportOutOfMemoryToProfiler"
                                                                : "c10::reportMemoryUsageToProfiler"));
        }
    }
}

TEST_CASE("without a session PyTorch hears what it would hear without the shim") {
    const Outcome plain = run_plain(program("reports"));
    const Outcome outcome = run_with_shim("", program("reports"));
    CHECK(outcome.status == 0);
    CHECK(outcome.output == plain.output);
}

TEST_CASE("in a process without a driver reports are passed on and nothing else is done") {
    const Outcome plain = run_plain(program("idle"));
    REQUIRE(plain.output == "usage 10000 512 512 4096 1 0\n");
    Session session;
    const Outcome outcome = session.run(program("idle"));
    CHECK(outcome.status == 0);
    CHECK(outcome.output == plain.output);
    CHECK(session.sent().empty());
}

TEST_CASE("the names are found where they are found without the shim, and nowhere else") {
    SUBCASE("no PyTorch") {
        const Outcome plain = run_plain({paths().blocks, "doors"});
        REQUIRE(plain.output.find("default null\nnext null\nmain null\n") == 0);
        Session session;
        CHECK(session.run({paths().blocks, "doors"}).output == plain.output);
        CHECK(session.sent().empty());
    }
    for (const char* scope : {"local", "global"}) {
        CAPTURE(scope);
        const Outcome plain = run_plain(program("doors", scope));
        Session session;
        const Outcome outcome = session.run(program("doors", scope));
        CHECK(outcome.status == 0);
        // Where libc10 was found, now the shim is, in front of it.
        std::istringstream before(plain.output), after(outcome.output);
        std::size_t swapped = 0, lines = 0;
        for (std::string a, b; std::getline(before, a) && std::getline(after, b); ++lines) {
            const std::string suffix = " libc10";
            if (a.size() > suffix.size() && a.substr(a.size() - suffix.size()) == suffix) {
                ++swapped;
                CHECK(b == a.substr(0, a.size() - suffix.size()) + " libfragscope");
            } else {
                CHECK(a == b);
            }
        }
        CHECK(lines == 11);
        CHECK(swapped == (scope == std::string("local") ? 2 : 8));
        const auto sent = session.sent();
        REQUIRE(sent.size() == 1);
        CHECK(sent[0].of(Kind::kBlockAcquired).size() == 1);
        CHECK(sent[0].of(Kind::kBlockRefused).size() == 1);
    }
}

TEST_CASE("exceptions of PyTorch's functions pass the shim") {
    const Outcome plain = run_plain(program("exceptions"));
    REQUIRE(plain.output.find("left\ncaught 7\nleft\ncaught 7\nleft\ncaught 7\n") == 0);
    Session session;
    const Outcome outcome = session.run(program("exceptions"));
    CHECK(outcome.status == 0);
    CHECK(outcome.output == plain.output);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(block_records(sent[0]).size() == 4);
}

TEST_CASE("reports of several threads are numbered in the order of the allocator's lock") {
    Options options;
    options.ring_count = 8;
    Session session(options);
    REQUIRE(session.run(program("threads")).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    const auto records = block_records(sent[0]);
    REQUIRE(records.size() == 8000);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < records.size(); ++i)
        wrong += records[i].address != i / 2 + 1 ||
                         records[i].kind != (i % 2 == 0 ? Kind::kBlockAcquired : Kind::kBlockReleased)
                     ? 1
                     : 0;
    CHECK(wrong == 0);
}

TEST_CASE("a forked child's reports are its own, and its parent's waits are not its") {
    Session session;
    REQUIRE(session.run(program("fork")).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 2);
    CHECK(sent[0].of(Kind::kBlockWaits).size() == 1);
    CHECK(sent[0].of(Kind::kBlockWaitOver).size() == 1);
    CHECK(sent[1].of(Kind::kBlockAcquired).size() == 1);
    CHECK(sent[1].of(Kind::kBlockAcquired).at(0).address == 0x20000);
    CHECK(block_records(sent[1]).size() == 1);
}

TEST_CASE("a full ring loses reports and counts them by kind") {
    Options options;
    options.ring_records = 64;
    options.wait_ns = 0;
    Session session(options);
    REQUIRE(session.run(program("threads"), {}, false).status == 0);
    const auto& lost = session.process(0).lost_kinds;
    const std::uint64_t acquired = lost[static_cast<std::uint32_t>(Kind::kBlockAcquired)].load();
    const std::uint64_t released = lost[static_cast<std::uint32_t>(Kind::kBlockReleased)].load();
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(acquired > 0);
    CHECK(acquired + sent[0].of(Kind::kBlockAcquired).size() == 4000);
    CHECK(released + sent[0].of(Kind::kBlockReleased).size() == 4000);
}

TEST_CASE("a released block is said to wait for the events that its release recorded, and for no others") {
    Session session;
    REQUIRE(session.run(program("waits")).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    std::map<std::uint64_t, Waits> waits;  // by the block's address
    Waits since;
    std::vector<std::uint64_t> over;
    for (const wire::Record& record : block_records(sent[0])) {
        if (record.kind == Kind::kBlockWaits) {
            since.emplace_back(record.object, record.extra);
            CHECK(record.device == 0);
            CHECK(sent[0].functions.at(record.function) == "cuEventRecord");
        } else if (record.kind == Kind::kBlockWaitOver) {
            over.push_back(record.object);
        } else if (record.kind == Kind::kBlockReleased) {
            waits[record.address] = since;
            since.clear();
        } else {
            CHECK(since.empty());
        }
    }
    CHECK(since.empty());
    const std::map<std::uint64_t, Waits> expected = {
        {0x10000, {}},  // nobody had reported before it
        {0x20000, {{0x1000, 0x60}, {0x2000, 0x70}, {0x3000, 0x80}}},
        {0x30000, {}},
        {0x40000, {}},
        {0x50000, {{0x4000, 0x60}}},
        {0x60000, {{0x4000, 0x60}}}};
    CHECK(waits == expected);
    // Once each, by whichever thread and call learns of it.
    CHECK(over == std::vector<std::uint64_t>{0x2000, 0x1000, 0x4000, 0x4000, 0x3000});
}

TEST_CASE(
    "a block is said to be for the stream that its allocation asked for, and for none where it did not ask") {
    Session session;
    REQUIRE(session.run(program("streams")).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    const auto records = block_records(sent[0]);
    REQUIRE(!records.empty());
    constexpr std::uint64_t kNotTold = wire::kStreamNotTold;
    // Address, stream. One thread's and, in the middle of them, the one of another thread, whose first block
    // it is.
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {
        {0x8000, kNotTold}, {0x10000, 0},        {0x11000, 0},        {0x20000, 0x60}, {0x30000, 0x60},
        {0x40000, 0x70},    {0x50000, kNotTold}, {0x51000, kNotTold}, {0x60000, 0x70}, {0x70000, kNotTold},
        {0x80000, 0x70},    {0x90000, 0x60},     {0xa0000, kNotTold}};
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
    std::map<int, std::uint64_t> streams;  // by device
    std::size_t changes = 0;
    for (const wire::Record& record : records) {
        if (record.kind == Kind::kBlockStream) {
            streams[record.device] = record.object;
            ++changes;
            CHECK(sent[0].functions.at(record.function) == "c10::cuda::CUDAStream::stream");
        } else {
            const auto known = streams.find(record.device);
            found.emplace_back(record.address, known == streams.end() ? kNotTold : known->second);
        }
    }
    CHECK(found == expected);
    CHECK(changes < expected.size());  // only what is new
}

TEST_CASE("waits beyond the shim's room are counted as lost") {
    Session session;
    REQUIRE(session.run(program("many_waits")).status == 0);
    const auto& lost = session.process(0).lost_kinds;
    const std::uint64_t waits_lost = lost[static_cast<std::uint32_t>(Kind::kBlockWaits)].load();
    const std::uint64_t over_lost = lost[static_cast<std::uint32_t>(Kind::kBlockWaitOver)].load();
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(waits_lost == 8);  // of 40 streams 32 are told
    CHECK(sent[0].of(Kind::kBlockWaits).size() == 32 + 20000);
    CHECK(over_lost > 0);
    CHECK(sent[0].of(Kind::kBlockWaitOver).size() + over_lost == 32 + 20000);
}
