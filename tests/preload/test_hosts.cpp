// Hostile hosts and a collector in trouble: the program must not notice, and what is lost must be counted.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "session.h"

using namespace fragscope;
using namespace fragscope::preload_test;
using wire::Kind;

TEST_CASE("a ring that nobody empties holds the program up once and then counts") {
    Options options;
    options.ring_records = 64;
    options.wait_ns = 100'000'000;
    Session session(options);
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(session.run({paths().victim, "linear", "1000"}, {}, false).status == 0);
    const auto took = std::chrono::steady_clock::now() - start;
    CHECK(took >= std::chrono::milliseconds(100));
    CHECK(took < std::chrono::seconds(20));
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].lost_acquisitions + sent[0].of(Kind::kLinearAcquired).size() == 1000);
    CHECK(sent[0].lost_releases + sent[0].of(Kind::kLinearReleased).size() == 1000);
    CHECK(sent[0].lost_acquired_bytes == sent[0].lost_acquisitions * 1000);
}

TEST_CASE("a dead or closing collector is not waited for") {
    Options options;
    options.ring_records = 64;
    options.wait_ns = 600'000'000'000;
    SUBCASE("dead") {
        const pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, nullptr, 0);
        options.collector_pid = child;
        Session session(options);
        CHECK(session.run({paths().victim, "linear", "1000"}, {}, false).status == 0);
        CHECK(session.sent().at(0).lost_releases > 0);
    }
    SUBCASE("closing") {
        Session session(options);
        session.header().collector_state.store(wire::CollectorState::kClosing);
        CHECK(session.run({paths().victim, "linear", "1000"}, {}, false).status == 0);
        CHECK(session.sent().empty());
    }
}

TEST_CASE("no session, or one that makes no sense, leaves the program alone") {
    const Outcome plain = run_plain({paths().victim, "linear", "10"});
    CHECK(run_with_shim("", {paths().victim, "linear", "10"}).output == plain.output);
    for (const char* name : {"/fragscope-there-is-none", "no-slash", "/", "/../etc/passwd"}) {
        const Outcome outcome = run_with_shim(name, {paths().victim, "linear", "10"});
        CHECK(outcome.status == plain.status);
        CHECK(outcome.output == plain.output);
    }
    Session session;
    wire::SessionHeader& header = session.header();
    SUBCASE("magic") { header.magic ^= 1; }
    SUBCASE("version") { header.layout_version += 1; }
    SUBCASE("total") { header.total_bytes += 4096; }
    SUBCASE("processes") { header.processes_offset = UINT64_MAX - 64; }
    SUBCASE("rings") { header.rings_offset = UINT64_MAX - 127; }
    SUBCASE("ring count") { header.ring_count = UINT32_MAX; }
    SUBCASE("ring size") { header.ring_records = 3; }
    SUBCASE("ring size zero") { header.ring_records = 0; }
    SUBCASE("slots") { header.process_slots = UINT32_MAX; }
    SUBCASE("clock") { header.clock = static_cast<wire::Clock>(2); }
    SUBCASE("cupti") { header.cupti = static_cast<wire::CuptiMode>(3); }
    CHECK(session.run({paths().victim, "linear", "10"}).status == 0);
    CHECK(session.sent().empty());
}

TEST_CASE("a ring with an impossible tail loses records and nothing else") {
    Options options;
    options.ring_count = 1;
    options.wait_ns = 0;
    Session session(options);
    session.ring(0).tail.store(1u << 30);
    CHECK(session.run({paths().victim, "linear", "10"}, {}, false).status == 0);
}

TEST_CASE("a forked child has a place of its own, one that does nothing has none") {
    Session session;
    REQUIRE(session.run({paths().victim, "fork"}).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 2);
    CHECK(sent[0].pid != sent[1].pid);
    CHECK(sent[0].of(Kind::kLinearAcquired).size() == 4);
    CHECK(sent[1].of(Kind::kLinearAcquired).size() == 2);
    CHECK(sent[1].records.at(0).sequence < 20);  // counted from 1 again
    CHECK(!sent[1].functions.empty());
    CHECK(sent[1].of(Kind::kEnvironmentComplete).size() == 1);
}

TEST_CASE("rings of threads that ended serve other threads") {
    Options options;
    options.ring_count = 3;
    Session session(options);
    REQUIRE(session.run({paths().victim, "threads", "200"}).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].threads_without_ring + sent[0].of(Kind::kLinearReleased).size() == 200);
    CHECK(sent[0].of(Kind::kLinearReleased).size() > 3);  // a ring was used again
}

TEST_CASE("without a ring everything is counted") {
    Options options;
    options.ring_count = 1;
    Session session(options);
    session.ring(0).state.store(wire::SlotState::kClaimed);
    REQUIRE(session.run({paths().victim, "linear", "10"}, {}, false).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].threads_without_ring == 1);
    CHECK(sent[0].records_without_ring > 20);
}

TEST_CASE("more processes than slots: the last ones are refused and counted") {
    Options options;
    options.process_slots = 1;
    Session session(options);
    REQUIRE(session.run({paths().victim, "fork"}).status == 0);
    CHECK(session.header().processes_refused.load() == 1);
    CHECK(session.sent().at(0).of(Kind::kLinearAcquired).size() == 4);
}

TEST_CASE("another preloaded library sees what it would see alone, and so do we, in either order") {
    for (const std::string& rival : {paths().rival, paths().rival_without_dlsym}) {
        CAPTURE(rival);
        const Outcome alone = run_plain({paths().victim, "rivalled"}, {"LD_PRELOAD=" + rival});
        REQUIRE(alone.status == 0);
        REQUIRE(alone.output.find("total 4096") != std::string::npos);
        // Directly linked calls, and those through its dlsym if it has one; nothing of cuGetProcAddress.
        const bool with_dlsym = rival == paths().rival;
        CHECK(alone.output.find(with_dlsym ? "calls 60907" : "calls 30904") != std::string::npos);
        for (const std::string& order : {paths().shim + ":" + rival, rival + ":" + paths().shim}) {
            CAPTURE(order);
            Session session;
            const Outcome both = session.run_preloaded(order, {paths().victim, "rivalled"});
            CHECK(both.status == 0);
            CHECK(both.output == alone.output);
            const auto sent = session.sent();
            REQUIRE(sent.size() == 1);
            // Ahead of us, with a dlsym that goes past ours to the C library's, it keeps from us what the
            // program gets of cuGetProcAddress. `fragscope run` puts us first.
            const bool kept = with_dlsym && order.find(rival) == 0;
            CHECK(sent[0].of(Kind::kLinearAcquired).size() == (kept ? 6 : 9));
            CHECK(sent[0].of(Kind::kLinearReleased).size() == 9);
        }
    }
}

TEST_CASE("the image before exec gives back what it held") {
    Session session;
    REQUIRE(session.run({paths().victim, "exec"}).status == 0);
    const auto sent = session.sent();
    REQUIRE(sent.size() == 2);
    CHECK(sent[0].pid == sent[1].pid);
    CHECK(sent[0].of(Kind::kLinearAcquired).size() == 2);
    CHECK(sent[1].of(Kind::kLinearAcquired).size() == 2);
}

TEST_CASE("a program that closes all descriptors") {
    Session session;
    REQUIRE(session.run({paths().victim, "closed"}).status == 0);
    CHECK(session.sent().at(0).of(Kind::kLinearAcquired).size() == 5);
}

TEST_CASE("calls before main and after its end are recorded") {
    Session session;
    REQUIRE(session.run({paths().victim, "nothing"}, {"VICTIM_EARLY=1"}).status == 0);
    CHECK(session.sent().at(0).of(Kind::kLinearAcquired).size() == 2);
}

TEST_CASE("a child that has nothing to do with the driver is left alone") {
    Session session;
    const Outcome outcome = session.run(
        {"/bin/sh", "-c", "ls /proc/self/fd | wc -l; grep -c " + session.name() + " /proc/self/maps"});
    const Outcome plain = run_plain({"/bin/sh", "-c", "ls /proc/self/fd | wc -l; echo 0"});
    CHECK(outcome.output == plain.output);
    CHECK(session.sent().empty());
    // Nor one that is linked to the driver and makes no call.
    CHECK(session.run({paths().victim, "nothing"}).status == 0);
    CHECK(session.sent().empty());
}
