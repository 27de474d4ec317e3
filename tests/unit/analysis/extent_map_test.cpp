// Extent maps and sets against arrays of bytes in a small space, by random operations.
#include "analysis/extent_map.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

using namespace fragscope::analysis;

namespace {

constexpr std::uint64_t kSpace = 96;
using Bytes = std::array<int, kSpace>;  // 0: free, otherwise the value of the extent there

Range random_range(std::mt19937& random) {
    const auto a = random() % kSpace, b = random() % (kSpace + 1);
    return {std::min<std::uint64_t>(a, b), std::max<std::uint64_t>(a, b)};
}

// The runs of equal bytes: what the map has to hold. Values are unique, so that neighbours never look like
// one.
std::vector<std::pair<Range, int>> runs(const Bytes& bytes, bool of_free) {
    std::vector<std::pair<Range, int>> out;
    for (std::uint64_t at = 0; at < kSpace;) {
        std::uint64_t end = at;
        while (end < kSpace && bytes[end] == bytes[at]) ++end;
        if ((bytes[at] == 0) == of_free) out.push_back({{at, end}, bytes[at]});
        at = end;
    }
    return out;
}

}  // namespace

TEST_CASE("an extent map equals an array of bytes") {
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        ExtentMap<int> map;
        Bytes bytes{};
        int next = 1;
        for (int step = 0; step < 500; ++step) {
            const Range range = random_range(random);
            if (random() % 2 == 0) {
                bool free = range.size() != 0;
                for (auto at = range.begin; at < range.end; ++at) free = free && bytes[at] == 0;
                REQUIRE(map.overlaps(range) == (range.size() != 0 && !free));
                REQUIRE(map.insert(range, next) == free);
                if (free) {
                    for (auto at = range.begin; at < range.end; ++at) bytes[at] = next;
                    ++next;
                }
            } else {
                const auto before = runs(bytes, false);
                const auto removed = map.cut(range);
                std::vector<std::pair<Range, int>>
                    expected;  // original range of every extent that loses something
                for (const auto& [run, value] : before) {
                    if (run.begin < range.end && run.end > range.begin) expected.push_back({run, value});
                }
                if (range.size() == 0) expected.clear();
                REQUIRE(removed.size() == expected.size());
                for (std::size_t i = 0; i < removed.size(); ++i) {
                    REQUIRE(removed[i].original == expected[i].first);
                    REQUIRE(removed[i].value == expected[i].second);
                    REQUIRE(removed[i].removed.begin == std::max(range.begin, removed[i].original.begin));
                    REQUIRE(removed[i].removed.end == std::min(range.end, removed[i].original.end));
                    const bool left = removed[i].original.begin < range.begin;
                    const bool right = removed[i].original.end > range.end;
                    REQUIRE(removed[i].cut == (left && right   ? Cut::kSplit
                                               : left || right ? Cut::kShrunk
                                                               : Cut::kFreed));
                }
                // The two rests of a split are one value twice in the map, so give the right one a new value
                // in both.
                for (auto at = range.begin; at < range.end; ++at) bytes[at] = 0;
                for (const auto& part : removed) {
                    if (part.cut != Cut::kSplit) continue;
                    *map.value_at(range.end) = next;
                    for (auto at = range.end; at < part.original.end; ++at) bytes[at] = next;
                    ++next;
                }
            }
            std::vector<std::pair<Range, int>> held, gaps;
            map.for_each([&](const Range& r, int value) { held.push_back({r, value}); });
            map.for_each_gap({0, kSpace}, [&](const Range& r) { gaps.push_back({r, 0}); });
            REQUIRE(held == runs(bytes, false));
            REQUIRE(gaps == runs(bytes, true));
            std::uint64_t total = 0;
            for (const int value : bytes) total += value != 0 ? 1 : 0;
            REQUIRE(map.total() == total);
            const std::uint64_t probe = random() % kSpace;
            const auto found = map.find(probe);
            REQUIRE(found.has_value() == (bytes[probe] != 0));
            if (found) REQUIRE(found->value == bytes[probe]);
        }
    }
}

TEST_CASE("an extent set equals an array of bytes, with its sum and largest extent") {
    std::mt19937 random(2);
    for (int round = 0; round < 200; ++round) {
        ExtentSet set;
        Bytes bytes{};
        for (int step = 0; step < 500; ++step) {
            const Range range = random_range(random);
            std::uint64_t there = 0;
            for (auto at = range.begin; at < range.end; ++at) there += bytes[at] != 0 ? 1 : 0;
            REQUIRE(set.overlap(range) == there);
            const bool add = random() % 2 == 0;
            if (add) {
                set.add(range);
            } else {
                REQUIRE(set.remove(range) == there);
            }
            for (auto at = range.begin; at < range.end; ++at) bytes[at] = add ? 1 : 0;
            const auto expected = runs(bytes, false);
            std::vector<std::pair<Range, int>> held;
            set.for_each([&](const Range& r) { held.push_back({r, 1}); });
            REQUIRE(held == expected);
            std::uint64_t sum = 0, largest = 0;
            for (const auto& [run, value] : expected) {
                sum += run.size();
                largest = std::max(largest, run.size());
            }
            REQUIRE(set.sum() == sum);
            REQUIRE(set.largest() == largest);
        }
    }
}

TEST_CASE("many extents, so that chunks fill, split, empty and join: the set against a plain map") {
    constexpr std::uint64_t kPages = 4000;
    std::mt19937 random(5);
    for (int round = 0; round < 4; ++round) {
        ExtentSet set;
        ExtentMap<int> map;
        std::vector<bool> held(kPages);
        for (int step = 0; step < 30000; ++step) {
            // Waves of growth and decay, at random places or from one end to the other.
            const bool grow = random() % 8 < (step / 6000 % 2 == 0 ? 6u : 2u);
            const std::uint64_t page =
                round == 0 ? static_cast<std::uint64_t>(step) % kPages : random() % kPages;
            const Range range{page * 16, page * 16 + (random() % 3 == 0 ? 8u : 16u)};
            if (grow) {
                REQUIRE(map.insert(range, static_cast<int>(page)) == !held[page]);
                set.add(range);
            } else {
                const auto removed = map.take(range.begin);
                REQUIRE(removed.has_value() == held[page]);
                if (removed) REQUIRE(removed->value == static_cast<int>(page));
                set.remove({page * 16, page * 16 + 16});
            }
            held[page] = grow;
            if (step % 97 != 0) continue;
            std::uint64_t sum = 0, largest = 0, at = 0;
            set.for_each([&](const Range& r) {
                REQUIRE((sum == 0 || r.begin > at));  // in order, and never touching
                at = r.end;
                sum += r.size();
                largest = std::max(largest, r.size());
            });
            REQUIRE(set.sum() == sum);
            REQUIRE(set.largest() == largest);
            std::size_t count = 0;
            map.for_each([&](const Range& r, int value) {
                REQUIRE(r.begin == static_cast<std::uint64_t>(value) * 16);
                REQUIRE(held[static_cast<std::size_t>(value)]);
                REQUIRE(set.overlap(r) == r.size());
                ++count;
            });
            REQUIRE(count == static_cast<std::size_t>(std::count(held.begin(), held.end(), true)));
            REQUIRE(map.size() == count);
        }
    }
}

TEST_CASE("what a request can use of a free extent") {
    CHECK(usable({0, 100}, 1, 1) == 100);
    CHECK(usable({10, 100}, 16, 1) == 84);   // starts at 16
    CHECK(usable({10, 100}, 16, 16) == 80);  // whole units
    CHECK(usable({10, 15}, 16, 1) == 0);     // no aligned start inside
    CHECK(usable({UINT64_MAX - 3, UINT64_MAX}, 4096, 1) == 0);
    CHECK(round_up(UINT64_MAX, 4096) == UINT64_MAX - 4095);
    CHECK(range_of(UINT64_MAX - 1, 10) == Range{UINT64_MAX - 1, UINT64_MAX});
}
