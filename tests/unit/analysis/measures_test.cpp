// Measures of fragmentation against numbers that were worked out by hand, and against a reference so slow
// that it is obviously right: an array of bytes.
#include <doctest/doctest.h>

#include <iterator>
#include <map>
#include <random>
#include <set>

#include "analysis/free_extents.h"
#include "analysis/internal_parts.h"
#include "analysis/quantity_in.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using Q = report::Quantity;

namespace {

template <typename A, typename B>
concept Combine = requires(const A& a, const B& b) {
    plus(a, b, Q::charged, "");
};
template <typename A, typename B>
concept Subtract = requires(const A& a, const B& b) {
    minus(a, b, Q::charged, "");
};
template <typename A, typename B>
concept HaveAShare = requires(const A& a, const B& b) {
    share(a, b);
};

using OnDevice = QuantityIn<Space::kPhysical>;
using Addresses = QuantityIn<Space::kAddresses>;
using InPool = QuantityIn<Space::kPool>;
using InSegments = QuantityIn<Space::kSegments>;

template <typename A, typename B>
constexpr bool kMix = Combine<A, B> || Subtract<A, B> || HaveAShare<A, B> || Combine<B, A> ||
                      Subtract<B, A> || HaveAShare<B, A>;

// One kind of space combines with itself, and with nothing else: not with a number of no stated kind either.
static_assert(Combine<OnDevice, OnDevice> && Subtract<Addresses, Addresses> && HaveAShare<InPool, InPool>);
static_assert(!kMix<OnDevice, Addresses> && !kMix<OnDevice, InPool> && !kMix<OnDevice, InSegments>);
static_assert(!kMix<Addresses, InPool> && !kMix<Addresses, InSegments> && !kMix<InPool, InSegments>);
static_assert(!kMix<OnDevice, Quantity> && !kMix<Addresses, std::uint64_t>);
static_assert(!std::is_convertible_v<Quantity, OnDevice> && !std::is_convertible_v<OnDevice, Quantity>);

Scope at_snapshot(std::uint64_t snapshot, const std::string& domain = "physical") {
    Scope scope;
    scope.process = 0;
    scope.device = "GPU-a";
    scope.domain = domain;
    scope.snapshot = snapshot;
    return scope;
}

Quantity bytes_at(const Interval& interval, const Scope& scope) {
    return Quantity::bounded(Q::charged, interval, scope, "");
}

}  // namespace

TEST_CASE("numbers of one kind of space, but of two places or moments, are refused when it runs") {
    const OnDevice a(bytes_at({5, 5}, at_snapshot(1)));
    for (const Scope& other : {at_snapshot(2), at_snapshot(1, "pool 0x2"), at_snapshot(1, "")}) {
        const OnDevice b(bytes_at({3, 3}, other));
        CHECK_FALSE(plus(a, b, Q::charged, "").has_value());
        CHECK_FALSE(minus(a, b, Q::charged, "").has_value());
        CHECK_FALSE(share(a, b).has_value());
    }
    CHECK(plus(a, a, Q::charged, "")->quantity().low() == 10);
}

TEST_CASE("a share is an interval, and a share of nothing or of what is not known is no number") {
    const Scope s = at_snapshot(1);
    const auto part = [&](const Interval& a, const Interval& b) {
        return share(bytes_at(a, s), bytes_at(b, s)).value();
    };
    CHECK(part({3, 3}, {12, 12}) == Share{0.25, 0.25});
    CHECK(part({2, 6}, {8, 16}) == Share{0.125, 0.75});  // 2/16 … 6/8
    CHECK(part({0, 0}, {0, 0}) == Share{});
    CHECK(part({2, 2}, {0, 8}) == Share{});  // perhaps nothing was charged
    CHECK(part({2, 2}, {4, std::nullopt}) == Share{std::nullopt, 0.5});
    CHECK(part({std::nullopt, 2}, {4, 4}) == Share{std::nullopt, 0.5});
    CHECK(share(Quantity::unknown(Q::charged, s, "not asked"), bytes_at({4, 4}, s)).value() == Share{});
    CHECK(share(bytes_at({4, 4}, s), Quantity::unknown(Q::charged, s, "not asked")).value() == Share{});
    CHECK(rest_of(Share{0.25, 0.5}) == Share{0.5, 0.75});
    CHECK(rest_of(Share{}) == Share{});
}

TEST_CASE("free extents: alignment and granularity cut what is usable, by hand") {
    // [100, 356): from 128 on 228 bytes, in 64s: 192. [384, 447): 63 bytes, in 64s: none. [512, 1024): all
    // 512.
    FreeExtents extents(128, 64);
    extents.add({100, 356});
    extents.add({384, 447});
    extents.add({512, 1024});
    CHECK(extents.sum() == 192 + 512);
    CHECK(extents.largest() == 512);
    CHECK(extents.count() == 2);
    CHECK(extents.unusable_count() == 1);
    CHECK(extents.unusable_bytes() == (256 - 192) + 63);
    CHECK(extents.external_ratio().value() == doctest::Approx(1.0 - 512.0 / 704.0));
    CHECK(extents.classes()[7] == FreeExtents::Class{1, 192});
    CHECK(extents.classes()[9] == FreeExtents::Class{1, 512});
    CHECK(extents.largest_first() == std::vector<std::uint64_t>{512, 192});
}

TEST_CASE("free extents: none, one, and the whole space") {
    FreeExtents none(2 * kMiB, 2 * kMiB);
    CHECK_FALSE(none.external_ratio().has_value());
    none.add({1, 2 * kMiB});  // nothing of it is aligned
    CHECK(none.sum() == 0);
    CHECK_FALSE(none.external_ratio().has_value());
    report::Domain domain;
    none.describe(domain);
    CHECK_FALSE(domain.has_external_ratio());
    CHECK_FALSE(domain.external_ratio_reason().empty());
    FreeExtents one;
    one.add({0, UINT64_MAX});
    CHECK(one.external_ratio() == 0.0);
    one.add({0, UINT64_MAX});  // sums do not wrap around
    CHECK(one.sum() == UINT64_MAX);
}

TEST_CASE("free extents are what an array of bytes says, whatever is taken and given back") {
    constexpr std::size_t kSpace = 256;
    std::mt19937_64 random(5);
    for (int round = 0; round < 40; ++round) {
        std::vector<bool> taken(kSpace, false);
        ExtentMap<int> map;
        const std::uint64_t alignment = 1 + random() % 16, granularity = 1 + random() % 16;
        for (int step = 0; step < 2000; ++step) {
            const std::uint64_t begin = random() % kSpace, size = 1 + random() % 24;
            const Range range{begin, std::min<std::uint64_t>(begin + size, kSpace)};
            if (random() % 2 == 0) {
                if (map.insert(range, 0))
                    std::fill(taken.begin() + range.begin, taken.begin() + range.end, true);
            } else {
                map.cut(range);
                std::fill(taken.begin() + range.begin, taken.begin() + range.end, false);
            }
            if (step % 8 != 0) continue;
            FreeExtents measured(alignment, granularity);
            map.for_each_gap({0, kSpace}, [&](const Range& gap) { measured.add(gap); });
            // Byte by byte: what an aligned request, one granule after the other, could take of each run.
            std::uint64_t sum = 0, count = 0;
            std::multiset<std::uint64_t, std::greater<>> sizes;
            for (std::size_t at = 0; at < kSpace;) {
                if (taken[at]) {
                    ++at;
                    continue;
                }
                std::size_t end = at;
                while (end < kSpace && !taken[end]) ++end;
                while (at < end && at % alignment != 0) ++at;
                std::uint64_t usable = 0;
                while (at + usable + granularity <= end) usable += granularity;
                if (usable != 0) {
                    sizes.insert(usable);
                    ++count;
                }
                sum += usable;
                at = end;
            }
            REQUIRE(measured.sum() == sum);
            REQUIRE(measured.count() == count);
            REQUIRE(measured.largest() == (sizes.empty() ? 0 : *sizes.begin()));
            std::vector<std::uint64_t> most(sizes.begin(), sizes.end());
            most.resize(std::min(most.size(), FreeExtents::kLargestKept));
            REQUIRE(measured.largest_first() == most);
            std::uint64_t of_classes = 0;
            for (const auto& each : measured.classes()) of_classes += each.sum;
            REQUIRE(of_classes == sum);
        }
    }
}

namespace {

const report::InternalRow& row_of(const google::protobuf::RepeatedPtrField<report::InternalRow>& rows,
                                  const std::string& allocator, std::optional<std::uint64_t> at_least = {}) {
    for (const report::InternalRow& row : rows) {
        if (row.allocator() != allocator) continue;
        if (row.has_at_least_bytes() == at_least.has_value() && row.at_least_bytes() == at_least.value_or(0))
            return row;
    }
    FAIL("no row of " << allocator);
    return rows[0];
}

Interval interval_of(const report::Quantity& quantity) {
    Interval out;
    if (quantity.has_low_bytes()) out.low = quantity.low_bytes();
    if (quantity.has_high_bytes()) out.high = quantity.high_bytes();
    return out;
}

}  // namespace

TEST_CASE("inside VMM handles: 40 KiB written in each of four pages of 2 MiB") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    small_objects(p, 4, 40 * kKiB).create(9999, kGiB).failed().snapshot(512 * kMiB, 1 * kGiB).snapshot_end();
    const auto e = explained(session);
    REQUIRE(e.measures().by_allocator_size() == 1);
    const auto& row = row_of(e.measures().by_allocator(), "VMM");
    CHECK(row.count() == 4);
    CHECK(interval_of(row.charged()) == Interval::exactly(8 * kMiB));
    CHECK(row.requested().definition() == Q::payload_written);
    CHECK(interval_of(row.requested()) == Interval::exactly(160 * kKiB));
    CHECK(interval_of(row.internal_waste()) == Interval::exactly(8 * kMiB - 160 * kKiB));
    CHECK(row.ratio().low() == doctest::Approx(1.0 - 40.0 / 2048.0));
    CHECK(row.ratio().low() == row.ratio().high());
    CHECK(row_of(e.measures().by_size_class(), "VMM", 2 * kMiB).count() == 4);
    CHECK(e.measures().by_call_site().empty());  // no stacks were recorded
}

TEST_CASE("inside linear memory: small blocks share pages, so what each class is charged has two ends") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    // 600 KiB and 300 KiB in one page of 2 MiB; 3 MiB in pages of its own.
    p.linear(0x10000000, 600 * kKiB).stack(7);
    p.linear(0x10000000 + kMiB, 300 * kKiB).stack(7);
    p.linear(0x20000000, 3 * kMiB).stack(9);
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, 1 * kGiB).snapshot_end();
    const auto e = explained(session);
    const auto& all = row_of(e.measures().by_allocator(), "linear");
    CHECK(all.count() == 3);
    CHECK(interval_of(all.requested()) == Interval::exactly(3 * kMiB + 900 * kKiB));
    CHECK(interval_of(all.charged()) == Interval{3 * kMiB + 900 * kKiB, 6 * kMiB});
    CHECK(all.charged().evidence() == Q::assumed);
    CHECK(interval_of(all.internal_waste()) == Interval{0, 3 * kMiB - 900 * kKiB});
    CHECK(all.ratio().low() == 0);
    CHECK(all.ratio().high() == doctest::Approx(1.0 - (3 * 1024 + 900) / (6 * 1024.0)));
    // A page that two classes share is in the upper end of both.
    CHECK(interval_of(row_of(e.measures().by_size_class(), "linear", 512 * kKiB).charged()) ==
          Interval{600 * kKiB, 2 * kMiB});
    CHECK(interval_of(row_of(e.measures().by_size_class(), "linear", 256 * kKiB).charged()) ==
          Interval{300 * kKiB, 2 * kMiB});
    CHECK(interval_of(row_of(e.measures().by_size_class(), "linear", 2 * kMiB).charged()) ==
          Interval{3 * kMiB, 4 * kMiB});
    REQUIRE(e.measures().by_call_site_size() == 2);
    CHECK(e.measures().by_call_site(0).count() == 1);  // the most charged first
    CHECK(interval_of(e.measures().by_call_site(1).requested()) == Interval::exactly(900 * kKiB));
    CHECK(interval_of(e.measures().by_call_site(1).charged()) == Interval{900 * kKiB, 2 * kMiB});
}

TEST_CASE("inside a pool, and the two definitions that others use, each under its own name") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    p.pool_take(0x30000000, 1000, 0x99).pool_take(0x30000400, 512, 0x99);
    p.pool_take(0, kGiB, 0x99).failed().snapshot(512 * kMiB, 1 * kGiB).snapshot_pool(0x99, 1536, 32 * kMiB);
    p.snapshot_end();
    const auto e = explained(session);
    const auto& row = row_of(e.measures().by_allocator(), "pool 0x99");
    // 1000 B in two units of 512 B, 512 B in one, by a rule that this trace does not show.
    CHECK(interval_of(row.charged()) == Interval{1512, 1536});
    CHECK(row.charged().evidence() == Q::assumed);
    CHECK(interval_of(row.internal_waste()) == Interval{0, 24});
    REQUIRE(e.measures().others_size() == 2);
    CHECK(e.measures().others(0).name() == "1 - peak active / peak reserved");
    // The driver's own high marks: no more was ever in use, and no more reserved.
    CHECK(e.measures().others(0).ratio().low() ==
          doctest::Approx(1.0 - 1536.0 / static_cast<double>(32 * kMiB)));
    CHECK_FALSE(e.measures().others(0).first().scope().has_snapshot());
    CHECK(e.measures().others(1).name() == "reserved - allocated");
    CHECK(interval_of(e.measures().others(1).bytes()) == Interval::exactly(32 * kMiB - 1536));
}

TEST_CASE(
    "a framework's allocator: gaps by class, what was asked for is not known, peaks are of two moments") {
    SessionBuilder session;
    auto& p = session.process(1 * kGiB);
    constexpr std::uint64_t kAt = 0x7f0000000000;
    p.linear(kAt, 20 * kMiB);
    p.call(wire::Kind::kBlockAcquired, kAt, 8 * kMiB, 8 * kMiB, 20 * kMiB);
    p.call(wire::Kind::kBlockAcquired, kAt + 8 * kMiB, 4 * kMiB, 12 * kMiB, 20 * kMiB);
    p.call(wire::Kind::kBlockReleased, kAt, 8 * kMiB, 4 * kMiB, 20 * kMiB);
    p.linear(0, kGiB).failed().snapshot(512 * kMiB, 1 * kGiB).snapshot_end();
    const auto e = explained(session);
    // Gaps of 8 MiB before the block and 8 MiB behind it.
    const auto& gaps = domain(e, "framework's allocator: large segments, of a stream that is not known");
    CHECK(gaps.free_sum().low_bytes() == 16 * kMiB);
    CHECK(gaps.external_ratio() == 0.5);
    REQUIRE(gaps.extent_classes_size() == 1);
    CHECK(gaps.extent_classes(0).at_least_bytes() == 8 * kMiB);
    CHECK(gaps.extent_classes(0).count() == 2);
    const auto& row = row_of(e.measures().by_allocator(), "framework's blocks");
    CHECK(interval_of(row.charged()) == Interval::exactly(4 * kMiB));
    CHECK(row.requested().evidence() == Q::unknown);
    CHECK_FALSE(row.ratio().has_high());
    REQUIRE(e.measures().others_size() == 2);
    CHECK(e.measures().others(0).ratio().low() == doctest::Approx(1.0 - 12.0 / 20.0));
    CHECK_FALSE(e.measures().others(0).first().scope().has_snapshot());
    CHECK(interval_of(e.measures().others(1).bytes()) == Interval::exactly(16 * kMiB));
}

TEST_CASE("internal parts are what a naive count says, whatever is taken and given back") {
    std::mt19937_64 random(11);
    constexpr std::uint64_t kSmallPage = 4096;
    struct Block {
        std::uint64_t bytes;
        std::uint32_t stack;
    };
    std::map<std::uint64_t, Block> live;  // by address
    ProcessState state({{0, kSmallPage}});
    std::uint64_t sequence = 0;
    for (int step = 0; step < 60'000; ++step) {
        Event event;
        event.sequence = {++sequence};
        event.device = 0;
        if (live.size() < 40 || random() % 2 == 0) {
            const std::uint64_t address = 0x10000000 + (random() % 64) * 2 * kMiB + (random() % 8) * 256;
            const std::uint64_t bytes = random() % 5 == 0 ? kMiB + random() % kMiB / 2 : 1 + random() % 256;
            const auto behind = live.upper_bound(address);
            if (behind != live.end() && behind->first < address + bytes) continue;
            if (behind != live.begin() &&
                std::prev(behind)->first + std::prev(behind)->second.bytes > address)
                continue;
            event.kind = wire::Kind::kLinearAcquired;
            event.address = {address};
            event.bytes = {bytes};
            event.stack = static_cast<std::uint32_t>(random() % 3);
            live[address] = {bytes, event.stack};
        } else {
            auto at = live.begin();
            std::advance(at, static_cast<std::ptrdiff_t>(random() % live.size()));
            event.kind = wire::Kind::kLinearReleased;
            event.address = {at->first};
            live.erase(at);
        }
        state.apply(event);
        if (step % 100 != 0 || live.empty()) continue;
        Losses none;
        none.counted = true;
        const InternalParts parts =
            internal_parts_of(state, FrameworkState{}, 0, Payload{}, none, at_snapshot(1));
        REQUIRE(parts.by_allocator.size() == 1);
        const auto check = [&](const InternalPart& part, auto&& belongs) {
            std::uint64_t count = 0, requested = 0, large = 0;
            std::set<std::uint64_t> pages;
            for (const auto& [address, block] : live) {
                if (!belongs(block)) continue;
                ++count;
                requested += block.bytes;
                if (block.bytes > kPackedUpTo) {
                    large += (block.bytes + kSmallPage - 1) / kSmallPage * kSmallPage;
                    continue;
                }
                for (std::uint64_t byte = address; byte < address + block.bytes; ++byte)
                    pages.insert(byte / kSmallPage);
            }
            REQUIRE(part.count == count);
            REQUIRE(part.payload.interval() == Interval::exactly(requested));
            REQUIRE(part.charged.interval() == Interval{requested, large + pages.size() * kSmallPage});
        };
        check(parts.by_allocator[0], [](const Block&) { return true; });
        for (const InternalPart& part : parts.by_size_class) {
            const std::uint64_t least = part.size_class.value();
            check(part, [&](const Block& block) { return block.bytes >= least && block.bytes < 2 * least; });
        }
        for (const InternalPart& part : parts.by_call_site)
            check(part, [&](const Block& block) { return block.stack == part.stack; });
    }
}
