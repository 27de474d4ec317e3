// Failures in processes whose framework has an allocator of its own: what it held, what it refused by itself.
// Layouts follow public reports of PyTorch's out-of-memory failures, made smaller.
#include <doctest/doctest.h>

#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::test;
using report::Counterfactual;
using report::Quantity;
using report::Verdict;
using wire::Kind;

namespace {

constexpr std::uint64_t kFirst = 0x7f0000000000;
constexpr char kDomain[] = "framework's allocator";

// Tells of blocks as PyTorch does, with its totals.
class Allocator {
  public:
    explicit Allocator(ProcessBuilder& p) : p_(p) {}
    void segment(std::uint64_t address, std::uint64_t bytes) {
        p_.linear(address, bytes);
        reserved_ += bytes;
    }
    void block(std::uint64_t address, std::uint64_t bytes) {
        allocated_ += bytes;
        p_.call(Kind::kBlockAcquired, address, bytes, allocated_, reserved_);
    }
    void release(std::uint64_t address, std::uint64_t bytes) {
        allocated_ -= bytes;
        p_.call(Kind::kBlockReleased, address, bytes, allocated_, reserved_);
    }
    void give_up(std::uint64_t bytes) { p_.call(Kind::kBlockRefused, 0, bytes, allocated_, reserved_); }

  private:
    ProcessBuilder& p_;
    std::uint64_t allocated_ = 0;
    std::uint64_t reserved_ = 0;
};

// `count` segments of 256 MiB, each with one live block of 144 MiB: a gap of 112 MiB is left in each.
void segments_with_gaps(Allocator& torch, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        torch.segment(kFirst + i * 256 * kMiB, 256 * kMiB);
        torch.block(kFirst + i * 256 * kMiB, 144 * kMiB);
    }
}

const Quantity& of_framework(const report::Explanation& e, Quantity::Definition definition) {
    for (const auto& quantity : e.audit()) {
        if (quantity.definition() == definition && quantity.scope().domain() == kDomain) return quantity;
    }
    FAIL("not in the audit: " << Quantity::Definition_Name(definition));
    return e.audit(0);
}

}  // namespace

TEST_CASE("gaps between live blocks would have been enough, each alone was not: allocator fragmentation") {
    SessionBuilder session;
    auto& p = session.process(5 * kGiB);
    Allocator torch(p);
    segments_with_gaps(torch, 16);
    p.linear(0, kGiB + 512 * kMiB).failed().snapshot(kGiB - 64 * kMiB, 5 * kGiB).snapshot_end();
    torch.give_up(kGiB + 512 * kMiB);
    const auto e = explained(session);
    CHECK(e.id() == "failure:2");
    CHECK(e.of_failures() == 2);
    CHECK(e.verdict().cause() == Verdict::allocator_external_fragmentation);
    CHECK(e.verdict().removed(0) == "with_framework_gaps_merged");
    CHECK(row(e, "with_framework_segments_returned").outcome() == Counterfactual::does_not_fit);
    CHECK(of_framework(e, Quantity::live).low_bytes() == 16 * 144 * kMiB);
    CHECK(of_framework(e, Quantity::cached).low_bytes() == 16 * 112 * kMiB);
    CHECK(of_framework(e, Quantity::reclaimable).high_bytes() == 0);
    const report::Domain& gaps =
        domain(e, "framework's allocator: large segments, of a stream that is not known");
    CHECK(gaps.free_sum().low_bytes() == 16 * 112 * kMiB);
    CHECK(gaps.free_largest().low_bytes() == 112 * kMiB);
    CHECK(gaps.external_ratio() == doctest::Approx(1.0 - 1.0 / 16));
    CHECK(e.request().result_name() ==
          "given up by the framework's allocator, after the driver answered CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(e.request().needed().low_bytes() == kGiB + 512 * kMiB);
    CHECK(says(e, "expandable_segments:True"));
    CHECK(says(e, "max_split_size_mb"));
}

TEST_CASE("all that is cached and all that nobody holds together are less than the request: capacity") {
    SessionBuilder session;
    auto& p = session.process(5 * kGiB);
    Allocator torch(p);
    segments_with_gaps(torch, 16);
    p.linear(0, 3 * kGiB).failed().snapshot(kGiB - 64 * kMiB, 5 * kGiB).snapshot_end();
    torch.give_up(3 * kGiB);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(row(e, "with_framework_gaps_merged").outcome() == Counterfactual::does_not_fit);
    CHECK_FALSE(says(e, "expandable_segments"));
}

TEST_CASE("another library's call fails while the allocator keeps wholly empty segments: empty_cache") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 2 * kGiB);
    torch.block(kFirst, 2 * kGiB);
    torch.release(kFirst, 2 * kGiB);
    torch.segment(kFirst + 2 * kGiB, kGiB);
    torch.block(kFirst + 2 * kGiB, kGiB);
    p.linear(0, 2 * kGiB).failed().snapshot(kGiB - 64 * kMiB, 4 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "cached_by_allocator");
    CHECK(of_framework(e, Quantity::reclaimable).low_bytes() == 2 * kGiB);
    CHECK(row(e, "with_framework_segments_returned").outcome() == Counterfactual::fits);
    CHECK(says(e, "torch.cuda.empty_cache()"));
}

TEST_CASE("what is left empty when the allocator gives up belongs to a private pool") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, kGiB + 512 * kMiB);
    torch.block(kFirst, kGiB + 512 * kMiB);
    torch.release(kFirst, kGiB + 512 * kMiB);
    torch.segment(kFirst + 2 * kGiB, kGiB);
    torch.block(kFirst + 2 * kGiB, kGiB);
    p.linear(0, 2 * kGiB).failed().snapshot(kGiB, 4 * kGiB).snapshot_end();
    torch.give_up(2 * kGiB);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "pool_ownership");
    CHECK(says(e, "graph_pool_handle"));
}

TEST_CASE("blocks that wait for other streams would have been enough: pending frees") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 2 * kGiB);
    torch.block(kFirst, 2 * kGiB);
    p.call(Kind::kBlockWaits, 0, 0, 0xe1, 0x66);
    torch.release(kFirst, 2 * kGiB);
    p.linear(0, 2 * kGiB).failed().snapshot(kGiB, 4 * kGiB).snapshot_end();
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::other_constraint);
    CHECK(e.verdict().constraint() == "pending_frees");
    CHECK(of_framework(e, Quantity::pending_free).low_bytes() == 2 * kGiB);
    CHECK(says(e, "record_stream"));
}

TEST_CASE("it gave up without asking the driver, which had the memory: a limit of its own") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 2 * kGiB);
    torch.block(kFirst, 2 * kGiB);
    // PyTorch asks for the device's numbers itself before it gives up.
    p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
    torch.give_up(kGiB);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::commitment_limit);
    CHECK(e.verdict().constraint() == "process_fraction");
    CHECK(e.verdict().removed(0) == "with_process_fraction_lifted");
    CHECK(row(e, "with_process_fraction_lifted").outcome() == Counterfactual::fits);
    CHECK(row(e, "as_it_was").outcome() == Counterfactual::does_not_fit);
    CHECK(audit(e, Quantity::device_free).low_bytes() == 5 * kGiB);
    CHECK(says(e, "set_per_process_memory_fraction"));
}

TEST_CASE("the same where the device's numbers, or records, are missing: undetermined") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 2 * kGiB);
    torch.block(kFirst, 2 * kGiB);
    SUBCASE("nobody asked the device") { torch.give_up(kGiB); }
    SUBCASE("the allocator counts otherwise") {
        p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
        p.call(Kind::kBlockRefused, 0, kGiB, 3 * kGiB, 4 * kGiB);
        p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
        p.call(Kind::kBlockRefused, 0, kGiB, 3 * kGiB, 4 * kGiB);
    }
    SUBCASE("records were lost") {
        p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
        torch.give_up(kGiB);
        p.loss().set_others(3);
    }
    SUBCASE("the driver's refusal may be what was lost") {
        p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
        torch.give_up(kGiB);
        p.loss().set_acquisitions(1);
        (*p.loss().mutable_records_by_kind())[static_cast<std::uint32_t>(Kind::kHandleCreated)] = 1;
    }
    SUBCASE("calls escaped the recording") {
        p.free(0x1234000);
        p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
        torch.give_up(kGiB);
    }
    SUBCASE("what it holds of the driver is not known") {
        p.call(Kind::kBlockAcquired, 0x9000, kMiB, wire::kTotalNotTold, wire::kTotalNotTold);
        p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
        p.call(Kind::kBlockRefused, 0, kGiB, wire::kTotalNotTold, wire::kTotalNotTold);
    }
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::undetermined);
    CHECK(e.verdict().deciding_measurement().find("memory_fraction") != std::string::npos);
}

TEST_CASE("a lost record that is no refusal of the driver leaves the limit certain") {
    SessionBuilder session;
    auto& p = session.process(8 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 2 * kGiB);
    torch.block(kFirst, 2 * kGiB);
    p.call(Kind::kDeviceMemory, 5 * kGiB, 8 * kGiB, kContext);
    torch.give_up(kGiB);
    p.loss().set_others(1);
    (*p.loss().mutable_records_by_kind())[static_cast<std::uint32_t>(Kind::kMark)] = 1;
    CHECK(explained(session).verdict().constraint() == "process_fraction");
}

TEST_CASE("expandable segments: the driver refused one handle, the block needs all that were missing") {
    constexpr std::uint64_t kHandle = 20 * kMiB;  // PyTorch's public rule for large blocks
    SessionBuilder session;
    auto& p = session.process(1536 * kMiB);
    p.reserve(kFirst, 8 * kGiB);
    for (std::uint64_t i = 0; i < 60; ++i)
        p.create(100 + i, kHandle).map(kFirst + i * kHandle, kHandle, 100 + i);
    // It leaves a gap of 10 MiB at the end.
    p.call(Kind::kBlockAcquired, kFirst, 1190 * kMiB, 1190 * kMiB, 1200 * kMiB);
    // 400 MiB, of which the gap may hold 10: 20 handles in any case, of which 5 are there.
    for (std::uint64_t i = 0; i < 5; ++i) p.create(200 + i, kHandle);
    p.create(0, kHandle).failed().snapshot(10 * kMiB, 1536 * kMiB).snapshot_end();
    for (std::uint64_t i = 0; i < 5; ++i) p.release(200 + i);
    SUBCASE("its allocator gave the block up") {
        p.call(Kind::kBlockRefused, 0, 400 * kMiB, 1190 * kMiB, 1200 * kMiB);
        const auto e = explained(session);
        CHECK(e.request().needed().low_bytes() == 300 * kMiB);
        CHECK(e.request().needed().high_bytes() == 300 * kMiB);
        // Nobody holds 10 MiB, no record explains 226 MiB, 10 MiB lie in the gap: enough for the one handle.
        CHECK(row(e, "without_unattributed").outcome() == Counterfactual::does_not_fit);
        CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    }
    SUBCASE("gaps would spare handles, if the block begins in one") {
        p.call(Kind::kBlockReleased, kFirst, 1190 * kMiB, 0, 1200 * kMiB);
        p.call(Kind::kBlockAcquired, kFirst, 1000 * kMiB, 1000 * kMiB, 1200 * kMiB);
        p.create(0, kHandle).failed().snapshot(10 * kMiB, 1536 * kMiB).snapshot_end();
        p.call(Kind::kBlockRefused, 0, 400 * kMiB, 1000 * kMiB, 1200 * kMiB);
        const auto e = explained(session);
        CHECK(e.request().needed().low_bytes() == 200 * kMiB);
        CHECK(e.request().needed().high_bytes() == 400 * kMiB);
    }
    SUBCASE("the numbers that the program asked for are of after it gave those handles back") {
        p.create(0, kHandle).failed();
        p.call(Kind::kDeviceMemory, 110 * kMiB, 1536 * kMiB, kContext);
        p.call(Kind::kBlockRefused, 0, 400 * kMiB, 1190 * kMiB, 1200 * kMiB);
        const auto e = explained(session);
        CHECK(e.request().needed().low_bytes() == 400 * kMiB);
        CHECK(e.request().needed().high_bytes() == 400 * kMiB);
        CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    }
    SUBCASE("a later handle of the size is not the same request that succeeded") {
        p.call(Kind::kBlockRefused, 0, 400 * kMiB, 1190 * kMiB, 1200 * kMiB);
        p.create(300, kHandle);
        const auto e = explained(session);
        for (const std::string& fact : e.verdict().contributing())
            CHECK(fact.find("same request succeeded") == std::string::npos);
    }
    SUBCASE("it gave the block up by itself: a segment or handles, and gaps may spare some") {
        p.thread(2).call(Kind::kDeviceMemory, 410 * kMiB, 1536 * kMiB, kContext);
        p.call(Kind::kBlockRefused, 0, 410 * kMiB, 1190 * kMiB, 1200 * kMiB);
        const auto e = explained(session);
        CHECK(e.request().needed().low_bytes() == 400 * kMiB);
        CHECK(e.request().needed().high_bytes() == 420 * kMiB);
        CHECK(e.verdict().cause() == Verdict::undetermined);
    }
}

TEST_CASE("the report says of each failure what explain says, also where their moments run backward") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    auto& neighbour = session.process(4 * kGiB);
    SUBCASE("the neighbour holds nothing") {}
    SUBCASE("the neighbour gives back in between") { neighbour.linear(0x30000000, kGiB); }
    Allocator torch(p);
    segments_with_gaps(torch, 4);
    p.linear(0, 2560 * kMiB).failed().snapshot(512 * kMiB, 4 * kGiB).snapshot_end();
    if (!session.trace().events[1].empty()) neighbour.free(0x30000000);
    // Another thread takes memory and fails in its turn, before the first one's allocator gives up.
    p.thread(2).linear(0x10000000, kGiB);
    p.linear(0, 3 * kGiB).failed().snapshot(256 * kMiB, 4 * kGiB).snapshot_end();
    p.thread(1);
    torch.give_up(2560 * kMiB);
    const report::Report report = analysis::make_report(session.trace());
    REQUIRE(report.failures_size() == 3);
    for (std::uint32_t number = 1; number <= 3; ++number) {
        CAPTURE(number);
        const auto e = analysis::explain_failure(session.trace(), number);
        CHECK(report.failures(static_cast<int>(number) - 1).verdict().SerializeAsString() ==
              e.verdict().SerializeAsString());
    }
    // What was replayed again is in no time line twice.
    for (const report::Timeline& timeline : report.timelines()) {
        std::uint64_t before = 0;
        for (const report::TimelinePoint& point : timeline.points()) {
            CHECK(point.time_ns() >= before);
            before = point.time_ns();
        }
    }
}

TEST_CASE("of an allocator's log it is not known what it holds of the driver: never zero") {
    SessionBuilder session;
    auto& p = session.process();
    const auto told = [&](Kind kind, std::uint64_t address, std::uint64_t bytes) {
        p.call(kind, address, bytes, wire::kTotalNotTold, wire::kTotalNotTold);
    };
    told(Kind::kBlockAcquired, 0x7000, 4096);
    told(Kind::kBlockReleased, 0x7000, 4096);  // nothing of it is left
    told(Kind::kBlockRefused, 0, kGiB);
    const auto e = explained(session);
    CHECK(of_framework(e, Quantity::live).high_bytes() == 0);
    for (const auto definition : {Quantity::charged, Quantity::cached, Quantity::reclaimable}) {
        CHECK(of_framework(e, definition).low_bytes() == 0);
        CHECK(!of_framework(e, definition).has_high_bytes());
    }
    const report::Report report = analysis::make_report(session.trace());
    std::size_t seen = 0;
    for (const report::Peak& peak : report.peaks()) {
        if (peak.quantity().scope().domain() != kDomain) continue;
        ++seen;
        if (peak.quantity().definition() == Quantity::live)
            CHECK(peak.quantity().low_bytes() == 4096);
        else
            CHECK(peak.quantity().evidence() == Quantity::unknown);
    }
    CHECK(seen == 2);
}

TEST_CASE("a limit of its own, and a device that has not the memory either: capacity") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 3 * kGiB);
    torch.block(kFirst, 3 * kGiB);
    p.call(Kind::kDeviceMemory, kGiB - 128 * kMiB, 4 * kGiB, kContext);
    torch.give_up(kGiB);
    const auto e = explained(session);
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(e.verdict().summary().find("by itself") != std::string::npos);
}

TEST_CASE("the driver's second refusal has no snapshot: the numbers that the allocator asked for stand in") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 3 * kGiB);
    torch.block(kFirst, 3 * kGiB);
    p.linear(0, 2 * kGiB).failed().snapshot(kGiB - 128 * kMiB, 4 * kGiB).snapshot_end();
    p.linear(0, 2 * kGiB).failed();
    p.call(Kind::kDeviceMemory, kGiB - 256 * kMiB, 4 * kGiB, kContext);
    torch.give_up(2 * kGiB);
    const auto e = explained(session);
    CHECK(e.id() == "failure:3");
    CHECK(e.verdict().cause() == Verdict::capacity_exhaustion);
    CHECK(audit(e, Quantity::device_free).low_bytes() == kGiB - 256 * kMiB);
    CHECK(audit(e, Quantity::device_free).reason().find("asked for") != std::string::npos);
}

TEST_CASE(
    "a gap that seems to serve the block: which pool it belongs to, or what keeps it whole, is not known") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 3 * kGiB);
    torch.block(kFirst, kGiB);
    p.linear(0, kGiB + 512 * kMiB).failed().snapshot(kGiB - 128 * kMiB, 4 * kGiB).snapshot_end();
    SUBCASE("for the same stream, as far as is known") {
        torch.give_up(kGiB + 512 * kMiB);
        const auto e = explained(session);
        CHECK(e.verdict().cause() == Verdict::undetermined);
        CHECK(e.verdict().deciding_measurement().find("segment_pool_id") != std::string::npos);
    }
    SUBCASE("for another stream: its pieces cannot serve this one") {
        SessionBuilder other;
        auto& q = other.process(4 * kGiB);
        Allocator again(q);
        q.call(Kind::kBlockStream, 0, 0, 0x55);
        again.segment(kFirst, 3 * kGiB);
        again.block(kFirst, kGiB);
        q.call(Kind::kBlockStream, 0, 0, 0x66);
        q.linear(0, kGiB + 512 * kMiB).failed().snapshot(kGiB - 128 * kMiB, 4 * kGiB).snapshot_end();
        again.give_up(kGiB + 512 * kMiB);
        const auto e = explained(other);
        CHECK(e.verdict().cause() == Verdict::undetermined);
        CHECK(e.verdict().summary().find("of another stream") != std::string::npos);
        CHECK(e.verdict().deciding_measurement().find("segment_pool_id and stream") != std::string::npos);
    }
}

TEST_CASE("the report lists what an allocator gave up, and its peaks") {
    SessionBuilder session;
    auto& p = session.process(4 * kGiB);
    Allocator torch(p);
    torch.segment(kFirst, 3 * kGiB);
    torch.block(kFirst, 2 * kGiB);
    torch.release(kFirst, 2 * kGiB);
    p.call(Kind::kDeviceMemory, kGiB - 128 * kMiB, 4 * kGiB, kContext);
    torch.give_up(3 * kGiB);
    const report::Report report = analysis::make_report(session.trace());
    REQUIRE(report.failures_size() == 1);
    CHECK(report.failures(0).request() == "a block of 3 GiB out of its framework's allocator");
    CHECK(report.failures(0).result_name() == "given up by the framework's allocator");
    std::uint64_t live = 0, reserved = 0;
    for (const report::Peak& peak : report.peaks()) {
        if (peak.quantity().scope().domain() != kDomain) continue;
        (peak.quantity().definition() == Quantity::live ? live : reserved) = peak.quantity().low_bytes();
    }
    CHECK(live == 2 * kGiB);
    CHECK(reserved == 3 * kGiB);
}
