// Verdicts of situations made by hand: those to which no short recording leads, and what a verdict's sentence
// claims in each of its variants. A sentence is held to its numbers and its claim, not to its wording.
#include "analysis/limits_at.h"
#include "tests/unit/analysis/by_hand.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using report::Verdict;

namespace {

#define CHECK_SAYS(verdict, part) CHECK_MESSAGE(has_part((verdict).summary(), part), (verdict).summary())
#define CHECK_SAYS_NOT(verdict, part) CHECK_MESSAGE(!has_part((verdict).summary(), part), (verdict).summary())
#define CHECK_ASKS(verdict, part) \
    CHECK_MESSAGE(has_part((verdict).deciding_measurement(), part), (verdict).deciding_measurement())
#define CHECK_ASKS_NOT(verdict, part) \
    CHECK_MESSAGE(!has_part((verdict).deciding_measurement(), part), (verdict).deciding_measurement())

bool contributes(const Verdict& verdict, const std::string& part) {
    for (const std::string& each : verdict.contributing()) {
        if (has_part(each, part)) return true;
    }
    return false;
}

// 7 GiB of 8 are this process's; 1 GiB is left, 2 are needed.
Situation full() {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    s.attributed = bytes_of(s, 7 * kGiB);
    return s;
}

}  // namespace

TEST_CASE("waste counts from a quarter of what is charged on, rounded up") {
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 2 * kGiB);
    s.attributed = bytes_of(s, 6 * kGiB);
    s.linear_waste = bytes_of(s, 1536 * kMiB);
    CHECK(verdict_of(s).cause() == Verdict::internal_fragmentation);
    CHECK_SAYS(verdict_of(s), "This process is charged 6 GiB");
    CHECK_SAYS(verdict_of(s), "1.50 GiB of it");
    // A quarter of two bytes more is a byte more.
    s.attributed = bytes_of(s, 6 * kGiB + 2);
    CHECK(verdict_of(s).cause() == Verdict::capacity_exhaustion);
    CHECK_SAYS(verdict_of(s), "may be rounding");
}

TEST_CASE("two causes that the amounts do not tell apart") {
    // 1 GiB left, 2 needed: a pool keeps 0 to 2 GiB, an importer 3.
    Situation s = full();
    s.used_pools = true;
    s.reclaimable = bytes_of(s, between(0, 2 * kGiB));
    s.importers_hold = 1;
    s.held_by_importers = bytes_of(s, 3 * kGiB);
    const Verdict verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::undetermined);
    CHECK_SAYS(verdict, "without memory that stream-ordered pools keep alone it may have fitted too");
    CHECK_ASKS(verdict, "how many bytes that is (between 0 B and 2 GiB), right after the failure");
    // The same cause twice is one cause: graphs' unused memory of no known size before what is certain of it.
    s.reclaimable = bytes_of(s, 3 * kGiB);
    CHECK(verdict_of(s).constraint() == "cached_by_pool");
    // Of a state that was written down, the amounts are asked for by their names.
    const Situation written = stated(R"({"op": "device", "capacity": "8 GiB"},
        {"op": "driver_alloc", "id": "a", "bytes": {"low": 1073741824, "high": 4294967296}},
        {"op": "driver_free", "id": "a", "held_by_importer": true}, {"op": "handle_leak", "bytes": "2 GiB"},
        {"op": "driver_alloc", "id": "b", "bytes": "4 GiB"})",
                                     R"({"kind": "driver", "bytes": "2560 MiB"})");
    // 0 to 1 GiB is left: without the import 2 GiB, without the leak 2 to 3.
    CHECK(verdict_of(written).cause() == Verdict::undetermined);
    CHECK_ASKS(verdict_of(written), "the exact bytes of the driver's allocations");
}

TEST_CASE("a request that may need one run: of what is stated, of a trace, of a context") {
    const std::string device = R"({"op": "device", "capacity": "8 GiB", "contiguity_required": true},
        {"op": "driver_alloc", "id": "a", "bytes": "4 GiB"})";
    const std::string request = R"({"kind": "driver", "bytes": "2 GiB"})";
    const Verdict no_runs = verdict_of(stated(device, request));
    CHECK(no_runs.cause() == Verdict::undetermined);
    CHECK_SAYS(no_runs, "how large the runs are that nobody holds is not stated");
    CHECK_ASKS(no_runs, "map of physical pages");
    const Verdict runs = verdict_of(stated(
        device + R"(, {"op": "physical_free_runs", "bytes": [{"low": 1073741824, "high": 4294967296}]})",
        request));
    CHECK(runs.cause() == Verdict::undetermined);
    CHECK_SAYS(runs, "lies inside of what the numbers leave open");
    const Verdict no_run_needed = verdict_of(stated(
        R"({"op": "device", "capacity": "8 GiB", "device_free": {"low": 1073741824, "high": 4294967296}})",
        request));
    CHECK_SAYS(no_run_needed, "lies inside of what the numbers leave open");

    Situation s = failed_call(8 * kGiB, 4 * kGiB, 2 * kGiB);
    s.one_run_needed = true;
    CHECK(verdict_of(s).cause() == Verdict::undetermined);
    CHECK_SAYS(verdict_of(s), "in one physical piece is not visible");
    s.one_run_needed = false;
    s.free_then = bytes_of(s, between(kGiB, 3 * kGiB));
    CHECK_SAYS(verdict_of(s), "how the driver rounds this request");
    s.request.draws = Draws::kContext;
    CHECK_SAYS(verdict_of(s), "How much some bytes needs, the call does not say");
}

TEST_CASE("the driver was not asked: how it could be") {
    Situation s = full();
    s.device_free = s.free_then = Quantity::unknown(report::Quantity::device_free, s.physical, "");
    s.not_asked = "no context was current";
    CHECK(verdict_of(s).cause() == Verdict::undetermined);
    CHECK_SAYS(verdict_of(s), "no context was current");
    CHECK_ASKS(verdict_of(s), "context of the request's device current");
    s.snapshot.complete = false;
    CHECK_ASKS(verdict_of(s), "complete recording");
    s.snapshot.captured = true;
    CHECK_ASKS(verdict_of(s), "no stream capture");
    // What the records leave is enough to say that it did not fit, and not that it did.
    s.free_then = bytes_of(s, at_most(kGiB));
    CHECK(verdict_of(s).cause() == Verdict::capacity_exhaustion);
    s.free_then = bytes_of(s, at_most(4 * kGiB));
    CHECK(verdict_of(s).cause() == Verdict::undetermined);
}

TEST_CASE("what may have been enough is listed with its bytes, and only what is open") {
    Situation s = full();
    s.attributed = bytes_of(s, 4 * kGiB);
    s.used_pools = true;
    s.reclaimable = bytes_of(s, between(0, 2 * kGiB));
    s.pending = bytes_of(s, 64 * kMiB);
    Verdict verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::undetermined);
    CHECK_SAYS(verdict, "(memory that stream-ordered pools keep: between 0 B and 2 GiB)");
    CHECK_ASKS(verdict, "the pools' reserved and used sizes right after the failure");
    CHECK_ASKS_NOT(verdict, "payload");
    CHECK_ASKS_NOT(verdict, "losses");
    s.linear_waste = bytes_of(s, between(0, 2 * kGiB));
    verdict = verdict_of(s);
    CHECK_SAYS(
        verdict,
        "pools keep: between 0 B and 2 GiB; charged memory that holds no payload: between 0 B and 2 GiB)");
    CHECK_ASKS(verdict, "every stream synchronised; how much of the charged memory holds payload");
    s.reclaimable = bytes_of(s, 0);
    verdict = verdict_of(s);
    CHECK_ASKS_NOT(verdict, "pools' reserved");
    CHECK(verdict.deciding_measurement().rfind("how much of the charged memory", 0) == 0);
    s.books.releases = true;
    CHECK_ASKS(verdict_of(s), "; all of it in a recording without losses");
    // Nothing of it is open, but what nobody held: 1 to 1.5 GiB, and 1 GiB in pools less 64 MiB.
    s = full();
    s.used_pools = true;
    s.free_then = bytes_of(s, between(kGiB, 1536 * kMiB));
    s.reclaimable = bytes_of(s, 960 * kMiB);
    verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::undetermined);
    CHECK_SAYS(verdict, "(held by nobody: between 1 GiB and 1.50 GiB)");
    CHECK_ASKS(verdict, "all at one moment");
}

TEST_CASE("graphs may hold what no record explains, where the driver was not asked of them") {
    Situation s = full();
    s.attributed = bytes_of(s, 3 * kGiB);
    s.unattributed = bytes_of(s, 4 * kGiB);
    s.captured_allocations = 2;
    CHECK(verdict_of(s).cause() == Verdict::capacity_exhaustion);  // it was asked: none
    s.graphs = Quantity::unknown(report::Quantity::charged, s.physical, "not asked");
    CHECK(verdict_of(s).cause() == Verdict::undetermined);
    CHECK_SAYS(verdict_of(s), "captured 2 stream-ordered allocations into graphs");
    s.captured_allocations = 1;
    CHECK_SAYS(verdict_of(s), "captured 1 stream-ordered allocation into graphs");
    s.captured_allocations = 0;
    CHECK(verdict_of(s).cause() == Verdict::capacity_exhaustion);
    s.captured_allocations = 1;
    s.unattributed = bytes_of(s, 512 * kMiB);
    CHECK(verdict_of(s).cause() == Verdict::capacity_exhaustion);
}

TEST_CASE("addresses: what is said of gaps is said of where they are known from") {
    const std::string device = R"({"op": "device", "capacity": "8 GiB", "address_space_bytes": "64 GiB"},
        {"op": "va_reserve", "id": "r", "bytes": "16 GiB", "offset": 17179869184})";
    const auto written = [&](const std::string& bytes) {
        return verdict_of(stated(device, R"({"kind": "address_space", "bytes": ")" + bytes + R"("})"));
    };
    // Gaps of 16 and 32 GiB.
    CHECK_SAYS(written("20 GiB"), "A gap of 32 GiB lies between the reservations that are stated");
    CHECK(written("40 GiB").cause() == Verdict::virtual_space_fragmentation);
    CHECK_SAYS(written("40 GiB"), "2 gaps between the reservations sum to 48 GiB");
    CHECK(written("50 GiB").constraint() == "address_space");
    CHECK_SAYS(written("50 GiB"), "16 GiB are reserved, and all unused gaps");
    CHECK_SAYS_NOT(written("50 GiB"), "nothing mapped");
    CHECK(contributes(written("50 GiB"), "reserved address space: 16 GiB"));
    CHECK_FALSE(contributes(written("50 GiB"), "nothing mapped"));
    CHECK(written("50 GiB").removed(0) == "with_only_live_payload");

    Situation s = failed_call(8 * kGiB, 6 * kGiB, 20 * kGiB);
    s.request.draws = Draws::kAddressSpace;
    s.space.seen = true;
    s.space.reserved = 8 * kGiB;
    s.space.unbacked = 2 * kGiB;
    s.space.witnessed = FreeExtents(kPageBytes, kPageBytes);
    s.space.witnessed.add({0, 32 * kGiB});
    CHECK_SAYS(verdict_of(s), "A gap of 32 GiB, once reserved by this process, had been given back");
    s.space.witnessed = FreeExtents(kPageBytes, kPageBytes);
    s.space.witnessed.add({0, 12 * kGiB});
    s.space.witnessed.add({16 * kGiB, 28 * kGiB});
    s.space.small_sum = s.space.small_witnessed_sum = 24 * kGiB;
    s.space.small_witnessed_largest = 12 * kGiB;
    CHECK(verdict_of(s).cause() == Verdict::virtual_space_fragmentation);
    CHECK_SAYS(verdict_of(s),
               "2 gaps that were reserved before, were given back and hold nothing recorded sum to 24 GiB");
    CHECK(contributes(verdict_of(s), "nothing mapped: 2 GiB"));
    // They sum to less.
    s.space.small_sum = s.space.small_witnessed_sum = 18 * kGiB;
    CHECK(verdict_of(s).constraint() == "address_space");
    CHECK_SAYS(verdict_of(s), "8 GiB are reserved (2 GiB of it with nothing mapped)");
    CHECK_SAYS(verdict_of(s), "6 GiB were held by nobody");
    CHECK(verdict_of(s).removed(0) == "without_unbacked_reservations");  // 18 + 2 GiB
    s.space.unbacked = kGiB;
    CHECK(verdict_of(s).removed(0) == "with_only_live_payload");
    s.device_free = Quantity::unknown(report::Quantity::device_free, s.physical, "");
    CHECK_SAYS_NOT(verdict_of(s), "held by nobody");
    // Gaps that were never given out may be the driver's own.
    s.space.small_sum = 30 * kGiB;
    CHECK(verdict_of(s).cause() == Verdict::undetermined);
    s.space.seen = false;
    s.space.witnessed = FreeExtents(kPageBytes, kPageBytes);
    CHECK(verdict_of(s).constraint() == "address_space");
    CHECK_SAYS(verdict_of(s), "this process held no other reservation");
}

TEST_CASE("a pool that has enough, in pieces or waiting, and one at its maximum") {
    // 1 GiB left; the pool holds 4 GiB, of which 3 are unused; 2 are asked for.
    Situation s = of_pools();
    s.pools.resize(1);
    s.pools[0] = pool_of(s, 0xa, "pool A", 4 * kGiB, kGiB);
    Verdict verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::allocator_external_fragmentation);
    CHECK_SAYS(verdict, "pool A holds 4 GiB, of which 3 GiB are in no live allocation");
    CHECK_SAYS_NOT(verdict, "at most");
    CHECK_SAYS_NOT(verdict, "Raising the pool's maximum");
    CHECK(verdict.removed(0) == "with_pool_gaps_merged");
    s.pools[0].no_opportunistic_reuse = true;
    verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::undetermined);
    CHECK_SAYS(verdict, "forbade opportunistic reuse");
    s.pools[0].no_opportunistic_reuse = false;
    s.pools[0].pending = 64 * kMiB;
    verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::undetermined);
    CHECK_SAYS(verdict, "still waited for a stream");
    s.pools[0].pending = 0;
    // It may hold no more than it does, and 6 GiB are left on the device.
    s.pools[0].said.maximum = 4 * kGiB;
    verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::allocator_external_fragmentation);
    CHECK_SAYS(verdict, "pool A may hold at most 4 GiB, and holds 4 GiB");
    CHECK_SAYS_NOT(verdict, "Raising the pool's maximum");  // 1 GiB is less than 2
    s.device_free = s.free_then = bytes_of(s, 3 * kGiB);
    CHECK_SAYS(verdict_of(s), "Raising the pool's maximum would have met it as well");
    // Less unused than asked for.
    s.pools[0] = pool_of(s, 0xa, "pool A", 4 * kGiB, 3 * kGiB);
    s.pools[0].said.maximum = 4 * kGiB;
    verdict = verdict_of(s);
    CHECK(verdict.constraint() == "pool_maximum");
    CHECK(verdict.removed(0) == "with_pool_maximum_lifted");
}

TEST_CASE("host memory and the window: of what nothing is known") {
    Situation s = failed_call(8 * kGiB, 6 * kGiB, 2 * kGiB);
    s.request.draws = Draws::kHost;
    s.host_pinned = 3 * kGiB;
    CHECK_SAYS(verdict_of(s), "holds 3 GiB of page-locked host memory in this trace");
    CHECK_SAYS(verdict_of(s), "no limit of the host is in the trace");
    const Verdict written = verdict_of(
        stated(R"({"op": "device", "capacity": "8 GiB"}, {"op": "host_pin", "id": "p", "bytes": "3 GiB"})",
               R"({"kind": "pinned_host", "bytes": "2 GiB"})"));
    CHECK_SAYS(written, "holds 3 GiB of page-locked host memory.");
    CHECK_SAYS(written, "no limit of the host is stated");
    s.request.draws = Draws::kAperture;
    CHECK_ASKS(verdict_of(s), "BAR1 sizes");
    s.request.draws = Draws::kUnaccounted;
    CHECK_SAYS(verdict_of(s), "What it draws on");
    // What the device is taken by plays no part in them.
    s.linear = bytes_of(s, 2 * kGiB);
    CHECK(verdict_of(s).contributing().empty());
    for (const Draws draws : {Draws::kPhysical, Draws::kStack, Draws::kContext, Draws::kPool}) {
        s.request.draws = draws;
        CHECK(contributes(verdict_of(s), "linear memory of this process: 2 GiB"));
    }
}

TEST_CASE("a full device: what the process itself could have done about it") {
    // 4 GiB of 8 are this process's, 3 GiB nobody's whom the trace knows: 512 MiB would have to go.
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 6 * kGiB);
    s.attributed = bytes_of(s, 4 * kGiB);
    s.unattributed = bytes_of(s, 3 * kGiB);
    Verdict verdict = verdict_of(s);
    CHECK(verdict.cause() == Verdict::capacity_exhaustion);
    CHECK_SAYS(verdict, "this process itself holds 4 GiB, 3 GiB are held by no record");
    CHECK_SAYS(verdict,
               "Nothing that this process has given back already, or wastes, would have been enough.");
    CHECK(verdict.removed(0) == "with_nothing_else_on_device");
    s.handle_waste = Quantity::unknown(report::Quantity::internal_waste, s.physical, "kernels ran");
    CHECK_SAYS(verdict_of(s), "Whether what it holds is full of payload is not known.");
    // Less of it, and more unexplained: the larger is named first.
    s.attributed = bytes_of(s, 2 * kGiB);
    s.unattributed = bytes_of(s, 5 * kGiB);
    verdict = verdict_of(s);
    CHECK_SAYS(verdict, ": 5 GiB are held by no record of any recorded process");
    CHECK_SAYS(verdict, ", this process itself holds 2 GiB.");
    CHECK_SAYS(verdict, "Whose share is which is not known");
    CHECK(verdict.removed(0) == "without_unattributed");
    // Of other processes two: named with their shares.
    s = failed_call(8 * kGiB, 1 * kGiB, 6 * kGiB);
    s.attributed = bytes_of(s, kGiB);
    s.others = bytes_of(s, 6 * kGiB);
    s.other_processes = {{ProcessIndex{1}, "process 2", exactly(4 * kGiB)},
                         {ProcessIndex{2}, "process 3", exactly(2 * kGiB)}};
    verdict = verdict_of(s);
    CHECK_SAYS(verdict, "other processes of this trace hold 6 GiB (process 2 4 GiB, process 3 2 GiB)");
    CHECK_SAYS(verdict, "Without the other processes it would have fitted.");
    CHECK(contributes(verdict, "process 3, another process of this trace: 2 GiB"));
    CHECK_SAYS_NOT(verdict, "no record");
}

TEST_CASE("a full device: pages that were never written") {
    Situation s = full();
    s.never_written = bytes_of(s, 2 * kGiB);
    CHECK_SAYS(verdict_of(s),
               "2 GiB of what it is charged lie in VMM pages that were never written: without those it would "
               "have fitted");
    CHECK(verdict_of(s).removed(0) == "without_never_written_pages");
    s.never_written = bytes_of(s, between(0, 2 * kGiB));
    CHECK_SAYS(verdict_of(s),
               "VMM pages that may have been never written: without those it might have fitted");
    CHECK(verdict_of(s).removed(0) == "with_nothing_else_on_device");
    s.never_written = bytes_of(s, 512 * kMiB);
    CHECK_SAYS_NOT(verdict_of(s), "never written");
}

TEST_CASE(
    "what the device is taken by: each with its bytes, the largest first, and nothing that is nothing or not "
    "known") {
    Situation s = full();
    s.linear = bytes_of(s, 1 * kGiB);
    s.handles = bytes_of(s, 3 * kGiB);
    s.arrays = Quantity::unknown(report::Quantity::charged, s.physical, "");
    s.unattributed = bytes_of(s, 2 * kGiB);
    Verdict verdict = verdict_of(s);
    REQUIRE(verdict.contributing_size() == 3);
    CHECK(verdict.contributing(0) == "VMM allocations of this process: 3 GiB");
    CHECK(has_part(verdict.contributing(1), "held by no record of any recorded process"));
    CHECK(verdict.contributing(2) == "linear memory of this process: 1 GiB");
    s.payload.never_written = kGiB;
    CHECK_FALSE(contributes(verdict_of(s), "without any written byte"));  // kernels may have
    s.payload.decisive = true;
    CHECK(contributes(verdict_of(s), "VMM pages without any written byte: 1 GiB"));
    s.payload.never_written = 0;
    CHECK_FALSE(contributes(verdict_of(s), "without any written byte"));
    s.unmapped_count = 1;
    s.unmapped_bytes = kPageBytes;
    CHECK(contributes(verdict_of(s), "2 MiB in 1 physical allocation"));
    CHECK_FALSE(contributes(verdict_of(s), "physical allocations"));
    s.unmapped_count = 2;
    CHECK(contributes(verdict_of(s), "2 MiB in 2 physical allocations"));
    s.contexts = 2;
    CHECK(contributes(verdict_of(s), "this process has 2 contexts"));
    s.unattributed = bytes_of(s, 256 * kMiB);  // less than a sixteenth
    CHECK_FALSE(contributes(verdict_of(s), "contexts on the device"));
    s.unattributed = bytes_of(s, 2 * kGiB);
    s.contexts = 1;
    CHECK_FALSE(contributes(verdict_of(s), "contexts on the device"));

    const Verdict written = verdict_of(stated(
        R"({"op": "device", "capacity": "8 GiB", "other_processes_bytes": "4 GiB", "context_bytes": "1 GiB"},
        {"op": "driver_alloc", "id": "a", "bytes": "2 GiB"})",
        R"({"kind": "driver", "bytes": "2 GiB"})"));
    CHECK(contributes(written, "other processes: 4 GiB"));
    CHECK(contributes(written, "contexts, and what the numbers do not name: 1 GiB"));
    CHECK_SAYS(written, "1 GiB are taken by contexts and by what the numbers do not name");
    CHECK_SAYS(written, "other processes hold 4 GiB");
}

TEST_CASE("importers and leaks: how many there are") {
    Situation s = full();
    s.importers_hold = 1;
    s.held_by_importers = bytes_of(s, 2 * kGiB);
    CHECK_SAYS(verdict_of(s), "freed 2 GiB in 1 allocation that another process");
    s.importers_hold = 2;
    CHECK_SAYS(verdict_of(s), "freed 2 GiB in 2 allocations that another process");
    s.importers_hold = 0;
    s.held_by_importers = bytes_of(s, 0);
    s.leaks = 1;
    s.leaked = bytes_of(s, 2 * kGiB);
    CHECK_SAYS(verdict_of(s), "2 GiB are in 1 physical handle that");
    s.leaks = 3;
    CHECK_SAYS(verdict_of(s), "2 GiB are in 3 physical handles that");
}

TEST_CASE(
    "several things together: the one that most rests on names the cause, and the others are named beside "
    "it") {
    // 1 GiB left, 6 needed: importers hold 2 GiB, leaks 1, graphs 2.
    Situation s = failed_call(8 * kGiB, 1 * kGiB, 6 * kGiB);
    s.attributed = bytes_of(s, 5 * kGiB);
    s.unattributed = bytes_of(s, 2 * kGiB);
    s.importers_hold = 1;
    s.held_by_importers = bytes_of(s, 2 * kGiB);
    s.leaks = 1;
    s.leaked = bytes_of(s, kGiB);
    s.graphs_unused = bytes_of(s, 2 * kGiB);
    const Verdict verdict = verdict_of(s);
    CHECK(verdict.constraint() == "kept_by_graphs");  // as much rests on importers, which come later
    CHECK_SAYS(verdict,
               "together with memory that other processes imported and still map, physical handles that "
               "nothing maps any more.");
    CHECK(verdict.removed_size() == 3);
    s.graphs_unused = bytes_of(s, 5 * kGiB);
    CHECK_SAYS_NOT(verdict_of(s), "together with");
    CHECK(verdict_of(s).removed_size() == 1);
}

TEST_CASE("physical runs: alone, and besides what has to be given back") {
    const std::string device = R"({"op": "device", "capacity": "8 GiB", "contiguity_required": true})";
    const std::string runs = R"(, {"op": "physical_free_runs", "bytes": [1073741824, 1073741824]})";
    const Verdict alone =
        verdict_of(stated(device + R"(, {"op": "driver_alloc", "id": "a", "bytes": "6 GiB"})" + runs,
                          R"({"kind": "driver", "bytes": "2 GiB"})"));
    CHECK(alone.cause() == Verdict::physical_external_fragmentation);
    CHECK_SAYS(alone,
               "which is enough. But the driver needs one physical run for it, and the largest of 2 runs "
               "that nobody holds is 1 GiB");
    // 2 GiB in two runs, and 512 MiB with an importer: 2.5 GiB.
    const Verdict both =
        verdict_of(stated(device + R"(, {"op": "driver_alloc", "id": "a", "bytes": "512 MiB"},
        {"op": "driver_alloc", "id": "b", "bytes": "5632 MiB"}, {"op": "driver_free", "id": "a", "held_by_importer": true})" +
                              runs,
                          R"({"kind": "driver", "bytes": "2560 MiB"})"));
    CHECK(both.removed_size() == 2);
    CHECK(both.cause() == Verdict::physical_external_fragmentation);
    CHECK_SAYS(both, ". Besides, the driver needs one physical run for it, and the largest of 2 runs");
}

TEST_CASE("an allocator's rounding of live blocks, where its segments are written down") {
    const Verdict verdict = verdict_of(
        stated(R"({"op": "device", "capacity": "4 GiB"}, {"op": "segment", "id": "s", "bytes": "4 GiB"},
        {"op": "block", "id": "a", "segment": "s", "offset": 0, "bytes": "4 GiB", "requested": "2 GiB"})",
               R"({"kind": "allocator", "bytes": "2 GiB"})"));
    CHECK(verdict.cause() == Verdict::internal_fragmentation);
    CHECK_SAYS(verdict, "2 GiB of the allocator's live blocks were never asked for");
}

TEST_CASE("what an allocator does with its segments: in its own words, whose request it is") {
    const std::string device =
        R"({"op": "device", "capacity": "8 GiB"}, {"op": "segment", "id": "s", "bytes": "4 GiB"},)";
    const std::string request = R"({"kind": "allocator", "bytes": "6 GiB"})";
    // 1 GiB in one gap of 4 GiB, 4 GiB in a segment that it keeps: 5, and 8 GiB of segments leave nothing.
    const Verdict gap = verdict_of(
        stated(device + R"({"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "2 GiB"},
        {"op": "segment", "id": "e", "bytes": "4 GiB"})",
               R"({"kind": "allocator", "bytes": "5 GiB"})"));
    CHECK(gap.cause() == Verdict::allocator_external_fragmentation);
    CHECK_SAYS(gap,
               "6 GiB of it lie in no block, in 2 pieces, the largest of 4 GiB: no piece is large enough, "
               "together they are.");
    // One piece of 2 GiB, and 4 GiB that nobody holds.
    const Verdict with_device = verdict_of(stated(
        device + R"({"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "2 GiB"})", request));
    CHECK(with_device.cause() == Verdict::allocator_external_fragmentation);
    CHECK_SAYS(with_device, "in 1 piece, the largest of 2 GiB");
    CHECK_SAYS(with_device, "together they are, with what nobody on the device holds.");
    // Empty segments that it keeps: 2 x 2 GiB, with nothing else unused in it.
    const Verdict kept = verdict_of(
        stated(device + R"({"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "4 GiB"},
        {"op": "segment", "id": "e", "bytes": "2 GiB"}, {"op": "segment", "id": "f", "bytes": "2 GiB"})",
               R"({"kind": "allocator", "bytes": "4 GiB"})"));
    CHECK(kept.cause() == Verdict::allocator_external_fragmentation);
    CHECK_SAYS(kept, "4 GiB are in segments without any block, which it does not give back");
    // A block that waits.
    const Verdict waits = verdict_of(
        stated(device + R"({"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "4 GiB"},
        {"op": "driver_alloc", "id": "x", "bytes": "4 GiB"}, {"op": "block_free", "id": "b", "pending_on_stream": "s1"})",
               R"({"kind": "allocator", "bytes": "3 GiB"})"));
    CHECK(waits.constraint() == "pending_frees");
    CHECK_SAYS(waits, "4 GiB are in blocks that the program freed and whose stream has not got there yet");
}

TEST_CASE("a framework's allocator of a trace: what it keeps, and why it kept it") {
    Situation s = full();
    const auto inside = [&](std::uint64_t bytes) { return bytes_inside(s, bytes); };
    FrameworkAtFailure own = framework_of(s, 6 * kGiB, 3 * kGiB);
    own.reclaimable = inside(2 * kGiB);
    s.framework = own;
    CHECK(verdict_of(s).constraint() == "cached_by_allocator");
    CHECK_SAYS(verdict_of(s), "torch.cuda.empty_cache() would have given back");
    s.framework->gave_up = true;
    s.framework->driver_asked = true;
    CHECK(verdict_of(s).constraint() == "pool_ownership");
    CHECK_SAYS(verdict_of(s), "those that are left belong to a private pool");
    s.framework->reclaimable = inside(0);
    s.framework->waiting = inside(2 * kGiB);
    s.framework->waiting_alone = 2 * kGiB;
    CHECK(verdict_of(s).constraint() == "pending_frees");
    CHECK_SAYS(verdict_of(s), "wait for other streams (record_stream)");
    s.framework->waiting = inside(0);
    s.framework->in_gaps = inside(2 * kGiB);
    s.framework->domains.resize(1);
    s.framework->domains[0].gaps.add({0, kGiB});
    s.framework->domains[0].gaps.add({2 * kGiB, 3 * kGiB});
    s.framework->in_gaps = inside(2 * kGiB + kPageBytes);
    CHECK(verdict_of(s).cause() == Verdict::allocator_external_fragmentation);
    CHECK_SAYS(verdict_of(s), "lie in gaps between blocks, the largest of 1 GiB");
    // Waste of other memory than the allocator's, beside an allocator of which no layout is known.
    s.framework->in_gaps = inside(0);
    s.linear_waste = bytes_of(s, 2 * kGiB);
    CHECK(verdict_of(s).cause() == Verdict::internal_fragmentation);
    CHECK_SAYS(verdict_of(s), "This process is charged 7 GiB");
}

TEST_CASE("a framework's allocator refused by itself, and it cannot be told why") {
    Situation s = failed_call(8 * kGiB, 4 * kGiB, 2 * kGiB);
    FrameworkAtFailure own = framework_of(s, 3 * kGiB, 3 * kGiB);
    own.gave_up = true;
    own.tried = 2 * kGiB;
    s.framework = own;
    const auto verdict = [&] {
        s.limits = limits_at(s);
        return verdict_of(s);
    };
    CHECK(verdict().cause() == Verdict::commitment_limit);
    CHECK_SAYS(verdict(), "A limit of its own stands below 5 GiB");
    s.free_then = bytes_of(s, between(kGiB, 4 * kGiB));
    CHECK(verdict().cause() == Verdict::undetermined);
    CHECK_SAYS(verdict(), "lies close to what it needs");
    s.device_free = Quantity::unknown(report::Quantity::device_free, s.physical, "");
    CHECK_SAYS(verdict(), "was not asked");
    s.framework->agrees = false;
    CHECK_SAYS(verdict(), "records of the allocator or of the driver are missing");
}

TEST_CASE("limits: what stood there, what was used, what the request takes") {
    const auto limited = [](const std::string& device, const std::string& events,
                            const std::string& request) {
        return verdict_of(
            stated(R"({"op": "device", "capacity": "24 GiB", )" + device + "}" + events, request));
    };
    Verdict verdict = limited(R"("commit_limit": "10 GiB", "per_allocation_limit": "16 GiB")",
                              R"(, {"op": "driver_alloc", "id": "a", "bytes": "8 GiB"})",
                              R"({"kind": "driver", "bytes": "3 GiB"})");
    CHECK(verdict.cause() == Verdict::commitment_limit);
    CHECK_SAYS(verdict,
               "The limit on what the host will back refused it. It stands at 10 GiB, of which 8 GiB are "
               "used; the request needs 3 GiB");
    CHECK_SAYS(verdict, "Of memory, of the device's 24 GiB, 16 GiB were held by nobody");
    verdict = limited(R"("commit_limit": "64 GiB", "per_allocation_limit": "2 GiB")", "",
                      R"({"kind": "driver", "bytes": "3 GiB"})");
    CHECK(verdict.constraint() == "per_allocation_limit");
    CHECK_SAYS(
        verdict,
        "The limit on the size of one allocation refused it. It stands at 2 GiB, of which 0 B are used");
    verdict = limited(R"("mapping_limit": 5, "mappings": 5)", "", R"({"kind": "driver", "bytes": "3 GiB"})");
    CHECK_SAYS(
        verdict,
        "The number of mappings refused it. It stands at 5, 5 are there, and the request needs 1 more");
    verdict = limited(R"("handle_types": ["posix_fd"])", "",
                      R"({"kind": "driver", "bytes": "3 GiB", "handle_type": "fabric"})");
    CHECK_SAYS(verdict,
               "The kinds of handle that the device supports do not have the one that this request asks for: "
               "the device has posix_fd, and fabric is asked for");
    // What is left of memory plays no part in host memory, and is not told where it is not known.
    verdict = limited(R"("pinned_host_limit": "1 GiB")", "", R"({"kind": "pinned_host", "bytes": "3 GiB"})");
    CHECK(verdict.constraint() == "pinned_host_limit");
    CHECK_SAYS_NOT(verdict, "Of memory");
}

TEST_CASE("roundings: of host memory under the limit that they break, and of an allocator") {
    // 5 GiB are rounded to 8; the limit of 6 is kept without that, the one of 64 in any case.
    const auto host = [](const std::string& limits) {
        return verdict_of(stated(
            R"({"op": "device", "capacity": "8 GiB", "pinned_rounds_to_power_of_two": true, )" + limits + "}",
            R"({"kind": "pinned_host", "bytes": "5 GiB"})"));
    };
    for (const char* limits : {R"("pinned_host_limit": "6 GiB", "commit_limit": "64 GiB")",
                               R"("pinned_host_limit": "64 GiB", "commit_limit": "6 GiB")"}) {
        const Verdict verdict = host(limits);
        CHECK(verdict.cause() == Verdict::internal_fragmentation);
        CHECK_SAYS(verdict,
                   "with what was asked for, 5 GiB and 0 B before it, the limit of 6 GiB would have been "
                   "kept; rounded they are 8 GiB and 0 B");
    }
    // 1 GiB is left, a gap of 512 MiB: 600 MiB in blocks of 1 GiB and segments of 2 fit in neither.
    const Verdict verdict = verdict_of(stated(
        R"({"op": "device", "capacity": "4 GiB"}, {"op": "segment", "id": "s", "bytes": "3 GiB"},
        {"op": "block", "id": "b", "segment": "s", "offset": 0, "bytes": "2560 MiB"})",
        R"({"kind": "allocator", "bytes": "600 MiB", "block_rounding": 1073741824, "segment_rounding": 2147483648})"));
    CHECK(verdict.cause() == Verdict::internal_fragmentation);
    CHECK_SAYS(verdict,
               "600 MiB were asked for. The allocator rounds that to a block of 1 GiB, or a new segment of 2 "
               "GiB: it has 512 MiB in one piece");
}
