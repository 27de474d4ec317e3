#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "collector/sequence_merge.h"

using namespace fragscope;
using collector::SequenceMerge;

namespace {

wire::Record numbered(std::uint64_t sequence, std::uint64_t extra = 0) {
    wire::Record record{};
    record.sequence = sequence;
    record.extra = extra;
    record.kind = wire::Kind::kCalled;
    return record;
}

std::vector<std::uint64_t> release(SequenceMerge& merge, std::uint64_t now, bool all = false) {
    std::vector<std::uint64_t> out;
    merge.release(now, all, [&](const SequenceMerge::Held& held) { out.push_back(held.record.sequence); });
    return out;
}

using Numbers = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("contiguous numbers leave at once, in order") {
    SequenceMerge merge;
    for (const std::uint64_t n : {3, 1, 2}) merge.add(numbered(n), 0, 0);
    CHECK(release(merge, 0) == Numbers{1, 2, 3});
    CHECK(merge.complete_below() == 4);
    CHECK(merge.held() == 0);
}

TEST_CASE("behind a gap nothing leaves until the missing number comes") {
    SequenceMerge merge;
    for (const std::uint64_t n : {1, 3, 4}) merge.add(numbered(n), 0, 0);
    CHECK(release(merge, 1) == Numbers{1});
    CHECK(merge.complete_below() == 2);
    CHECK(release(merge, collector::kHoldNs - 1).empty());
    merge.add(numbered(2), 0, 2);
    CHECK(release(merge, 3) == Numbers{2, 3, 4});
    CHECK(merge.complete_below() == 5);
}

TEST_CASE("a gap is passed over after a time, and what comes later still leaves") {
    SequenceMerge merge;
    merge.add(numbered(2), 0, 0);
    merge.add(numbered(3), 0, 0);
    CHECK(release(merge, collector::kHoldNs - 1).empty());
    CHECK(release(merge, collector::kHoldNs) == Numbers{2, 3});
    CHECK(merge.complete_below() == 1);
    merge.add(numbered(1), 0, collector::kHoldNs);
    CHECK(release(merge, collector::kHoldNs) == Numbers{1});
    merge.add(numbered(4), 0, collector::kHoldNs);
    CHECK(release(merge, collector::kHoldNs) == Numbers{4});
    CHECK(merge.complete_below() == 1);  // it cannot know that nothing else was missing
    CHECK(merge.next() == 5);
}

TEST_CASE("too many held records do not wait") {
    SequenceMerge merge;
    for (std::uint64_t n = 2; n < 2 + collector::kMaxHeld; ++n) merge.add(numbered(n), 0, 0);
    CHECK(release(merge, 0).empty());
    merge.add(numbered(2 + collector::kMaxHeld), 0, 0);
    CHECK(release(merge, 0).size() == collector::kMaxHeld + 1);
}

TEST_CASE("the end of a process waits for nothing") {
    SequenceMerge merge;
    for (const std::uint64_t n : {9, 5, 7}) merge.add(numbered(n), 0, 0);
    CHECK(release(merge, 0, true) == Numbers{5, 7, 9});
    CHECK(merge.next() == 10);
}

TEST_CASE("further records of one call keep their order") {
    SequenceMerge merge;
    merge.add(numbered(2, 0), 0, 0);
    merge.add(numbered(2, 1), 0, 0);
    merge.add(numbered(2, 2), 0, 0);
    merge.add(numbered(1), 0, 0);
    std::vector<std::uint64_t> extras;
    merge.release(0, false, [&](const SequenceMerge::Held& held) { extras.push_back(held.record.extra); });
    CHECK(extras == Numbers{0, 0, 1, 2});
}

TEST_CASE("whatever the threads' shares and the rounds, all numbers leave once and in order") {
    std::mt19937 random(1);
    for (int round = 0; round < 50; ++round) {
        constexpr std::uint64_t kCount = 500;
        std::vector<std::vector<std::uint64_t>> threads(4);
        for (std::uint64_t n = 1; n <= kCount; ++n) threads[random() % 4].push_back(n);
        SequenceMerge merge;
        Numbers out;
        while (std::any_of(threads.begin(), threads.end(), [](const auto& t) { return !t.empty(); })) {
            for (auto& thread : threads) {
                const std::size_t some = std::min<std::size_t>(random() % 20, thread.size());
                for (std::size_t i = 0; i < some; ++i) merge.add(numbered(thread[i]), 0, 0);
                thread.erase(thread.begin(), thread.begin() + static_cast<std::ptrdiff_t>(some));
            }
            for (const std::uint64_t n : release(merge, 0)) out.push_back(n);
        }
        REQUIRE(out.size() == kCount);
        CHECK(std::is_sorted(out.begin(), out.end()));
    }
}
