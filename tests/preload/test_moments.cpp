// Samples, failure snapshots and probes, of a program (moments.cpp) on the simulated driver. What is expected
// is what the program itself was told by the driver at that moment, or found out by its own search.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "session.h"

using namespace fragscope;
using fragscope::preload_test::Options;
using fragscope::preload_test::Outcome;
using fragscope::preload_test::paths;
using fragscope::preload_test::Sent;
using fragscope::preload_test::Session;
using wire::Kind;
using wire::ProbeMechanism;
using wire::ProbesEnd;
using wire::SampleReason;

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

struct Ran {
    Outcome outcome;
    std::map<std::string, std::uint64_t> said;
    Sent sent;
};

Ran run(Session& session, std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
    arguments.insert(arguments.begin(), paths().moments);
    variables.push_back("LD_LIBRARY_PATH=" + paths().simulated_driver);
    Ran ran;
    ran.outcome = session.run(arguments, variables);
    std::istringstream lines(ran.outcome.output);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t space = line.rfind(' ');
        REQUIRE(space != std::string::npos);
        ran.said[line.substr(0, space)] = std::stoull(line.substr(space + 1));
    }
    const auto all = session.sent();
    REQUIRE(all.size() == 1);
    ran.sent = all[0];
    return ran;
}

bool has(const wire::Record& record, unsigned flags) { return (record.flags & flags) == flags; }

struct Sample {
    SampleReason reason;
    wire::Record memory;
    std::string function;
    std::uint64_t sequence;
};

// All samples. Each is one kDeviceMemory, one kGraphMemory and an end in one piece: these programs have one
// thread.
std::vector<Sample> samples(const Sent& sent) {
    std::vector<Sample> all;
    std::size_t begun = 0, graphs = 0;
    wire::Record memory{};
    for (const wire::Record& record : sent.records) {
        if (!has(record, wire::kSample)) {
            CHECK(begun == 0);
            continue;
        }
        CHECK(has(record, wire::kByShim));
        if (record.kind == Kind::kDeviceMemory) {
            memory = record;
            ++begun;
        }
        graphs += record.kind == Kind::kGraphMemory;
        if (record.kind != Kind::kSampleEnd) continue;
        CHECK(begun == 1);
        CHECK(graphs == 1);
        begun = graphs = 0;
        all.push_back({static_cast<SampleReason>(record.address), memory, sent.functions.at(record.function),
                       record.sequence});
    }
    return all;
}

std::vector<Sample> samples(const Sent& sent, SampleReason reason) {
    std::vector<Sample> found;
    for (const Sample& sample : samples(sent))
        if (sample.reason == reason) found.push_back(sample);
    return found;
}

Options with_probes() {
    Options options;
    options.probe_on_oom = true;
    options.probe_ns = 60'000'000'000;
    options.ring_records = 1u << 14;
    return options;
}

// A device of 512 MiB whose memory comes in pieces, and 3 GiB of addresses.
const std::vector<std::string> kSmallDevice = {
    "FRAGSCOPE_SIM_CAPACITY=512MiB", "FRAGSCOPE_SIM_CONTEXT_OVERHEAD=32MiB",
    "FRAGSCOPE_SIM_CONTIGUITY=all",  "FRAGSCOPE_SIM_VA_BYTES=3GiB",
    "FRAGSCOPE_SIM_BACKING=off",     "FRAGSCOPE_SIM_GRANULARITY_RECOMMENDED=8MiB"};

std::vector<std::string> small_device(std::vector<std::string> more = {}) {
    more.insert(more.end(), kSmallDevice.begin(), kSmallDevice.end());
    return more;
}

struct Found {
    std::uint64_t granted = 0, refused = UINT64_MAX, attempts = 0;
};

// What the probes after the first failed call say, by mechanism.
std::map<ProbeMechanism, Found> probes(const Sent& sent) {
    std::map<ProbeMechanism, Found> all;
    const auto ends = sent.of(Kind::kProbesEnded);
    REQUIRE(!ends.empty());
    for (const wire::Record& record : sent.of(Kind::kProbe)) {
        CHECK(has(record, wire::kByShim));
        if (record.object != ends[0].object) continue;
        Found& found = all[static_cast<ProbeMechanism>(record.address)];
        ++found.attempts;
        if (record.result == 0)
            found.granted = std::max(found.granted, record.bytes);
        else
            found.refused = std::min(found.refused, record.bytes);
    }
    return all;
}

ProbesEnd reason(const wire::Record& end) { return static_cast<ProbesEnd>(end.address); }

// How often each operation stands in a ledger of the simulated driver.
std::map<std::string, int> ledger_of(const std::string& file) {
    std::map<std::string, int> counts;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        std::istringstream fields(line);
        std::string time, process, thread, operation;
        fields >> time >> process >> thread >> operation;
        ++counts[operation];
    }
    return counts;
}

}  // namespace

TEST_CASE("a context is sampled when it is first seen and before it ends") {
    for (const char* created : {"0", "1"}) {
        CAPTURE(created);
        Session session;
        const Ran ran = run(session, {"life", created});
        REQUIRE(ran.outcome.status == 0);
        const auto all = samples(ran.sent);
        REQUIRE(all.size() == 2);
        CHECK(all[0].reason == SampleReason::kStart);
        CHECK(all[0].memory.address == ran.said.at("start"));
        CHECK(all[1].reason == SampleReason::kContextEnds);
        CHECK(all[1].memory.address == ran.said.at("end"));
        // Part of the state before the end.
        const Kind end = created[0] == '1' ? Kind::kContextDestroyed : Kind::kPrimaryReleased;
        REQUIRE(ran.sent.of(end).size() == 1);
        CHECK(all[1].sequence < ran.sent.of(end)[0].sequence);
        // Total less context less allocation: the books add up to what the device says.
        CHECK(all[0].memory.address - all[1].memory.address == 6 * kMiB);  // 5 MiB in pages of 2 MiB
    }
}

TEST_CASE("the end of the process is sampled, unless it may be in the middle of something") {
    Session session;
    const Ran ran = run(session, {"to-the-end"});
    CHECK(ran.outcome.status == 0);
    CHECK(ran.said.at("child") == 0);
    const auto ends = samples(ran.sent, SampleReason::kEnd);
    REQUIRE(ends.size() == 1);
    CHECK(ends[0].memory.address == ran.said.at("end"));
    CHECK(ends[0].function == "exit");

    Session handler_session;
    const Ran handled = run(handler_session, {"end-in-handler"});
    CHECK(handled.outcome.status == 0);
    CHECK(samples(handled.sent, SampleReason::kStart).size() == 1);
    CHECK(samples(handled.sent, SampleReason::kEnd).empty());
}

TEST_CASE("samples by time come between calls and not more often than they may") {
    Options options;
    options.sample_ns = 2'000'000;
    options.ring_records = 1u << 16;
    Session session(options);
    const Ran ran = run(session, {"churn", "4096", "300"});
    REQUIRE(ran.outcome.status == 0);
    const auto timed = samples(ran.sent, SampleReason::kTime);
    CHECK(!timed.empty());
    CHECK(timed.size() <= ran.said.at("milliseconds") / 2);

    Session never;
    CHECK(samples(run(never, {"churn", "4096", "10"}).sent, SampleReason::kTime).empty());
}

TEST_CASE("samples by bytes come once so many were acquired") {
    Options options;
    options.sample_bytes = 64 * kMiB;
    options.ring_records = 1u << 16;
    Session session(options);
    const Ran ran = run(session, {"churn", std::to_string(2 * kMiB), "300"});
    REQUIRE(ran.outcome.status == 0);
    std::uint64_t acquired = 0;
    std::size_t by_bytes = 0;
    for (const wire::Record& record : ran.sent.records) {
        if (record.kind == Kind::kLinearAcquired) acquired += record.bytes;
        if (record.kind != Kind::kSampleEnd) continue;
        if (static_cast<SampleReason>(record.address) == SampleReason::kBytes) {
            ++by_bytes;
            CHECK(acquired >= options.sample_bytes);
        }
        acquired = 0;
    }
    CHECK(by_bytes > 0);
    CHECK(samples(ran.sent, SampleReason::kTime).empty());
}

TEST_CASE("nothing is asked and nothing tried while a stream is captured") {
    Options options = with_probes();
    options.sample_ns = 100'000;
    options.sample_bytes = kMiB;
    Session session(options);
    const Ran ran = run(session, {"capture"});
    REQUIRE(ran.outcome.status == 0);
    CHECK(ran.said.at("result") == 2);
    CHECK(ran.said.at("unsafe") == 0);
    const auto failed = ran.sent.of(Kind::kFailureSnapshotEnd);
    REQUIRE(failed.size() == 1);
    CHECK(has(failed[0], wire::kCaptured));
    const auto ended = ran.sent.of(Kind::kProbesEnded);
    REQUIRE(ended.size() == 1);
    CHECK(reason(ended[0]) == ProbesEnd::kCapturing);
    CHECK(ran.sent.of(Kind::kProbe).empty());
    // Between the first and the last handle no sample; afterwards again.
    const auto handles = ran.sent.of(Kind::kHandleCreated);
    REQUIRE(handles.size() > 1);
    std::size_t after = 0;
    for (const Sample& sample : samples(ran.sent)) {
        CHECK((sample.sequence < handles.front().sequence || sample.sequence > failed[0].sequence));
        after += sample.sequence > failed[0].sequence && sample.reason != SampleReason::kEnd;
    }
    CHECK(after > 0);
}

TEST_CASE(
    "a failure is explained by all devices that have a context, and the program's contexts stay as they "
    "were") {
    Session session;
    const Ran ran = run(session, {"two-devices"});
    REQUIRE(ran.outcome.status == 0);
    CHECK(ran.said.at("result") == 2);
    CHECK(ran.said.at("second current") == 1);
    CHECK(ran.said.at("first below") == 1);
    CHECK(ran.said.at("nothing below") == 1);
    std::map<int, std::uint64_t> free_bytes;
    std::size_t graphs = 0;
    for (const wire::Record& record : ran.sent.records) {
        if (!has(record, wire::kSnapshot)) continue;
        if (record.kind == Kind::kDeviceMemory) free_bytes[record.device] = record.address;
        graphs += record.kind == Kind::kGraphMemory;
    }
    CHECK(free_bytes ==
          std::map<int, std::uint64_t>{{0, ran.said.at("device0")}, {1, ran.said.at("device1")}});
    CHECK(graphs == 2);
}

TEST_CASE("probes find what a search by the program itself finds") {
    Session session(with_probes());
    const Ran ran = run(session, {"exhausted"}, small_device());
    REQUIRE(ran.outcome.status == 0);
    CHECK(ran.said.at("result") == 2);
    CHECK(ran.said.at("same out") == 1);
    CHECK(ran.said.at("free unchanged") == 1);
    CHECK(ran.said.at("pool unchanged") == 1);
    auto found = probes(ran.sent);
    CHECK(reason(ran.sent.of(Kind::kProbesEnded)[0]) == ProbesEnd::kFinished);
    CHECK(found[ProbeMechanism::kDirect].granted == ran.said.at("direct"));
    CHECK(found[ProbeMechanism::kHandleMinimum].granted == ran.said.at("minimum"));
    CHECK(found[ProbeMechanism::kHandleRecommended].granted == ran.said.at("recommended"));
    CHECK(found[ProbeMechanism::kStitched].granted == ran.said.at("stitched"));
    CHECK(found[ProbeMechanism::kPool].granted == ran.said.at("pool"));
    CHECK(found[ProbeMechanism::kAddresses].granted == ran.said.at("addresses"));
    // Nothing limits these two but the probes' own limits: the device's capacity for one, a part of the free
    // host memory for the other.
    CHECK(found[ProbeMechanism::kManaged].granted == 512 * kMiB);
    CHECK(found[ProbeMechanism::kHost].granted > 0);
    // The search is tight: what was refused is one step above.
    for (const ProbeMechanism each :
         {ProbeMechanism::kDirect, ProbeMechanism::kHandleMinimum, ProbeMechanism::kStitched,
          ProbeMechanism::kPool, ProbeMechanism::kAddresses})
        CHECK(found[each].refused == found[each].granted + 2 * kMiB);
    // The holes are of different sizes: pieces together are more than the largest.
    CHECK(ran.said.at("stitched") > ran.said.at("minimum"));
}

TEST_CASE("probes leave nothing behind, by the driver's own ledger") {
    const std::string ledger = "/tmp/fragscope-moments-" + std::to_string(getpid());
    Session session(with_probes());
    const Ran ran = run(session, {"exhausted", "no"}, small_device({"FRAGSCOPE_SIM_LEDGER=" + ledger}));
    REQUIRE(ran.outcome.status == 0);
    auto counts = ledger_of(ledger);
    std::remove(ledger.c_str());
    std::size_t own = 0, own_freed = 0;
    for (const wire::Record& record : ran.sent.of(Kind::kLinearAcquired)) own += record.result == 0;
    own_freed = ran.sent.of(Kind::kLinearReleased).size();
    REQUIRE(own > own_freed);
    CHECK(counts["linear_alloc"] > static_cast<int>(own));
    CHECK(counts["linear_alloc"] - counts["linear_free"] == static_cast<int>(own - own_freed));
    for (const auto& [taken, given_back] :
         {std::pair("create", "release"), std::pair("reserve", "unreserve"),
          std::pair("managed_alloc", "managed_free"), std::pair("host_alloc", "host_free"),
          std::pair("pool_create", "pool_destroy")}) {
        CAPTURE(taken);
        CHECK(counts[taken] > 0);
        CHECK(counts[taken] == counts[given_back]);
    }
    // What the program is said to have done is what it did.
    CHECK(ran.sent.of(Kind::kHandleCreated).empty());
    CHECK(ran.sent.of(Kind::kReserved).empty());
    CHECK(ran.sent.of(Kind::kManagedAcquired).empty());
    CHECK(ran.sent.of(Kind::kPoolCreated).empty());
}

TEST_CASE("probes hold no more at once than they may") {
    Options options = with_probes();
    options.probe_bytes = 11 * kMiB;
    Session session(options);
    const Ran ran = run(session, {"exhausted", "no"}, small_device());
    REQUIRE(ran.outcome.status == 0);
    for (const wire::Record& record : ran.sent.of(Kind::kProbe)) {
        if (static_cast<ProbeMechanism>(record.address) == ProbeMechanism::kAddresses) continue;
        if (record.result == 0) CHECK(record.bytes <= options.probe_bytes);
    }
    const auto ends = ran.sent.of(Kind::kProbesEnded);
    REQUIRE(ends.size() == 1);
    CHECK(ends[0].extra == 10 * kMiB);  // five handles of 2 MiB
}

TEST_CASE("probes end when their time is up") {
    Options options = with_probes();
    options.probe_ns = 100'000'000;
    Session session(options);
    const Ran ran =
        run(session, {"exhausted", "no"}, small_device({"FRAGSCOPE_SIM_LATENCY_cuMemCreate=20ms"}));
    REQUIRE(ran.outcome.status == 0);
    const auto ends = ran.sent.of(Kind::kProbesEnded);
    REQUIRE(ends.size() == 1);
    CHECK(reason(ends[0]) == ProbesEnd::kTimeLimit);
    auto found = probes(ran.sent);
    CHECK(found[ProbeMechanism::kHandleMinimum].attempts >= 1);
    CHECK(found[ProbeMechanism::kHandleMinimum].attempts <= 5);
    CHECK(found.count(ProbeMechanism::kDirect) == 0);
}

TEST_CASE("what cannot be undone ends all probes of the process") {
    Session session(with_probes());
    const Ran ran = run(session, {"exhausted"}, small_device({"FRAGSCOPE_SIM_FAULT_cuMemRelease=999@1"}));
    const auto ends = ran.sent.of(Kind::kProbesEnded);
    REQUIRE(ends.size() > 1);
    for (const wire::Record& end : ends) CHECK(reason(end) == ProbesEnd::kNotUndone);
    for (const wire::Record& record : ran.sent.of(Kind::kProbe)) CHECK(record.object == ends[0].object);
}

TEST_CASE("without a context there are no probes, and without being asked for there are none at all") {
    Session session;
    const Ran ran = run(session, {"exhausted", "no"}, small_device());
    REQUIRE(ran.outcome.status == 0);
    CHECK(ran.sent.of(Kind::kFailureSnapshotEnd).size() == 1);
    CHECK(ran.sent.of(Kind::kProbe).empty());
    CHECK(ran.sent.of(Kind::kProbesEnded).empty());
}
