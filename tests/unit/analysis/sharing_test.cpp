// What a process holds without owning it, and what it owns without an address: arrays, memory of other
// processes and interfaces, multicast objects, graphs. Expectations come from the calls' documentation in
// cuda.h.
#include <doctest/doctest.h>

#include "analysis/charged.h"
#include "analysis/state.h"
#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

constexpr std::uint64_t kArray = 0xa0;

class Replay {
  public:
    Replay& operator()(Kind kind, std::uint64_t address, std::uint64_t bytes, std::uint64_t object,
                       std::uint64_t extra, unsigned flags = 0) {
        Event event;
        event.kind = kind;
        event.device = 0;
        event.address = {address};
        event.bytes = {bytes};
        event.object = {object};
        event.extra = extra;
        event.flags = static_cast<std::uint16_t>(flags);
        state.apply(event);
        return *this;
    }
    Replay& create(std::uint64_t handle, std::uint64_t bytes) {
        return (*this)(Kind::kHandleCreated, 0, bytes, handle, wire::pack_location(1, 0, 0));
    }
    Replay& release(std::uint64_t handle) { return (*this)(Kind::kHandleReleased, 0, 0, handle, 0); }
    Replay& free(std::uint64_t address) { return (*this)(Kind::kLinearReleased, address, 0, kContext, 0); }

    ProcessState state{{{0, 2 * kMiB}}, 4711};
};

}  // namespace

TEST_CASE("an array takes at least its texels, and goes with its context") {
    Replay r;
    r(Kind::kArrayCreated, kContext, 3 * kMiB, kArray, wire::pack_array(0, 0));
    CHECK(charged_arrays(r.state, 0) == Interval{3 * kMiB, std::nullopt});
    CHECK(charged_by_records(r.state, 0) == Interval{3 * kMiB, std::nullopt});
    r(Kind::kArrayCreated, 0xdd, kMiB, kArray + 1, wire::pack_array(0, 5));  // of another context
    r(Kind::kContextDestroyed, 0, 0, kContext, 0);
    CHECK(charged_arrays(r.state, 0) == Interval{kMiB, std::nullopt});
    r(Kind::kArrayReleased, 0, 0, kArray + 1, 0);
    CHECK(charged_arrays(r.state, 0) == Interval::exactly(0));
    CHECK(r.state.contradictions()() == 0);
}

TEST_CASE("a second name of an array has no bytes, and its release is in order") {
    Replay r;
    r(Kind::kArrayCreated, kContext, kMiB, kArray, wire::pack_array(0, 2));
    r(Kind::kArrayAliased, kArray, 0, kArray + 1, 0)(Kind::kArrayAliased, kArray, 0, kArray + 2, 0);
    CHECK(r.state.totals(0).array_texels == kMiB);
    r(Kind::kArrayReleased, 0, 0, kArray + 1, 0);
    CHECK(r.state.totals(0).array_texels == kMiB);
    r(Kind::kArrayReleased, 0, 0, kArray, 0);
    CHECK(r.state.totals(0).array_texels == 0);
    CHECK(r.state.contradictions()() == 0);
    r(Kind::kArrayReleased, 0, 0, kArray, 0);
    CHECK(r.state.contradictions().unknown_releases == 1);
    CHECK(r.state.totals(0).array_texels == 0);
}

TEST_CASE("a sparse array owns nothing; memory mapped behind it lives until the array lets go") {
    for (const std::uint32_t flag : {kArraySparse, kArrayDeferred}) {
        Replay r;
        r(Kind::kArrayCreated, kContext, 8 * kMiB, kArray, wire::pack_array(flag, 0));
        CHECK(charged_by_records(r.state, 0) == Interval::exactly(0));
        r.create(1, 4 * kMiB)(Kind::kArrayMapped, kArray, 0, 1, 7).release(1);
        CHECK(charged_handles(r.state, 0) == Interval::exactly(4 * kMiB));
        SUBCASE("the array is destroyed") {
            r(Kind::kArrayReleased, 0, 0, kArray, 0);
            CHECK(charged_handles(r.state, 0) == Interval::exactly(0));
            CHECK(r.state.physical().empty());
        }
        SUBCASE("a part is unmapped: the call names no memory") {
            r(Kind::kArrayMapped, kArray, 0, 0, 7);
            CHECK(charged_handles(r.state, 0) == Interval{0, 4 * kMiB});
            r(Kind::kArrayReleased, 0, 0, kArray, 0);
            CHECK(charged_handles(r.state, 0) == Interval::exactly(0));
            CHECK(r.state.physical().empty());
        }
        CHECK(r.state.contradictions()() == 0);
    }
}

TEST_CASE("memory of another process is opened and closed by count, and never in the books") {
    Replay r;
    r(Kind::kIpcOpened, 0x1000, 0, kContext, 42)(Kind::kIpcOpened, 0x1000, 0, kContext, 42);
    CHECK(charged_by_records(r.state, 0) == Interval::exactly(0));
    REQUIRE(r.state.foreign().addresses().size() == 1);
    CHECK(r.state.foreign().addresses().at(0x1000).references == 2);
    r(Kind::kIpcClosed, 0x1000, 0, 0, 0);
    CHECK(r.state.foreign().addresses().size() == 1);
    r(Kind::kIpcClosed, 0x1000, 0, 0, 0);
    CHECK(r.state.foreign().addresses().empty());
    CHECK(r.state.contradictions()() == 0);
    r(Kind::kIpcClosed, 0x1000, 0, 0, 0);
    CHECK(r.state.contradictions().unknown_releases == 1);
}

TEST_CASE("imported pointers and external buffers are released by cuMemFree, and give nothing back") {
    Replay r;
    r(Kind::kLinearAcquired, 0x90000000, kMiB, kContext, 0);
    r(Kind::kPoolImported, 0, 0, 0xb1, 1)(Kind::kPoolPointerImported, 0x1000, 0, 0xb1, 42);
    r(Kind::kExternalImported, 0, 8 * kMiB, 0xe1, 1)(Kind::kExternalMapped, 0x2000, 4 * kMiB, 0xe1, 0);
    r(Kind::kGraphicsPointer, 0x3000, kMiB, 0x61, 0);
    CHECK(charged_linear(r.state, 0) == Interval{kMiB, 2 * kMiB});
    CHECK(r.state.foreign().external_bytes() == 8 * kMiB);
    r.free(0x1000).free(0x2000)(Kind::kPoolPointerImported, 0x1000, 0, 0xb1, 42);
    r(Kind::kPoolReleased, 0x1000, 0, 0, 7);  // cuMemFreeAsync
    r(Kind::kGraphicsUnmapped, 0, 0, 0x61, 0)(Kind::kExternalReleased, 0, 0, 0xe1, 0);
    CHECK(charged_linear(r.state, 0) == Interval{kMiB, 2 * kMiB});
    CHECK(r.state.foreign().addresses().empty());
    CHECK(r.state.foreign().external_bytes() == 0);
    CHECK(r.state.empty_releases().of_foreign == 3);
    CHECK(r.state.contradictions()() == 0);
    CHECK(r.state.pools().at({0xb1}).imported);
    CHECK(r.state.pools().at({0xb1}).live_bytes == 0);
}

TEST_CASE("releases of NULL, of graphs' addresses and of nothing known are told apart") {
    Replay r;
    r(Kind::kGraphAllocNode, 0x5000, kMiB, 0x91, 0x92);
    r(Kind::kPoolAcquired, 0x6000, kMiB, 0xb00, 7, wire::kCaptured);
    r.free(0).free(0x5000).free(0x6000).free(0x7000);
    CHECK(r.state.empty_releases().of_null == 1);
    CHECK(r.state.empty_releases().of_graphs == 2);
    CHECK(r.state.contradictions().unknown_releases == 1);
    CHECK(r.state.totals(0).pool_live == 0);
    CHECK(r.state.totals(0).linear_requested == 0);
}

TEST_CASE("a graph's addresses live as long as the graph or an executable of it") {
    Replay r;
    r(Kind::kGraphAllocNode, 0x5000, kMiB, 0x91, 0x92)(Kind::kGraphInstantiated, 0, 0, 0xe1, 0x91);
    CHECK(charged_by_records(r.state, 0) == Interval{0, std::nullopt});  // what graphs hold, no call says
    r(Kind::kGraphReleased, 0, 0, 0x91, 0);
    CHECK(r.state.graphs().owns(0x5000));
    r(Kind::kGraphExecReleased, 0, 0, 0xe1, 0);
    CHECK_FALSE(r.state.graphs().owns(0x5000));
    r(Kind::kLinearAcquired, 0x5000, kMiB, kContext, 0).free(0x5000);  // the driver gave the address out anew
    CHECK(r.state.contradictions()() == 0);
}

TEST_CASE("what was exported may outlive its release") {
    Replay r;
    r(Kind::kLinearAcquired, 0x10000000, 2 * kMiB, kContext, 0)(Kind::kIpcExported, 0x10000000, 0, 0, 42);
    r.create(1, 4 * kMiB)(Kind::kMapped, 0x40000000, 4 * kMiB, 1, 0);
    r(Kind::kRangeExported, 0x40000000, 2 * kMiB, 0, 1);
    CHECK(r.state.totals(0).may_outlive == 0);
    r.free(0x10000000);
    CHECK(r.state.totals(0).may_outlive == 2 * kMiB);
    r(Kind::kUnmapped, 0x40000000, 4 * kMiB, 0, 0).release(1);
    CHECK(r.state.totals(0).may_outlive == 6 * kMiB);
    CHECK(charged_by_records(r.state, 0) == Interval::exactly(0));
}

TEST_CASE("a multicast object owns no memory, can be mapped, and may hold what is bound to it") {
    Replay r;
    r(Kind::kMulticastCreated, 2, 4 * kMiB, 0x70, 1)(Kind::kMulticastDeviceAdded, 0, 0, 0x70, 0);
    r.create(1, 4 * kMiB)(Kind::kMulticastBound, 0, 4 * kMiB, 0x70, 1);
    r(Kind::kMapped, 0x40000000, 4 * kMiB, 0x70, 0);
    CHECK(charged_handles(r.state, 0) == Interval::exactly(4 * kMiB));
    CHECK(r.state.totals(0).mapped == 0);
    r.release(1);
    CHECK(charged_handles(r.state, 0) == Interval{0, 4 * kMiB});
    r(Kind::kUnmapped, 0x40000000, 4 * kMiB, 0, 0).release(0x70);
    CHECK(charged_handles(r.state, 0) == Interval::exactly(0));
    CHECK(r.state.physical().empty());
    CHECK(r.state.contradictions()() == 0);
}

TEST_CASE("a checkpoint takes the process off the device until it is restored; another process's does not") {
    Replay r;
    r(Kind::kLinearAcquired, 0x10000000, 2 * kMiB, kContext, 0);
    r(Kind::kCheckpoint, 1, 0, 4711, 0)(Kind::kCheckpoint, 2, 0, 99, 0);
    CHECK(charged_by_records(r.state, 0) == Interval::exactly(2 * kMiB));
    r(Kind::kCheckpoint, 2, 0, 4711, 0);
    CHECK(charged_by_records(r.state, 0) == Interval::exactly(0));
    r(Kind::kCheckpoint, 3, 0, 4711, 0)(Kind::kCheckpoint, 4, 0, 4711, 0);
    CHECK(charged_by_records(r.state, 0) == Interval::exactly(2 * kMiB));
}

TEST_CASE("a pool's handle value that is used again keeps what is still live under it") {
    Replay r;
    r(Kind::kPoolCreated, 0, 0, 0xb00, wire::pack_location(1, 0, 0));
    r(Kind::kPoolAcquired, 0x60000000, kMiB, 0xb00, 7)(Kind::kPoolCreated, 0, 0, 0xb00,
                                                       wire::pack_location(1, 0, 0));
    r(Kind::kPoolReleased, 0x60000000, 0, 0, 7);
    CHECK(r.state.pools().at({0xb00}).live_bytes == 0);
    CHECK(r.state.pools().at({0xb00}).live_count == 0);
    CHECK(r.state.totals(0).pool_live == 0);
    CHECK(r.state.contradictions().overlapping_acquisitions == 1);
}

TEST_CASE("small blocks share pages, and a page is given back with its last block") {
    Replay r;
    r(Kind::kLinearAcquired, 0x10000000, 512 * kKiB, kContext, 0);
    r(Kind::kLinearAcquired, 0x10080000, 512 * kKiB, kContext, 0);
    r(Kind::kLinearAcquired, 0x101c0000, 512 * kKiB, kContext, 0);  // across two pages
    CHECK(charged_linear(r.state, 0) == Interval{3 * 512 * kKiB, 4 * kMiB});
    r.free(0x10000000).free(0x101c0000);
    CHECK(charged_linear(r.state, 0) == Interval{512 * kKiB, 2 * kMiB});
    r.free(0x10080000);
    CHECK(charged_linear(r.state, 0) == Interval::exactly(0));
}
