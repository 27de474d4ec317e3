// The shim's ring handling inside one program, which may therefore run under the sanitizers: attaching,
// threads that come and go, a full ring, the table of what was written. The rest of the shim is left out;
// what emit and session need of it stands here.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "interpose/emit.h"
#include "interpose/state.h"
#include "interpose/touch.h"
#include "session.h"

namespace fragscope::interpose {

void announce_process() {}
void reset_process_state() { forget_names(); }

}  // namespace fragscope::interpose

using namespace fragscope;
using namespace fragscope::interpose;
using fragscope::preload_test::Options;

namespace {

// The one session of this process: a process attaches once.
preload_test::Session& shared_session() {
    static preload_test::Session session([] {
        Options options;
        options.ring_count = 3;
        options.ring_records = 16;
        options.wait_ns = 50'000;
        return options;
    }());
    static const bool set = setenv(wire::kSessionVariable, session.name().c_str(), 1) == 0 && attach();
    REQUIRE(set);
    return session;
}

void send(std::uint64_t address) {
    wire::Record record = shim_record(Kind::kLinearReleased, HookId::k_cuMemFree_v2, 0);
    record.address = address;
    emit(record);
}

}  // namespace

TEST_CASE("records of threads that come and go arrive whole, or are counted") {
    preload_test::Session& session = shared_session();
    constexpr int kTeams = 20, kThreads = 4, kRecords = 200;
    std::atomic<bool> done{false};
    std::thread collector([&] {
        while (!done.load()) {
            session.drain();
            std::this_thread::yield();
        }
    });
    for (int team = 0; team < kTeams; ++team) {
        std::vector<std::thread> threads;
        for (int i = 0; i < kThreads; ++i)
            threads.emplace_back([] {
                for (int n = 0; n < kRecords; ++n) send(static_cast<std::uint64_t>(n));
            });
        for (std::thread& thread : threads) thread.join();
    }
    done.store(true);
    collector.join();
    const auto sent = session.sent();
    REQUIRE(sent.size() == 1);
    const std::uint64_t arrived = sent[0].of(Kind::kLinearReleased).size();
    CHECK(arrived + sent[0].lost_releases + sent[0].records_without_ring == kTeams * kThreads * kRecords);
    CHECK(arrived > 0);
    CHECK(sent[0].functions.at(static_cast<std::uint16_t>(HookId::k_cuMemFree_v2)) == "cuMemFree_v2");
    for (const wire::Record& record : sent[0].of(Kind::kLinearReleased)) CHECK(record.address < kRecords);
}

TEST_CASE("what was written is told again only after it was renewed, whatever the order") {
    forget_touches();
    CHECK(touch(0x1000, 100));
    CHECK(!touch(0x1000, 100));
    CHECK(!touch(0x1010, 20));
    CHECK(touch(0x1000, 101));
    CHECK(!touch(0x1064, 1));
    CHECK(touch(0x9000, 1));  // apart from the first
    CHECK(!touch(0x1000, 101));
    CHECK(!touch(0x1000, 0));
    CHECK(touch(UINT64_MAX - 5, 100));  // beyond the end of all addresses
    CHECK(touch(0, std::uint64_t{1} << 40));
    CHECK(touch(0, std::uint64_t{1} << 40));  // longer than is remembered
    renew(0x1000, 1);
    CHECK(touch(0x1000, 101));
}

TEST_CASE("nothing that was not told is taken for told") {
    forget_touches();
    std::mt19937 random(7);
    constexpr std::uint64_t kSpan = 8u << 20;
    std::vector<bool> told(kSpan / 4096);
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t first = random() % told.size(), count = 1 + random() % 700;
        const std::uint64_t last = std::min<std::uint64_t>(first + count, told.size());
        if (random() % 10 == 0) {
            renew(first * 4096, (last - first) * 4096);
            for (std::uint64_t page = first; page < last; ++page) told[page] = false;
            continue;
        }
        bool all = true;
        for (std::uint64_t page = first; page < last; ++page) all = all && told[page];
        const bool tell = touch(first * 4096, (last - first) * 4096);
        if (!tell) CHECK(all);
        for (std::uint64_t page = first; page < last; ++page) told[page] = true;
    }
}
