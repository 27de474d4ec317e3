// Allocations tried in place after a failure: what they bound, and what they decide.
#include "analysis/probes.h"

#include <doctest/doctest.h>

#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::ProbeMechanism;
using V = report::Verdict;

namespace {

constexpr std::uint64_t kTotal = 8 * kGiB;
constexpr std::uint16_t kRefused = 2;  // CUDA_ERROR_OUT_OF_MEMORY

// A handle of 1 GiB is refused though 1.5 GiB are said to be there.
ProcessBuilder& refused_handle(SessionBuilder& session) {
    auto& p = session.process();
    return p.create(1, 6 * kGiB).create(2, kGiB).failed().snapshot(3 * kGiB / 2, kTotal).snapshot_end();
}

}  // namespace

TEST_CASE("a grant is the lower end of its own mechanism, a refusal its upper end, and of no other") {
    SessionBuilder session;
    auto& p = refused_handle(session);
    p.probe(ProbeMechanism::kDirect, 512 * kMiB, 0).probe(ProbeMechanism::kDirect, 768 * kMiB, kRefused);
    p.probe(ProbeMechanism::kStitched, 896 * kMiB, 0)
        .probe(ProbeMechanism::kHandleMinimum, 256 * kMiB, kRefused);
    p.probe(ProbeMechanism::kHost, 64 * kMiB, 0).probes_end();
    const auto e = explained(session);
    CHECK(bound(e, "direct").largest().low_bytes() == 512 * kMiB);
    CHECK(bound(e, "direct").largest().high_bytes() == 768 * kMiB - 1);
    // The trial maps nothing: of a mapped range it says something only where addresses were tried too.
    CHECK(bound(e, "stitched").largest().low_bytes() == 0);
    CHECK(bound(e, "segmented").largest().low_bytes() == 896 * kMiB);
    CHECK(bound(e, "stitched").largest().high_bytes() == 3 * kGiB / 2);  // device-free memory still
    CHECK(bound(e, "vmm").largest().low_bytes() == 0);
    CHECK(bound(e, "vmm").largest().high_bytes() == 256 * kMiB - 1);
    CHECK(bound(e, "host").largest().low_bytes() == 64 * kMiB);
    CHECK_FALSE(bound(e, "host").largest().has_high_bytes());
    CHECK(e.probes_size() == 5);
    CHECK(e.probes(1).result_name() == "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(e.probes_note().find("64 MiB held at once") != std::string::npos);
    CHECK(e.of_failures() == 1);  // refused trials are no failures of the program
}

TEST_CASE("handles side by side: no more than the handles and the addresses that were granted") {
    SessionBuilder session;
    auto& p = refused_handle(session);
    p.probe(ProbeMechanism::kAddresses, 640 * kMiB, 0).probe(ProbeMechanism::kStitched, 896 * kMiB, 0);
    p.probes_end();
    const auto e = explained(session);
    CHECK(bound(e, "stitched").largest().low_bytes() == 640 * kMiB);
    CHECK(bound(e, "stitched").low_evidence().find("though not mapped") != std::string::npos);
    CHECK(bound(e, "segmented").largest().low_bytes() == 896 * kMiB);
}

TEST_CASE("one handle refused where as many bytes came in small ones: physical fragmentation") {
    SessionBuilder session;
    auto& p = refused_handle(session);
    p.probe(ProbeMechanism::kHandleMinimum, kGiB, kRefused)
        .probe(ProbeMechanism::kStitched, kGiB, 0)
        .probes_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == V::physical_external_fragmentation);
    CHECK(e.verdict().summary().find("not in one piece") != std::string::npos);
    CHECK(row(e, "with_physical_merged").outcome() == report::Counterfactual::fits);
}

TEST_CASE("a linear request is no handle: its own kind has to be refused, and addresses to be had") {
    for (const bool addresses : {true, false}) {
        SessionBuilder session;
        auto& p = session.process();
        p.create(1, 6 * kGiB).linear(0, kGiB).failed().snapshot(3 * kGiB / 2, kTotal).snapshot_end();
        p.probe(ProbeMechanism::kDirect, kGiB, kRefused)
            .probe(ProbeMechanism::kHandleMinimum, kGiB, kRefused);
        p.probe(ProbeMechanism::kStitched, kGiB, 0);
        p.probe(ProbeMechanism::kAddresses, kGiB, addresses ? 0 : kRefused).probes_end();
        const auto e = explained(session);
        if (addresses) {
            CHECK(e.verdict().cause() == V::physical_external_fragmentation);
        } else {
            CHECK(e.verdict().cause() == V::other_constraint);
            CHECK(e.verdict().constraint() == "address_space");
        }
    }
}

TEST_CASE("the smallest handles reach less than what is said to be there") {
    SessionBuilder session;
    auto& p = refused_handle(session);
    p.probe(ProbeMechanism::kHandleMinimum, kGiB, kRefused).probe(ProbeMechanism::kStitched, 128 * kMiB, 0);
    p.probe(ProbeMechanism::kStitched, 130 * kMiB, kRefused).probes_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == V::other_constraint);
    CHECK(e.verdict().constraint() == "less_than_said");
    CHECK(e.verdict().summary().find("128 MiB") != std::string::npos);
}

TEST_CASE("the very request is granted right after: whatever refused it was gone") {
    SessionBuilder session;
    auto& p = refused_handle(session);
    p.probe(ProbeMechanism::kHandleMinimum, kGiB, 0).probes_end();
    const auto e = explained(session);
    CHECK(e.verdict().constraint() == "gone_at_once");
    CHECK(bound(e, "vmm").largest().low_bytes() == 0);
    CHECK(bound(e, "vmm").largest().high_bytes() == kGiB - 1);
}

TEST_CASE("what other threads did in between takes a trial its word") {
    SessionBuilder session;
    auto& p = refused_handle(session);
    p.thread(2).release(1).thread(1).probe(ProbeMechanism::kStitched, kGiB, 0);
    p.probe(ProbeMechanism::kDirect, 64 * kMiB, kRefused);
    p.thread(2)
        .linear(0x10000000, kMiB)
        .thread(1)
        .probe(ProbeMechanism::kDirect, 32 * kMiB, kRefused)
        .probes_end();
    const auto e = explained(session);
    CHECK(bound(e, "stitched").largest().low_bytes() == 0);
    CHECK(bound(e, "direct").largest().high_bytes() == 64 * kMiB - 1);  // a release does not make less
}

TEST_CASE("trials of another failure, and after the program went on, are not of this one") {
    SessionBuilder session;
    auto& p = refused_handle(session);
    p.create(3, 2 * kMiB).probe(ProbeMechanism::kDirect, kMiB, 0).probes_end();
    CHECK(explained(session).probes_size() == 0);
}

TEST_CASE("how the trials ended is said") {
    for (const auto& [end, words] : {std::pair{wire::ProbesEnd::kTimeLimit, "time limit"},
                                     std::pair{wire::ProbesEnd::kCapturing, "capture was running"},
                                     std::pair{wire::ProbesEnd::kNoContext, "no context"},
                                     std::pair{wire::ProbesEnd::kNotUndone, "could not be undone"}}) {
        SessionBuilder session;
        refused_handle(session).probes_end(end);
        CHECK(explained(session).probes_note().find(words) != std::string::npos);
    }
}
