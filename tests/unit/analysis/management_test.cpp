// What the management library told, beside the driver's word and the records. Each number is one that the
// test put in.
#include "analysis/management.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/explain.h"
#include "analysis/session.h"
#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

// A reading of the first process's device, taken at the builder's next moment.
trace::Readings& reading(SessionBuilder& session, std::uint64_t used, std::uint64_t reserved = 256 * kMiB) {
    analysis::Trace& trace = session.trace();
    trace.session.mutable_recording()->set_nvml("on");
    trace::Readings& readings = trace.readings.emplace_back();
    readings.set_time_ns(session.tick());
    trace::DeviceReading& device = *readings.add_devices();
    device.set_uuid(trace.processes[0].devices(0).uuid());
    device.set_uuid_text("GPU-of-the-first");
    device.set_total_bytes(8 * kGiB + reserved);
    device.set_reserved_bytes(reserved);
    device.set_used_bytes(used);
    device.set_free_bytes(8 * kGiB - used);
    device.set_processes_known(true);
    return readings;
}

trace::ProcessReading& holder(trace::Readings& readings, std::int64_t pid, std::uint64_t bytes) {
    trace::ProcessReading& process = *readings.mutable_devices(0)->add_processes();
    process.set_pid(pid);
    process.set_kind("compute");
    process.set_used_bytes(bytes);
    return process;
}

}  // namespace

TEST_CASE("NVML's numbers stand beside cuMemGetInfo's, with the distance in time and the difference") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kGiB).sample(6 * kGiB, 8 * kGiB).sample_end();
    const std::uint64_t asked = session.trace().events[0][1].start.value;
    const trace::Readings& told = reading(session, 2 * kGiB + 4 * kMiB);
    const auto management = management_of(session.trace());
    REQUIRE(management.has_value());
    REQUIRE(management->devices_size() == 1);
    CHECK(management->devices(0).device() == device_uuid(session.trace(), {0}, 0));
    REQUIRE(management->devices(0).moments_size() == 1);  // the first, the fullest and the last are one
    const report::ManagedMoment& moment = management->devices(0).moments(0);
    CHECK(moment.moments_size() == 3);
    CHECK(moment.total().low_bytes() == 8 * kGiB + 256 * kMiB);
    CHECK(moment.used().low_bytes() == 2 * kGiB + 4 * kMiB);
    CHECK(moment.used().definition() == report::Quantity::nvml_used);
    REQUIRE(moment.has_driver());
    CHECK(moment.driver().device_free().low_bytes() == 6 * kGiB);
    CHECK(moment.driver().after_ns() ==
          static_cast<std::int64_t>(asked) - static_cast<std::int64_t>(told.time_ns()));
    CHECK(moment.driver().after_ns() < 0);
    CHECK(moment.driver().device_free_less_bytes() == static_cast<std::int64_t>(4 * kMiB));
    CHECK(moment.driver().total_less_bytes() == -static_cast<std::int64_t>(256 * kMiB));
}

TEST_CASE("a process's bytes stand beside what its records add up to at that very time") {
    SessionBuilder session;
    auto& p = session.process();
    p.create(1, 512 * kMiB);
    holder(reading(session, kGiB), 77, 812 * kMiB).set_process(0);
    p.create(2, 1024 * kMiB);
    holder(reading(session, 2 * kGiB), 4711, 100 * kMiB);
    const auto management = management_of(session.trace());
    REQUIRE(management.has_value());
    REQUIRE(management->devices(0).moments_size() == 2);
    const report::ManagedProcess& own = management->devices(0).moments(0).processes(0);
    CHECK(own.process() == 0);
    CHECK(own.used().low_bytes() == 812 * kMiB);
    CHECK(own.attributed().low_bytes() == 512 * kMiB);
    CHECK(own.attributed().high_bytes() == 512 * kMiB);
    CHECK(own.more_low_bytes() == static_cast<std::int64_t>(300 * kMiB));
    CHECK(own.more_high_bytes() == static_cast<std::int64_t>(300 * kMiB));
    const report::ManagedProcess& other = management->devices(0).moments(1).processes(0);
    CHECK(!other.has_process());
    CHECK(!other.has_attributed());
    CHECK(!other.has_more_low_bytes());
}

TEST_CASE("of many readings the first, the one with most in use and the last are shown") {
    SessionBuilder session;
    session.process().linear(0x10000000, kGiB);
    for (const std::uint64_t used : {kGiB, 3 * kGiB, 2 * kGiB, kGiB}) reading(session, used);
    const auto management = management_of(session.trace());
    REQUIRE(management.has_value());
    CHECK(management->readings() == 4);
    REQUIRE(management->devices(0).moments_size() == 3);
    CHECK(management->devices(0).moments(1).used().low_bytes() == 3 * kGiB);
    CHECK(management->devices(0).moments(1).moments(0) == "fullest reading");
    CHECK(management->devices(0).moments(2).moments(0) == "last reading");
}

TEST_CASE("a reading that says the same as an earlier one keeps its own time, and its own distances") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, kGiB);
    for (int i = 0; i < 3; ++i) reading(session, kGiB);
    p.sample(7 * kGiB, 8 * kGiB).sample_end();
    const auto management = management_of(session.trace());
    REQUIRE(management.has_value());
    REQUIRE(management->devices(0).moments_size() == 2);
    const report::ManagedMoment& first = management->devices(0).moments(0);
    const report::ManagedMoment& last = management->devices(0).moments(1);
    REQUIRE(first.moments_size() == 2);  // of equal ones the first is the fullest
    CHECK(first.moments(0) == "first reading");
    CHECK(first.moments(1) == "fullest reading");
    REQUIRE(last.moments_size() == 1);
    CHECK(last.moments(0) == "last reading");
    const trace::Readings* told = session.trace().readings.data();
    CHECK(last.time_ns() - first.time_ns() == told[2].time_ns() - told[0].time_ns());
    CHECK(first.driver().after_ns() - last.driver().after_ns() ==
          static_cast<std::int64_t>(told[2].time_ns() - told[0].time_ns()));
}

TEST_CASE("at a failure the nearest reading is told, with its distance") {
    SessionBuilder session;
    auto& p = session.process();
    reading(session, kGiB);
    for (int i = 0; i < 20; ++i) session.tick();
    p.linear(0x10000000, 8 * kGiB).failed().snapshot(6 * kGiB, 8 * kGiB).snapshot_end();
    const Event& failed = session.trace().events[0][0];
    const trace::Readings& after = reading(session, 2 * kGiB);
    const report::Explanation explanation = explain_failure(session.trace());
    REQUIRE(explanation.has_management());
    const report::ManagedMoment& moment = explanation.management().devices(0).moments(0);
    CHECK(moment.used().low_bytes() == 2 * kGiB);
    CHECK(moment.after_failure_ns() == static_cast<std::int64_t>(after.time_ns() - failed.start.value));
    // Another device's readings are none of this one.
    CHECK(!management_at(session.trace(), "GPU-that-is-not-there", failed.start.value));
}

TEST_CASE("what was not told is unknown, and why stands there once") {
    SessionBuilder session;
    session.process().linear(0x10000000, kGiB);
    for (int i = 0; i < 3; ++i) {
        trace::Readings& told = reading(session, kGiB);
        told.set_problem("Not told: memory (Not Supported).");
        trace::DeviceReading& device = *told.mutable_devices(0);
        device.clear_used_bytes();
        device.clear_free_bytes();
        device.clear_processes();
        device.set_processes_known(false);
    }
    const auto management = management_of(session.trace());
    REQUIRE(management.has_value());
    CHECK(management->problems_size() == 1);
    REQUIRE(management->devices(0).moments_size() == 2);  // the first and the last
    for (const report::ManagedMoment& moment : management->devices(0).moments()) {
        CHECK(moment.used().evidence() == report::Quantity::unknown);
        CHECK(!moment.used().has_low_bytes());
        CHECK(moment.nvml_free().evidence() == report::Quantity::unknown);
        CHECK(!moment.nvml_free().has_low_bytes());
        CHECK(moment.total().evidence() == report::Quantity::measured);  // this it told
        CHECK(!moment.processes_known());
        // Which reading was the fullest is not known either.
        for (const std::string& name : moment.moments()) CHECK(name != "fullest reading");
    }
}

TEST_CASE("the fullest reading is one that told how much was in use, be it nothing") {
    SessionBuilder session;
    session.process().linear(0x10000000, kGiB);
    reading(session, 0).mutable_devices(0)->clear_used_bytes();
    const std::uint64_t told_at = reading(session, 0).time_ns();
    reading(session, 0).mutable_devices(0)->clear_used_bytes();
    const auto management = management_of(session.trace());
    REQUIRE(management.has_value());
    REQUIRE(management->devices(0).moments_size() == 3);
    const report::ManagedMoment& fullest = management->devices(0).moments(1);
    CHECK(fullest.moments(0) == "fullest reading");
    CHECK(fullest.time_ns() == told_at - session.trace().session.start_ns());
    CHECK(fullest.used().low_bytes() == 0);
    CHECK(fullest.used().evidence() == report::Quantity::measured);
}

TEST_CASE("devices that no process of the trace saw are counted, not shown; no readings are no section") {
    SessionBuilder session;
    session.process().linear(0x10000000, kGiB);
    CHECK(!management_of(session.trace()).has_value());
    trace::DeviceReading& other = *reading(session, kGiB).add_devices();
    other.set_uuid(std::string(16, 'x'));
    other.set_uuid_text("GPU-other");
    auto management = management_of(session.trace());
    REQUIRE(management.has_value());
    CHECK(management->devices_size() == 1);
    CHECK(management->other_devices() == 1);
    session.trace().readings.clear();
    session.trace().session.mutable_recording()->set_nvml("off");
    CHECK(!management_of(session.trace()).has_value());
    session.trace().session.mutable_recording()->set_nvml("the management library cannot be loaded: no");
    management = management_of(session.trace());
    REQUIRE(management.has_value());
    CHECK(management->devices().empty());
}
