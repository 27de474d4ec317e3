// The largest request by each mechanism: which evidence stands at which end.
#include "analysis/bounds.h"

#include <doctest/doctest.h>

#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using wire::Kind;
using wire::ProbeMechanism;

namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

constexpr std::uint16_t kRefused = 2;  // CUDA_ERROR_OUT_OF_MEMORY

}  // namespace

TEST_CASE("each granularity has its own bound: a handle in whole units of the larger one witnesses both") {
    SessionBuilder session;
    auto& p = session.process();
    p.process().mutable_devices(0)->set_recommended_granularity_bytes(32 * kMiB);
    p.linear(0, kGiB).failed().snapshot(100 * kMiB, 8 * kGiB).snapshot_end();
    p.create(1, 32 * kMiB);
    auto e = explained(session);
    CHECK(bound(e, "vmm").largest().low_bytes() == 32 * kMiB);
    CHECK(bound(e, "vmm").largest().high_bytes() == 100 * kMiB);
    CHECK(bound(e, "vmm_recommended").largest().low_bytes() == 32 * kMiB);
    CHECK(bound(e, "vmm_recommended").largest().high_bytes() == 96 * kMiB);  // whole units of 32 MiB
    p.create(2, 34 * kMiB);
    e = explained(session);
    CHECK(bound(e, "vmm").largest().low_bytes() == 34 * kMiB);
    // 34 MiB are no whole units of 32 MiB: no witness for that granularity.
    CHECK(bound(e, "vmm_recommended").largest().low_bytes() == 0);
}

TEST_CASE("a refused handle bounds the granularity that it is of, and no other") {
    SessionBuilder session;
    auto& p = session.process();
    p.process().mutable_devices(0)->set_recommended_granularity_bytes(32 * kMiB);
    p.create(1, 34 * kMiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(bound(e, "vmm").largest().high_bytes() == 34 * kMiB - 1);
    CHECK(bound(e, "vmm").limited_by() == "the request that failed");
    CHECK(bound(e, "vmm_recommended").largest().high_bytes() == kGiB);
    CHECK(bound(e, "direct").largest().high_bytes() == kGiB);
}

TEST_CASE("a granted trial is no maximum, a refused one bounds its own mechanism only") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 64 * kMiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    p.probe(ProbeMechanism::kHandleMinimum, 16 * kMiB, 0).probe(ProbeMechanism::kDirect, 8 * kMiB, kRefused);
    p.probes_end();
    const auto e = explained(session);
    CHECK(bound(e, "vmm").largest().low_bytes() == 16 * kMiB);
    CHECK(bound(e, "vmm").largest().high_bytes() == kGiB);
    CHECK(bound(e, "direct").largest().high_bytes() == 8 * kMiB - 1);
    CHECK(bound(e, "direct").limited_by() == "a trial that was refused");
    CHECK(bound(e, "stitched").largest().high_bytes() == kGiB);
}

TEST_CASE(
    "compaction: no less than what fits without it, no more than nobody holds, and which memory could be "
    "moved") {
    SessionBuilder fixed;
    auto& p = fixed.process();
    p.linear(0x10000000, 6 * kGiB).linear(0, 2 * kGiB).failed().snapshot(kGiB, 8 * kGiB).snapshot_end();
    p.linear(0x20000000, 128 * kMiB);
    auto e = explained(fixed);
    CHECK(bound(e, "compaction").largest().low_bytes() == 128 * kMiB);
    CHECK(bound(e, "compaction").largest().high_bytes() == kGiB);
    CHECK(contains(bound(e, "compaction").largest().reason(), "nothing of this process can be moved"));

    SessionBuilder mapped;
    auto& q = mapped.process();
    q.create(1, 512 * kMiB).reserve(0x5000000000, 512 * kMiB).map(0x5000000000, 512 * kMiB, 1);
    q.linear(0x10000000, kGiB);
    q.linear(0, 512 * kMiB).failed().snapshot(64 * kMiB, 8 * kGiB).snapshot_end();
    e = explained(mapped);
    const std::string& reason = bound(e, "compaction").largest().reason();
    CHECK(contains(reason, "512 MiB in 1 mapped physical allocation could be moved"));
    CHECK(contains(reason, "1 GiB of linear memory and pools not"));
    CHECK(contains(reason, "no more than 64 MiB were held by nobody"));
}

TEST_CASE(
    "a framework's allocator that gave up: no more than its largest gap, and none is sure to be eligible") {
    SessionBuilder session;
    auto& p = session.process(5 * kGiB);
    constexpr std::uint64_t kFirst = 0x7f0000000000;
    std::uint64_t allocated = 0, reserved = 0;
    // Two segments of 256 MiB with one live block each: gaps of 112 MiB and 56 MiB.
    for (const std::uint64_t live : {144 * kMiB, 200 * kMiB}) {
        p.linear(kFirst + reserved, 256 * kMiB);
        reserved += 256 * kMiB;
        allocated += live;
        p.call(Kind::kBlockAcquired, kFirst + reserved - 256 * kMiB, live, allocated, reserved);
    }
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, 5 * kGiB).snapshot_end();
    p.call(Kind::kBlockRefused, 0, kGiB, allocated, reserved);
    const auto e = explained(session);
    CHECK(bound(e, "framework").largest().low_bytes() == 0);
    CHECK(bound(e, "framework").largest().high_bytes() == 112 * kMiB);
    // In several pieces: what nobody holds and all that it keeps in gaps.
    CHECK(bound(e, "segmented").largest().high_bytes() == 512 * kMiB + 168 * kMiB);
    CHECK(bound(e, "direct").largest().high_bytes() == 512 * kMiB);
}
