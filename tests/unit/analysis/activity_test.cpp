// CUPTI's records held against the calls. Each case is built call by call; what must come out is counted by
// hand there.
#include "analysis/activity.h"

#include <doctest/doctest.h>

#include <string>

#include "analysis/report.h"
#include "tests/unit/analysis/builder.h"
#include "tests/unit/analysis/scenario.h"
#include "tests/unit/analysis/sums.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

constexpr std::uint32_t kPinned = 2, kDevice = 3, kArray = 4, kManaged = 5, kStatic = 6, kManagedStatic = 7;
constexpr std::uint64_t kTotal = 8 * kGiB;

// Beside the builder's calls, CUPTI's records: at the time of the event before them unless it is said
// otherwise.
class Told {
  public:
    explicit Told(SessionBuilder& session) : session_(session), process(session.process()) {
        auto& names = session.trace().names;
        names.resize(1);
        names[0].texts[1] = "/lib/past.so";
        names[0].texts[2] = "table";
        state(wire::CuptiState::kOn);
    }
    Event& last() { return session_.trace().events[0].back(); }
    Told& state(wire::CuptiState state, std::uint64_t version = 130001, std::uint64_t text = 0) {
        process.call(Kind::kActivityState, static_cast<std::uint64_t>(state), version, 0, text);
        return by_shim();
    }
    Told& record(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint32_t memory,
                 std::uint64_t pool = 0, std::uint64_t late_ns = 0) {
        const TimeNs before = last().start;
        process.call(kind, address, bytes, wire::pack_activity(1, memory, 0, pool != 0), pool);
        last().start = TimeNs{before.value + late_ns};
        return by_shim();
    }
    Told& acquired(std::uint64_t address, std::uint64_t bytes, std::uint32_t memory = kDevice,
                   std::uint64_t pool = 0) {
        return record(Kind::kActivityAcquired, address, bytes, memory, pool);
    }
    Told& released(std::uint64_t address, std::uint64_t bytes, std::uint32_t memory = kDevice) {
        return record(Kind::kActivityReleased, address, bytes, memory);
    }
    Told& place(std::uint64_t name, std::uint64_t file) {
        const Event of = last();
        process.call(Kind::kActivityPlace, 0, 0, name, file);
        last().sequence = of.sequence;
        last().start = of.start;
        return by_shim();
    }
    Told& moved(std::uint64_t address, std::uint64_t bytes, std::uint32_t counter) {
        process.call(Kind::kActivityUnified, address, bytes, wire::pack_activity(0, counter, 0, false));
        return by_shim();
    }
    Activity merged() { return activity_of(session_.trace(), {0}); }

  private:
    Told& by_shim() {
        last().flags |= wire::kByShim;
        return *this;
    }
    SessionBuilder& session_;

  public:
    ProcessBuilder& process;
};

const report::BalancePart* part(const report::Balance& balance, const std::string& id) {
    for (const auto& one : balance.parts()) {
        if (one.id() == id) return &one;
    }
    return nullptr;
}

}  // namespace

TEST_CASE("what both tell is counted once") {
    SessionBuilder session;
    Told told(session);
    told.process.linear(0x1000, kMiB);
    told.acquired(0x1000, kMiB);
    told.process.free(0x1000);
    told.released(0x1000, kMiB);
    told.process.pool_take(0x9000, 4096, 0xb00);
    told.acquired(0x9000, 4096, kDevice, 0x8000);
    told.process.call(Kind::kArrayCreated, kContext, 4096, 0xa1);
    told.acquired(0x77770000, 8192, kArray);  // an address that no call shows
    const Activity activity = told.state(wire::CuptiState::kFinished).merged();
    CHECK(activity.used);
    CHECK(activity.matched == 4);
    CHECK(activity.unseen.empty());
    CHECK(activity.only_calls == 0);
    CHECK(activity.released_unseen == 0);
}

TEST_CASE("records that come long after, in another order, find their calls by time") {
    SessionBuilder session;
    Told told(session);
    std::uint64_t times[3] = {};
    for (int i = 0; i < 3; ++i) {
        told.process.linear(0x1000, kMiB);
        times[i] = told.last().start.value;
        told.process.free(0x1000);
    }
    for (const int i : {2, 0, 1}) {
        told.acquired(0x1000, kMiB);
        told.last().start = TimeNs{times[i] + 50};
    }
    const Activity activity = told.merged();
    CHECK(activity.matched == 3);
    CHECK(activity.unseen.empty());
}

TEST_CASE("an allocation that only CUPTI tells, at an address that calls use too") {
    SessionBuilder session;
    Told told(session);
    told.acquired(0x1000, 3 * kMiB).place(0, 1);
    told.released(0x1000, 3 * kMiB);
    told.process.linear(0x1000, 3 * kMiB);
    told.acquired(0x1000, 3 * kMiB);
    const Activity activity = told.merged();
    CHECK(activity.matched == 1);
    REQUIRE(activity.unseen.size() == 1);
    CHECK(activity.unseen[0].bytes == 3 * kMiB);
    CHECK(activity.unseen[0].file == "/lib/past.so");
    CHECK(activity.unseen[0].to < TimeNs{UINT64_MAX});
}

TEST_CASE("the call's size counts where CUPTI names another one") {
    SessionBuilder session;
    Told told(session);
    told.process.linear(0x1000, 1000);
    told.acquired(0x1000, 1024);
    const Activity activity = told.merged();
    CHECK(activity.matched == 1);
    CHECK(activity.other_size == 1);
    CHECK(activity.unseen.empty());
}

TEST_CASE("inside of what a call took nothing is unseen") {
    SessionBuilder session;
    Told told(session);
    told.process.linear(0x100000, 4 * kMiB);
    told.acquired(0x100000, 4 * kMiB);
    told.acquired(0x200000, kMiB);
    const Activity activity = told.merged();
    CHECK(activity.unseen.empty());
    CHECK(activity.matched == 2);
}

TEST_CASE("a release that only CUPTI tells, and one that a context's end explains") {
    SessionBuilder session;
    Told told(session);
    told.process.linear(0x1000, kMiB);
    told.acquired(0x1000, kMiB);
    told.process.call(Kind::kCalled);
    told.last().start = TimeNs{told.last().start.value + 1'000'000'000};
    told.released(0x1000, kMiB);
    CHECK(told.merged().released_unseen == 1);
    CHECK(told.merged().released_unseen_bytes == kMiB);

    SessionBuilder other;
    Told ended(other);
    ended.process.linear(0x1000, kMiB);
    ended.acquired(0x1000, kMiB);
    ended.process.call(Kind::kContextDestroyed, 0, 0, kContext);
    ended.released(0x1000, kMiB);
    CHECK(ended.merged().released_unseen == 0);
}

TEST_CASE(
    "calls without a record: of handles that is expected, before and after CUPTI was used it is no sign") {
    SessionBuilder session;
    Told told(session);
    told.process.linear(0x1000, kMiB).create(1, 2 * kMiB);
    told.state(wire::CuptiState::kEnded, 0, 1);
    told.process.linear(0x9000, kMiB).create(2, 2 * kMiB);
    const Activity activity = told.merged();
    CHECK(activity.only_calls == 1);
    CHECK(activity.expected_only_calls == 1);
    CHECK(activity_in_words(activity).find("until another client of it came: /lib/past.so") !=
          std::string::npos);
}

TEST_CASE("without an end that was told, calls after the last record are no sign either") {
    SessionBuilder session;
    Told told(session);
    told.process.linear(0x1000, kMiB);
    told.acquired(0x1000, kMiB);
    told.process.linear(0x9000, kMiB);
    CHECK(told.merged().only_calls == 0);
    CHECK(activity_in_words(told.merged()).find("before it could be asked for its last records") !=
          std::string::npos);
}

TEST_CASE(
    "unseen memory and variables are parts of the balance, measured where their bytes are whole pages") {
    SessionBuilder session;
    Told told(session);
    told.acquired(0x10000000, 4 * kMiB).place(0, 1);
    told.acquired(0x20000000, 3 * kMiB, kStatic).place(2, 0);
    told.acquired(0x30000000, 9 * kMiB, kManagedStatic);
    told.acquired(0x40000000, 5 * kMiB, kPinned);            // takes nothing of the device
    told.acquired(0x50000000, 6 * kMiB, kDevice, 0x500000);  // its pool's reserved size has it
    told.process.sample(kTotal - 100 * kMiB, kTotal);
    told.process.sample_end();
    const report::Report report = make_report(session.trace());
    check_words(report);
    check_sums(report);
    REQUIRE(report.balances_size() == 1);
    const report::BalancePart* unseen = part(report.balances(0), "unseen");
    REQUIRE(unseen != nullptr);
    CHECK(unseen->bytes().evidence() == report::Quantity::measured);
    CHECK(unseen->bytes().low_bytes() == 4 * kMiB);
    const report::BalancePart* statics = part(report.balances(0), "statics");
    REQUIRE(statics != nullptr);
    CHECK(statics->bytes().low_bytes() == 3 * kMiB);  // a managed variable may be elsewhere
    CHECK(statics->bytes().high_bytes() == 12 * kMiB);
    CHECK(report.balances(0).rest_high_bytes() == 93 * kMiB);
    REQUIRE(report.activities_size() == 1);
    CHECK(report.activities(0).statics_size() == 2);
    CHECK(report.activities(0).statics(0).name() == "table");
    CHECK(report.processes(0).blind_spots_size() == 2);  // by past.so, and by files that are not known
}

TEST_CASE("managed memory is resident where its bytes went and did not leave") {
    SessionBuilder session;
    Told told(session);
    told.process.call(Kind::kManagedAcquired, 0x10000000, 16 * kMiB, kContext);
    told.acquired(0x10000000, 16 * kMiB, kManaged);
    told.moved(0x10000000, 8 * kMiB, 1);
    told.moved(0x10400000, 4 * kMiB, 1);  // it was there already
    told.moved(0x10000000, 2 * kMiB, 2);
    told.process.call(Kind::kCalled);
    const TimeNs there = told.last().start;
    told.process.call(Kind::kCalled);
    told.released(0x10000000, 16 * kMiB, kManaged);
    const Activity activity = told.merged();
    CHECK(activity.resident_at(0, there.value) == 6 * kMiB);
    CHECK(activity.resident_at(1, there.value) == 0);
    CHECK(activity.resident_at(0, UINT64_MAX) == 0);

    told.process.call(Kind::kActivityLost, 0, 3);
    CHECK(told.merged().dropped == 3);
    CHECK(told.merged().resident_at(0, there.value) == 0);  // what left may be among what was dropped
}

TEST_CASE("why CUPTI was not used is said, and nothing else") {
    for (const auto state :
         {wire::CuptiState::kNoLibrary, wire::CuptiState::kOthersUse, wire::CuptiState::kRefused,
          wire::CuptiState::kUnknownVersion, wire::CuptiState::kForked}) {
        SessionBuilder session;
        auto& process = session.process();
        process.call(Kind::kActivityState, static_cast<std::uint64_t>(state), 120800, 35);
        process.linear(0x1000, kMiB);
        const Activity activity = activity_of(session.trace(), {0});
        CHECK(!activity.used);
        CHECK(activity.only_calls == 0);
        CHECK(activity_in_words(activity).starts_with("CUPTI was not used: "));
    }
    SessionBuilder session;
    session.process().linear(0x1000, kMiB);
    CHECK(activity_in_words(activity_of(session.trace(), {0})).empty());
    CHECK(make_report(session.trace()).activities_size() == 0);
}
