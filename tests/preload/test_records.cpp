// What arrives of a program's calls.
#include <doctest/doctest.h>

#include <set>

#include "session.h"

using namespace fragscope;
using namespace fragscope::preload_test;
using wire::Kind;

namespace {

Sent only(Session& session) {
    auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    return sent[0];
}

}  // namespace

TEST_CASE("each kind of call says what it is to say") {
    Session session;
    REQUIRE(session.run({paths().victim, "kinds"}).status == 0);
    const Sent sent = only(session);

    const auto pitch = sent.of(Kind::kPitchAcquired);
    REQUIRE(pitch.size() == 1);
    CHECK(pitch[0].bytes == 1000);
    CHECK(pitch[0].extra == 5120);
    CHECK(pitch[0].device == 0);
    CHECK(pitch[0].object == 0xc0000);
    CHECK(sent.functions.at(pitch[0].function) == "cuMemAllocPitch_v2");

    const auto freed = sent.of(Kind::kLinearReleased);
    REQUIRE(freed.size() == 1);
    CHECK(freed[0].address == pitch[0].address);
    CHECK(freed[0].device == wire::kDeviceUnknown);

    const auto created = sent.of(Kind::kHandleCreated);
    REQUIRE(created.size() == 2);
    CHECK(created[0].bytes == 2u << 20);
    CHECK(created[0].device == 1);
    CHECK(wire::location_id(created[1].extra) == -7);
    CHECK(wire::location_type(created[1].extra) == 3);  // CU_MEM_LOCATION_TYPE_HOST_NUMA
    CHECK(created[1].device == wire::kDeviceUnknown);
    const auto mapped = sent.of(Kind::kMapped);
    REQUIRE(mapped.size() == 1);
    CHECK(mapped[0].object == created[0].object);
    CHECK(mapped[0].address == sent.of(Kind::kReserved).at(0).address);
    const auto access = sent.of(Kind::kAccessSet);
    REQUIRE(access.size() == 2);
    CHECK((access[0].flags & wire::kContinued) == 0);
    CHECK((access[1].flags & wire::kContinued) != 0);
    CHECK(access[0].sequence == access[1].sequence);
    CHECK(access[1].device == 1);

    // Written: once, then nothing new, then a growth, then what adjoins it.
    const auto touched = sent.of(Kind::kTouched);
    REQUIRE(touched.size() == 3);
    CHECK(touched[0].bytes == 512);
    CHECK(touched[1].bytes == 1024);
    CHECK(touched[2].address == mapped[0].address + 1024);
    CHECK(sent.launches == 1);
    CHECK(sent.opaque_writes == 1);

    const auto pooled = sent.of(Kind::kPoolAcquired);
    REQUIRE(pooled.size() == 2);
    CHECK(pooled[0].object == 0xb0000);  // the device's own pool, asked for
    CHECK((pooled[0].flags & wire::kPerThreadStream) == 0);
    CHECK(pooled[1].object == sent.of(Kind::kPoolCreated).at(0).object);  // the one that was made current
    CHECK((pooled[1].flags & wire::kPerThreadStream) != 0);
    const auto bound = sent.of(Kind::kPoolBound);
    REQUIRE(bound.size() == 2);
    CHECK((bound[0].flags & wire::kByShim) != 0);
    CHECK((bound[1].flags & wire::kByShim) == 0);
    CHECK(sent.of(Kind::kPoolAttributeSet).at(0).bytes == 1u << 20);

    // Only the synchronisation of the stream with a free under way, and only once.
    const auto done = sent.of(Kind::kSynchronized);
    REQUIRE(done.size() == 1);
    CHECK(done[0].object == 1);  // CU_STREAM_LEGACY
    CHECK(done[0].sequence > sent.of(Kind::kPoolReleased).at(0).sequence);

    // The first look at the context comes before the first allocation.
    std::vector<wire::Record> asked, sampled;
    for (const wire::Record& record : sent.of(Kind::kDeviceMemory))
        ((record.flags & wire::kByShim) != 0 ? sampled : asked).push_back(record);
    REQUIRE(!sampled.empty());
    CHECK(sampled[0].sequence < pitch[0].sequence);
    CHECK((sampled[0].flags & wire::kSample) != 0);
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].address == std::uint64_t{3} << 30);
    CHECK(asked[0].bytes == 0);  // the program did not ask for it
}

TEST_CASE("the environment is told once") {
    Session session;
    REQUIRE(session.run({paths().victim, "linear", "2"}).status == 0);
    const Sent sent = only(session);
    CHECK(sent.of(Kind::kEnvironmentComplete).size() == 1);
    const auto devices = sent.of(Kind::kDevice);
    REQUIRE(devices.size() == 2);
    CHECK(devices[1].device == 1);
    CHECK(devices[1].bytes == std::uint64_t{8} << 30);
    CHECK(devices[1].address == 0x4141414141414141);
    CHECK(devices[1].extra == 2);
    CHECK(sent.of(Kind::kDriver).at(0).address == 13000);
    CHECK(sent.of(Kind::kDeviceGranularity).at(0).address == 2u << 20);
    CHECK(sent.of(Kind::kDeviceAttribute).size() > 20);
    CHECK(sent.of(Kind::kHookMissing).empty());
    CHECK(sent.texts.at(wire::TextKind::kExecutable).find("victim") != std::string::npos);
    CHECK(sent.texts.at(wire::TextKind::kCommandLine) ==
          paths().victim + '\0' + "linear" + '\0' + "2" + '\0');
    CHECK(sent.texts.at(wire::TextKind::kDriverPath).find("libcuda.so.1") != std::string::npos);
    CHECK(sent.texts.at(wire::TextKind::kDeviceName) ==
          "Fake device with a name longer than thirty-two bytes");
    CHECK(!sent.texts.at(wire::TextKind::kShimVersion).empty());
    // All times are of the session's clock, from the very first call on.
    for (std::size_t i = 1; i < sent.records.size(); ++i)
        CHECK(sent.records[i - 1].start <= sent.records[i].start);
}

TEST_CASE("numbers are without gap, and an address is never taken before it was given back") {
    Session session;
    REQUIRE(session.run({paths().victim, "reuse"}).status == 0);
    const Sent sent = only(session);
    std::set<std::uint64_t> live;
    std::size_t taken = 0;
    for (const wire::Record& record : sent.records) {
        if (record.kind == Kind::kLinearAcquired) {
            ++taken;
            CHECK(live.insert(record.address).second);
        }
        if (record.kind == Kind::kLinearReleased) CHECK(live.erase(record.address) == 1);
    }
    CHECK(taken == 40000);
    CHECK(live.empty());
}

TEST_CASE("failed calls are recorded, explained, and change nothing for the program") {
    const std::vector<std::string> fail = {"FAKE_FAIL=cuMemAlloc_v2"};
    const Outcome plain = run_plain({paths().victim, "failing"}, fail);
    Session session;
    const Outcome hooked = session.run({paths().victim, "failing"}, fail);
    CHECK(plain.status == 0);
    CHECK(hooked.status == 0);
    CHECK(plain.output == hooked.output);
    CHECK(plain.output.find("2 dead 77") != std::string::npos);
    CHECK(plain.output.find("dlerror none") == std::string::npos);

    const Sent sent = only(session);
    const auto failures = sent.of(Kind::kLinearAcquired);
    REQUIRE(failures.size() == 32);
    for (const wire::Record& record : failures) {
        CHECK(record.result == 2);
        CHECK(record.address == 0);
        CHECK(record.bytes == 1u << 20);
    }
    const auto ends = sent.of(Kind::kFailureSnapshotEnd);
    // Each of a burst of failures has its own snapshot; of the rest of a tight loop, as many as there were pauses for.
    REQUIRE(ends.size() >= 16);
    std::uint64_t skipped = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        if (i < 16) CHECK(ends[i].object == failures[i].sequence);
        skipped += ends[i].extra;
    }
    CHECK(ends.size() + skipped <= failures.size());
    std::vector<wire::Record> pools;
    for (const wire::Record& record : sent.of(Kind::kPoolState))
        if ((record.flags & wire::kSnapshot) != 0) pools.push_back(record);
    REQUIRE(!pools.empty());
    CHECK(pools[0].object == sent.of(Kind::kPoolCreated).at(0).object);
    CHECK(pools[0].sequence < ends[0].sequence);
    CHECK(sent.of(Kind::kPoolHigh).size() == pools.size());
    // Its limit, if it is known: of the pool that the program made, not of the device's own.
    const auto high = sent.of(Kind::kPoolHigh);
    REQUIRE(high.size() >= 2);
    CHECK(high[0].object == pools[0].object);
    CHECK(high[0].extra == 3u << 20);
    CHECK(high[1].object == 0xb0000);
    CHECK(high[1].extra == 0);
    bool asked = false;
    for (const wire::Record& record : sent.of(Kind::kDeviceMemory))
        asked = asked || ((record.flags & wire::kSnapshot) != 0 && record.sequence < ends[0].sequence &&
                          record.address == std::uint64_t{3} << 30);
    CHECK(asked);
}

TEST_CASE("another error than out of memory asks the driver nothing") {
    Session session;
    REQUIRE(session.run({paths().victim, "failing"}, {"FAKE_FAIL=cuMemAlloc_v2", "FAKE_RESULT=700"}).status ==
            0);
    const Sent sent = only(session);
    CHECK(sent.of(Kind::kLinearAcquired).at(0).result == 700);
    CHECK(sent.of(Kind::kFailureSnapshotEnd).empty());
}

TEST_CASE("during a stream capture the shim asks nothing that could break it") {
    for (const std::vector<std::string>& variables :
         {std::vector<std::string>{}, {"FAKE_FAIL=cuMemAlloc_v2"}}) {
        Session session;
        const Outcome outcome = session.run({paths().victim, "capture"}, variables);
        CHECK(outcome.output == "unsafe 0\n");
        const Sent sent = only(session);
        const auto taken = sent.of(Kind::kPoolAcquired);
        REQUIRE(taken.size() == 2);
        CHECK((taken[0].flags & wire::kCaptured) != 0);
        CHECK((taken[1].flags & wire::kCaptured) == 0);
        CHECK((sent.of(Kind::kPoolReleased).at(0).flags & wire::kCaptured) != 0);
        if (variables.empty()) continue;
        const auto ends = sent.of(Kind::kFailureSnapshotEnd);
        REQUIRE(ends.size() == 1);
        CHECK((ends[0].flags & wire::kCaptured) != 0);
    }
}

// Not a test: `preload_test -tc=cost -ns` prints what a pair of calls costs. The benchmarks proper are in
// tests/bench.
TEST_CASE("cost" * doctest::skip()) {
    for (const char* workers : {"1", "2"}) {
        Options options;
        options.ring_records = 1u << 16;
        Session session(options);
        const Outcome plain = run_plain({paths().victim, "timing", workers});
        const Outcome off = run_with_shim("", {paths().victim, "timing", workers});
        const Outcome on = session.run({paths().victim, "timing", workers});
        MESSAGE(workers << " threads, ns for two calls: alone " << plain.output << "; shim without a session "
                        << off.output << "; recorded " << on.output);
    }
}
