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
    Event& last() { return session_.trace().events[0].edit_last(); }
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
    told.state(wire::CuptiState::kFinished);
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
    const std::uint64_t there = told.last().start.value;
    told.process.call(Kind::kCalled);
    told.released(0x10000000, 16 * kMiB, kManaged);
    const std::uint64_t gone = told.last().start.value;
    told.state(wire::CuptiState::kFinished);
    const Activity activity = told.merged();
    CHECK(activity.resident_at(0, there, there) == 6 * kMiB);
    CHECK(activity.resident_at(1, there, there) == 0);
    CHECK(activity.resident_at(0, gone, gone) == 0);
    CHECK(activity.resident_at(0, there, gone) == 0);  // not all that time

    told.process.call(Kind::kActivityLost, 0, 3);
    CHECK(told.merged().dropped == 3);
    CHECK(told.merged().resident_at(0, there, there) == 0);  // what left may be among what was dropped
}

TEST_CASE("once CUPTI told nothing more, what it saw is certain no longer") {
    for (const auto end : {wire::CuptiState::kEnded, wire::CuptiState::kFinished, wire::CuptiState::kOn}) {
        SessionBuilder session;
        Told told(session);
        told.process.call(Kind::kManagedAcquired, 0x10000000, 16 * kMiB, kContext);
        told.acquired(0x10000000, 16 * kMiB, kManaged);
        told.moved(0x10000000, 8 * kMiB, 1);
        told.acquired(0x40000000, 4 * kMiB).acquired(0x50000000, 3 * kMiB, kStatic);
        const std::uint64_t during = told.last().start.value;
        // Without a state at the end CUPTI told nothing after its last record.
        if (end != wire::CuptiState::kOn) told.state(end);
        told.process.sample(kTotal - 100 * kMiB, kTotal);
        told.process.sample_end();
        const Activity activity = told.merged();
        CHECK(activity.unseen_at(0, 2 * kMiB, during, during) == Interval::exactly(4 * kMiB));
        CHECK(activity.statics_at(0, during, during) == Interval::exactly(3 * kMiB));
        CHECK(activity.resident_at(0, during, during) == 8 * kMiB);
        const std::uint64_t after = told.last().start.value;
        CHECK(activity.unseen_at(0, 2 * kMiB, after, after) == Interval{0, 4 * kMiB});
        CHECK(activity.unseen_at(0, 2 * kMiB, during, after) == Interval{0, 4 * kMiB});
        CHECK(activity.statics_at(0, after, after) == Interval{0, 3 * kMiB});
        CHECK(activity.resident_at(0, after, after) == 0);
        const report::Report report = make_report(session.trace());
        check_words(report);
        check_sums(report);
        REQUIRE(report.balances_size() == 1);
        const report::BalancePart* unseen = part(report.balances(0), "unseen");
        REQUIRE(unseen != nullptr);
        CHECK(unseen->bytes().evidence() == report::Quantity::bounded);
        CHECK(unseen->bytes().low_bytes() == 0);
        CHECK(unseen->bytes().high_bytes() == 4 * kMiB);
    }
}

TEST_CASE("where CUPTI's records are missing, more or less may be there than it told of") {
    // Dropped by CUPTI; lost by the recorder, which says of which kind; and which does not say it.
    for (const int how : {0, 1, 2}) {
        SessionBuilder session;
        Told told(session);
        told.acquired(0x40000000, 4 * kMiB).acquired(0x50000000, 3 * kMiB, kStatic);
        const std::uint64_t during = told.last().start.value;
        if (how == 0) told.process.call(Kind::kActivityLost, 0, 3);
        if (how != 0) told.process.loss().set_others(1);
        if (how == 1) {
            auto& kinds = *told.process.loss().mutable_records_by_kind();
            kinds[static_cast<std::uint32_t>(Kind::kActivityReleased)] = 1;
        }
        told.process.sample(kTotal - 100 * kMiB, kTotal);
        told.process.sample_end();
        const Activity activity = told.state(wire::CuptiState::kFinished).merged();
        CHECK(activity.records_missing);
        CHECK(activity.unseen_at(0, 2 * kMiB, during, during) == Interval{0, std::nullopt});
        CHECK(activity.statics_at(0, during, during) == Interval{0, std::nullopt});
        CHECK(activity.unseen_at(1, 2 * kMiB, during, during) == Interval::exactly(0));  // nothing told of it
        const report::Report report = make_report(session.trace());
        check_words(report);
        check_sums(report);
        REQUIRE(report.balances_size() == 1);
        const report::BalancePart* unseen = part(report.balances(0), "unseen");
        REQUIRE(unseen != nullptr);
        CHECK(unseen->bytes().low_bytes() == 0);
        CHECK(!unseen->bytes().has_high_bytes());
        bool named = false;
        for (const std::string& what : report.balances(0).may_hold())
            named = named || what.find("CUPTI's records are missing") != std::string::npos;
        CHECK(named);
        CHECK(report.activities(0).records_missing());
        if (how != 0) continue;
        CHECK(
            report.processes(0).blind_spots(report.processes(0).blind_spots_size() - 1) ==
            "CUPTI dropped 3 of its records, or gave no time for them: what it alone told of may have been "
            "released, and more may have gone past the recording.");
    }
}

TEST_CASE("lost records of other kinds make nothing of CUPTI's uncertain") {
    SessionBuilder session;
    Told told(session);
    told.acquired(0x40000000, 4 * kMiB);
    const std::uint64_t during = told.last().start.value;
    told.process.loss().set_others(1);
    (*told.process.loss().mutable_records_by_kind())[static_cast<std::uint32_t>(Kind::kText)] = 1;
    const Activity activity = told.state(wire::CuptiState::kFinished).merged();
    CHECK(!activity.records_missing);
    CHECK(!activity.acquisitions_lost);
    CHECK(activity.unseen_at(0, 2 * kMiB, during, during) == Interval::exactly(4 * kMiB));
}

TEST_CASE("what only CUPTI saw may be gone with a context, or where something else was taken in its place") {
    for (const bool context : {true, false}) {
        SessionBuilder session;
        Told told(session);
        told.acquired(0x40000000, 4 * kMiB);
        const std::uint64_t during = told.last().start.value;
        if (context) {
            told.process.call(Kind::kContextDestroyed, 0, 0, kContext);
        } else {
            told.process.call(Kind::kCalled);
            told.acquired(0x40000000, 4 * kMiB);
        }
        told.process.call(Kind::kCalled);
        const std::uint64_t after = told.last().start.value;
        const Activity activity = told.state(wire::CuptiState::kFinished).merged();
        CHECK(activity.unseen_at(0, 2 * kMiB, during, during) == Interval::exactly(4 * kMiB));
        CHECK(activity.unseen_at(0, 2 * kMiB, after, after).low == (context ? 0 : 4 * kMiB));
    }
}

TEST_CASE("an array that only CUPTI tells of ends with CUPTI's release of its address, not with another's") {
    SessionBuilder session;
    Told told(session);
    told.acquired(0x77770000, 4 * kMiB, kArray);
    told.process.call(Kind::kCalled);
    told.last().start = TimeNs{told.last().start.value + 1'000'000'000};
    told.process.call(Kind::kArrayCreated, kContext, 4096, 0xa1);
    told.last().start = TimeNs{told.last().start.value + 1'000'000'000};
    told.acquired(0x88880000, 8192, kArray);
    told.process.call(Kind::kArrayReleased, kContext, 0, 0xa1);
    told.last().start = TimeNs{told.last().start.value + 1'000'000'000};
    told.released(0x88880000, 8192, kArray);
    const std::uint64_t after = told.last().start.value;
    Activity activity = told.merged();
    CHECK(activity.matched == 2);
    REQUIRE(activity.unseen.size() == 1);
    CHECK(activity.unseen[0].address == Address{0x77770000});
    CHECK(activity.unseen[0].to == TimeNs{UINT64_MAX});
    CHECK(activity.unseen_at(0, 2 * kMiB, after, after) == Interval{4 * kMiB, std::nullopt});
    told.process.call(Kind::kCalled);
    told.last().start = TimeNs{after + 1'000'000'000};
    told.released(0x77770000, 4 * kMiB, kArray);
    activity = told.merged();
    REQUIRE(activity.unseen.size() == 1);
    CHECK(activity.unseen[0].to == told.last().start);
}

TEST_CASE("what the recorder lost need not have gone past it") {
    const auto kind = [](Kind k) { return static_cast<std::uint32_t>(k); };
    SessionBuilder session;
    Told told(session);
    told.acquired(0x40000000, 4 * kMiB);
    told.process.linear(0x1000, kMiB);
    told.acquired(0x1000, kMiB);
    told.process.call(Kind::kCalled);
    told.last().start = TimeNs{told.last().start.value + 1'000'000'000};
    told.released(0x1000, kMiB);
    const std::uint64_t during = told.last().start.value;
    told.process.sample(kTotal - 100 * kMiB, kTotal);
    told.process.sample_end();
    told.state(wire::CuptiState::kFinished);
    told.last().start = TimeNs{during + 1'000'000'000};
    const auto said = [&](const std::string& text) {
        const report::Report report = make_report(session.trace());
        check_words(report);
        check_sums(report);
        bool found = false;
        for (const std::string& spot : report.processes(0).blind_spots())
            found = found || spot.find(text) != std::string::npos;
        return found;
    };
    CHECK(told.merged().unseen_at(0, 2 * kMiB, during, during) == Interval::exactly(4 * kMiB));
    CHECK(said("1 allocation (4 MiB in all) went past the recording and was seen by CUPTI only"));
    CHECK(said("1 release of memory that calls took (1 MiB) went past the recording and was seen"));

    auto& loss = told.process.loss();
    loss.set_acquisitions(1);
    (*loss.mutable_records_by_kind())[kind(Kind::kLinearAcquired)] = 1;
    CHECK(told.merged().unseen_at(0, 2 * kMiB, during, during) == Interval{0, 4 * kMiB});
    CHECK(said("went past the recording or is among its lost records and was seen by CUPTI only"));
    CHECK(said("1 release of memory that calls took (1 MiB) went past the recording and was seen"));

    loss.set_acquisitions(0);
    loss.clear_records_by_kind();
    loss.set_releases(1);
    (*loss.mutable_records_by_kind())[kind(Kind::kLinearReleased)] = 1;
    CHECK(told.merged().unseen_at(0, 2 * kMiB, during, during) == Interval::exactly(4 * kMiB));
    CHECK(said("1 release of memory that calls took (1 MiB) went past the recording or is among its lost"));
}

// The test's time limit is what fails here, if the time grows with the square of how often an address is
// used.
TEST_CASE("an address that is used again and again") {
    constexpr std::uint64_t kTimes = 200'000;
    SessionBuilder session;
    Told told(session);
    for (std::uint64_t i = 0; i < kTimes; ++i) {
        told.process.linear(0x1000, 4096);
        told.acquired(0x1000, 4096);
        told.acquired(0x1040, 64);  // inside it
        told.process.free(0x1000);
        told.released(0x1000, 4096);
        told.acquired(0x9000, 64);  // past the recording
        told.released(0x9000, 64);
        if (i % 8 == 0) told.process.call(Kind::kContextDestroyed, 0, 0, kContext);
    }
    const Activity activity = told.merged();
    CHECK(activity.matched == 3 * kTimes);
    CHECK(activity.unseen.size() == kTimes);
    CHECK(activity.released_unseen == 0);
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
