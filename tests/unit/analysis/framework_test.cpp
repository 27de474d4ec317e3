// A framework allocator's books: hand-computed cases by PyTorch's public rules, and random programs against a
// model that keeps every 512 bytes by themselves.
#include "analysis/framework.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

constexpr std::uint64_t kSegment = 0x7f0000000000;
constexpr std::uint64_t kStream = 0x55;

FrameworkState replayed(SessionBuilder& session) {
    ProcessState state({{0, 2 * kMiB}});
    FrameworkState framework;
    for (const Event& event : session.trace().events[0]) {
        state.apply(event);
        framework.apply(event, state);
    }
    return framework;
}

struct Piece {
    std::uint64_t address;
    std::uint64_t bytes;
    char state;  // 'l'ive, 'w'aiting, 'f'ree
    bool operator==(const Piece&) const = default;
};

std::vector<Range> segments_of(const FrameworkState& state) {
    std::vector<Range> out;
    state.for_each_segment([&](const Range& range, const SegmentFacts&) { out.push_back(range); });
    return out;
}

std::vector<Piece> pieces_of(const FrameworkState& state, const Range& segment) {
    std::vector<Piece> out;
    state.for_each_piece(segment, [&](const Range& piece, const FrameworkBlock* block) {
        const char kind = block == nullptr ? 'f' : block->waits_for == 0 ? 'l' : 'w';
        out.push_back({piece.begin, piece.size(), kind});
    });
    return out;
}

}  // namespace

TEST_CASE("a segment is the linear allocation that a block lies in; gaps merge around freed blocks") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB).linear(0x10000, kMiB);  // the second is not the framework's
    p.call(Kind::kBlockAcquired, kSegment, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment + 2 * kMiB, 3 * kMiB, 5 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment + 5 * kMiB, 4 * kMiB, 9 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockReleased, kSegment + 2 * kMiB, 3 * kMiB, 6 * kMiB, 20 * kMiB);
    const FrameworkState state = replayed(session);
    REQUIRE(segments_of(state).size() == 1);
    CHECK(pieces_of(state, segments_of(state)[0]) ==
          std::vector<Piece>{{kSegment, 2 * kMiB, 'l'},
                             {kSegment + 2 * kMiB, 3 * kMiB, 'f'},
                             {kSegment + 5 * kMiB, 4 * kMiB, 'l'},
                             {kSegment + 9 * kMiB, 11 * kMiB, 'f'}});
    const FrameworkDevice& books = state.device(0);
    CHECK(books.live() == 6 * kMiB);
    CHECK(books.waiting() == 0);
    CHECK(books.cached() == 14 * kMiB);
    CHECK(books.all().allocation.current == 2);
    CHECK(books.all().allocation.peak == 3);
    CHECK(books.all().inactive_split.current == 2);
    CHECK(books.all().inactive_split_bytes.current == 14 * kMiB);
    // After the first block was cut off: 18 MiB.
    CHECK(books.all().inactive_split_bytes.peak == 18 * kMiB);
    REQUIRE(books.word);
    CHECK(books.word->agrees());
    CHECK(books.words == 4);
    CHECK(books.disagreements == 0);
}

TEST_CASE("a segment without a block is no inactive split, and stays a segment until the driver frees it") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 2 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 512, 512, 2 * kMiB);
    p.call(Kind::kBlockReleased, kSegment, 512, 0, 2 * kMiB);
    FrameworkState state = replayed(session);
    CHECK(state.device(0).all().inactive_split.current == 0);
    CHECK(state.device(0).all().inactive_split.peak == 1);
    CHECK(state.device(0).cached() == 2 * kMiB);
    CHECK(state.device(0).stats[FrameworkDevice::kSmall].segment.current == 1);
    CHECK(state.device(0).stats[FrameworkDevice::kLarge].segment.current == 0);
    p.free(kSegment);
    state = replayed(session);
    CHECK(segments_of(state).empty());
    CHECK(state.device(0).all().reserved_bytes.current == 0);
    CHECK(state.device(0).all().reserved_bytes.peak == 2 * kMiB);
}

TEST_CASE("a freed block waits until all its events have happened, and does not merge before") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 4 * kMiB, 4 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockWaits, 0, 0, 0xe1, 0x66).call(Kind::kBlockWaits, 0, 0, 0xe2, 0x77);
    p.call(Kind::kBlockReleased, kSegment, 4 * kMiB, 0, 20 * kMiB);
    FrameworkState state = replayed(session);
    CHECK(state.device(0).live() == 0);
    CHECK(state.device(0).waiting() == 4 * kMiB);
    CHECK(state.device(0).all().allocation.current == 0);
    CHECK(state.device(0).all().active.current == 1);
    CHECK(pieces_of(state, segments_of(state)[0]) ==
          std::vector<Piece>{{kSegment, 4 * kMiB, 'w'}, {kSegment + 4 * kMiB, 16 * kMiB, 'f'}});
    p.call(Kind::kBlockWaitOver, 0, 0, 0xe2);
    CHECK(replayed(session).device(0).waiting() == 4 * kMiB);
    p.call(Kind::kBlockWaitOver, 0, 0, 0xe1);
    state = replayed(session);
    CHECK(state.device(0).waiting() == 0);
    CHECK(pieces_of(state, segments_of(state)[0]) == std::vector<Piece>{{kSegment, 20 * kMiB, 'f'}});
    CHECK(state.contradictions()() == 0);
}

TEST_CASE(
    "events belong to the block that the same thread frees next; an event used again waits for the new one") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment + 2 * kMiB, 2 * kMiB, 4 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment + 4 * kMiB, 2 * kMiB, 6 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockWaits, 0, 0, 0xe1, 0x66);
    p.thread(2).call(Kind::kBlockReleased, kSegment + 2 * kMiB, 2 * kMiB, 4 * kMiB, 20 * kMiB);
    CHECK(replayed(session).device(0).waiting() == 0);
    p.thread(1).call(Kind::kBlockReleased, kSegment, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    CHECK(replayed(session).device(0).waiting() == 2 * kMiB);
    // That e1 is free for another block says that the first one waits no more.
    p.call(Kind::kBlockWaits, 0, 0, 0xe1, 0x66);
    p.call(Kind::kBlockReleased, kSegment + 4 * kMiB, 2 * kMiB, 0, 20 * kMiB);
    const FrameworkState state = replayed(session);
    CHECK(pieces_of(state, segments_of(state)[0]) ==
          std::vector<Piece>{{kSegment, 4 * kMiB, 'f'},
                             {kSegment + 4 * kMiB, 2 * kMiB, 'w'},
                             {kSegment + 6 * kMiB, 14 * kMiB, 'f'}});
}

TEST_CASE("events of a block that was freed during a capture, and come later, are nobody else's") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockWaits, 0, 0, 0xe1, 0x66);
    p.call(Kind::kBlockAcquired, kSegment + 2 * kMiB, 2 * kMiB, 4 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockReleased, kSegment, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    CHECK(replayed(session).device(0).waiting() == 0);
    p.call(Kind::kBlockWaits, 0, 0, 0xe2, 0x66).call(Kind::kBlockWaitOver, 0, 0, 0xe2);
    p.call(Kind::kBlockReleased, kSegment + 2 * kMiB, 2 * kMiB, 0, 20 * kMiB);
    CHECK(replayed(session).device(0).waiting() == 0);
}

TEST_CASE(
    "expandable segments: every maximal mapped range of the reservation, and no merging across a hole") {
    SessionBuilder session;
    auto& p = session.process();
    p.reserve(kSegment, 100 * kMiB);
    for (std::uint64_t page = 0; page < 3; ++page) {
        p.create(page + 1, 20 * kMiB).map(kSegment + page * 20 * kMiB, 20 * kMiB, page + 1);
    }
    p.call(Kind::kBlockStream, 0, 0, kStream);
    p.call(Kind::kBlockAcquired, kSegment, 50 * kMiB, 50 * kMiB, 60 * kMiB);
    p.call(Kind::kBlockReleased, kSegment, 50 * kMiB, 0, 60 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 5 * kMiB, 5 * kMiB, 60 * kMiB);
    p.unmap(kSegment + 20 * kMiB, 20 * kMiB);
    // Mapped for a request that comes later, or never.
    p.create(4, 20 * kMiB).map(kSegment + 60 * kMiB, 20 * kMiB, 4);
    FrameworkState state = replayed(session);
    REQUIRE(segments_of(state).size() == 2);
    CHECK(pieces_of(state, segments_of(state)[0]) ==
          std::vector<Piece>{{kSegment, 5 * kMiB, 'l'}, {kSegment + 5 * kMiB, 15 * kMiB, 'f'}});
    CHECK(pieces_of(state, segments_of(state)[1]) ==
          std::vector<Piece>{{kSegment + 40 * kMiB, 40 * kMiB, 'f'}});
    const FrameworkStats& all = state.device(0).all();
    CHECK(all.reserved_bytes.current == 60 * kMiB);
    CHECK(all.segment.current == 0);
    CHECK(all.inactive_split.current == 0);
    CHECK(all.inactive_split.peak == 0);
    state.for_each_segment([&](const Range&, const SegmentFacts& facts) {
        CHECK(facts.kind == SegmentKind::kExpandable);
        CHECK(facts.stream == ObjectId{kStream});
        CHECK(facts.large);
    });
    CHECK(state.device(0).disagreements == 0);
    p.unmap(kSegment, 20 * kMiB).unmap(kSegment + 40 * kMiB, 40 * kMiB).unreserve(kSegment, 100 * kMiB);
    state = replayed(session);
    CHECK(segments_of(state).empty());
    CHECK(state.device(0).live() == 0);
    CHECK(state.device(0).all().reserved_bytes.current == 0);
}

TEST_CASE("a context takes its segments with it, and pools' allocations end with their release") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB, 0xc1).pool_take(0x5000000, 3 * kMiB, 0xb0);
    p.call(Kind::kBlockAcquired, kSegment, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockAcquired, 0x5000000, 3 * kMiB, 5 * kMiB, 23 * kMiB);
    FrameworkState state = replayed(session);
    CHECK(segments_of(state).size() == 2);
    CHECK(state.device(0).disagreements == 0);
    p.call(Kind::kContextDestroyed, 0, 0, 0xc1);
    state = replayed(session);
    CHECK(segments_of(state) == std::vector<Range>{{0x5000000, 0x5000000 + 3 * kMiB}});
    CHECK(state.device(0).live() == 3 * kMiB);
    p.pool_give(0x5000000);
    state = replayed(session);
    CHECK(segments_of(state).empty());
    CHECK(state.device(0).live() == 0);
}

TEST_CASE("blocks without an extent are counted beside the segments, as an allocator's log has them") {
    SessionBuilder session;
    auto& p = session.process();
    p.call(Kind::kBlockAcquired, 0x1000, 1024, 1024, 0);
    p.call(Kind::kBlockAcquired, 0x2000, 2 * kMiB, 1024 + 2 * kMiB, 0);
    p.call(Kind::kBlockReleased, 0x1000, 1024, 2 * kMiB, 0);
    const FrameworkState state = replayed(session);
    CHECK(segments_of(state).empty());
    CHECK(state.device(0).live() == 2 * kMiB);
    CHECK(state.device(0).outside_bytes == 2 * kMiB);
    CHECK(state.device(0).segments_unseen);
    CHECK(state.device(0).cached() == 0);
    CHECK(state.device(0).disagreements == 0);
}

TEST_CASE("the allocator's own totals tell what the records do not: blocks of before the recording") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 2 * kMiB, 12 * kMiB, 40 * kMiB);
    p.call(Kind::kBlockReleased, 0xdead0000, 10 * kMiB, 2 * kMiB, 40 * kMiB);
    const FrameworkState state = replayed(session);
    const FrameworkDevice& books = state.device(0);
    CHECK(books.disagreements == 2);
    REQUIRE(books.first_disagreement);
    CHECK(books.first_disagreement->allocated == 12 * kMiB);
    CHECK(books.first_disagreement->our_allocated == 2 * kMiB);
    CHECK_FALSE(books.word->agrees());  // 40 MiB reserved against 20
    CHECK(state.contradictions().unknown_releases == 1);
}

TEST_CASE("a block at an address that is not free ends what was there; the driver's free ends blocks") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 4 * kMiB, 4 * kMiB, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment + 2 * kMiB, 4 * kMiB, 4 * kMiB, 20 * kMiB);
    FrameworkState state = replayed(session);
    CHECK(state.contradictions().overlapping_acquisitions == 1);
    CHECK(state.device(0).live() == 4 * kMiB);
    p.free(kSegment);
    state = replayed(session);
    CHECK(state.blocks().empty());
    CHECK(state.device(0).live() == 0);
    CHECK(state.device(0).all().inactive_split.current == 0);
}

TEST_CASE("retries are told by the driver's refusals before a block, as far as they can be") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(kSegment, 20 * kMiB).failed().linear(kSegment, 20 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 2 * kMiB, 2 * kMiB, 20 * kMiB);
    CHECK(replayed(session).device(0).retries_at_least == 0);  // with max_split_size_mb it is none
    CHECK(replayed(session).device(0).retries_at_most == 1);
    p.linear(0, 40 * kMiB).failed().linear(0, 40 * kMiB).failed();
    p.call(Kind::kBlockRefused, 0, 40 * kMiB, 2 * kMiB, 20 * kMiB);
    const FrameworkState state = replayed(session);
    CHECK(state.device(0).retries_at_least == 1);
    CHECK(state.device(0).retries_at_most == 2);
    CHECK(state.device(0).refused == 1);
    // A limit of the allocator's own (set_per_process_memory_fraction): it never asks, returns a segment, and
    // goes on.
    p.free(kSegment).linear(kSegment, 40 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 40 * kMiB, 40 * kMiB, 40 * kMiB);
    CHECK(replayed(session).device(0).retries_at_least == 1);
    CHECK(replayed(session).device(0).retries_at_most == 3);
    p.call(Kind::kBlockReleased, kSegment, 40 * kMiB, 0, 40 * kMiB);
    p.call(Kind::kBlockAcquired, kSegment, 40 * kMiB, 40 * kMiB, 40 * kMiB);  // out of its cache
    CHECK(replayed(session).device(0).retries_at_most == 3);
}

TEST_CASE("random programs: segments, pieces and totals equal a model of 512-byte cells") {
    constexpr std::uint64_t kCell = 512;
    constexpr std::uint64_t kCells = 4096;  // 2 MiB a segment
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const auto below = [&](std::uint64_t n) { return random() % n; };
        SessionBuilder session;
        auto& p = session.process();
        std::map<std::uint64_t, std::vector<char>> segments;  // cells: 'f', 'l', 'w'
        struct Held {
            std::uint64_t segment, first, cells;
        };
        std::vector<Held> live;
        std::map<std::uint64_t, Held> waiting;  // by event
        std::uint64_t next_segment = kSegment, next_event = 1, total = 0;
        for (int step = 0; step < 400; ++step) {
            const std::uint64_t what = below(10);
            if (segments.empty() || what == 0) {
                p.linear(next_segment, kCells * kCell);
                segments[next_segment].assign(kCells, 'f');
                segments[next_segment][0] = 'l';  // so that it is seen to be one
                total += kCell;
                p.call(Kind::kBlockAcquired, next_segment, kCell, total, segments.size() * kCells * kCell);
                live.push_back({next_segment, 0, 1});
                next_segment += (1 + below(2)) * kCells * kCell;  // some lie side by side
            } else if (what < 5) {
                auto at = segments.begin();
                std::advance(at, static_cast<std::ptrdiff_t>(below(segments.size())));
                const std::uint64_t first = below(kCells);
                std::uint64_t cells = 0;
                const std::uint64_t wanted = 1 + below(600);
                while (cells < wanted && first + cells < kCells && at->second[first + cells] == 'f')
                    at->second[first + cells++] = 'l';
                if (cells == 0) continue;
                total += cells * kCell;
                p.call(Kind::kBlockAcquired, at->first + first * kCell, cells * kCell, total,
                       segments.size() * kCells * kCell);
                live.push_back({at->first, first, cells});
            } else if (what < 9 && !live.empty()) {
                const std::size_t which = below(live.size());
                const Held held = live[which];
                live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
                const bool waits = below(3) == 0;
                if (waits) {
                    p.call(Kind::kBlockWaits, 0, 0, next_event, 0x66);
                    waiting[next_event++] = held;
                }
                total -= held.cells * kCell;
                p.call(Kind::kBlockReleased, held.segment + held.first * kCell, held.cells * kCell, total,
                       segments.size() * kCells * kCell);
                for (std::uint64_t i = 0; i < held.cells; ++i)
                    segments[held.segment][held.first + i] = waits ? 'w' : 'f';
            } else if (!waiting.empty()) {
                const auto [event, held] = *waiting.begin();
                waiting.erase(waiting.begin());
                p.call(Kind::kBlockWaitOver, 0, 0, event);
                for (std::uint64_t i = 0; i < held.cells; ++i) segments[held.segment][held.first + i] = 'f';
            } else {
                for (auto at = segments.begin(); at != segments.end();) {
                    if (at->second != std::vector<char>(kCells, 'f')) {
                        ++at;
                        continue;
                    }
                    p.free(at->first);
                    at = segments.erase(at);
                }
            }
        }
        const FrameworkState state = replayed(session);
        const std::vector<Range> found = segments_of(state);
        REQUIRE(found.size() == segments.size());
        std::size_t index = 0;
        std::uint64_t gaps = 0, gap_bytes = 0, waiting_bytes = 0;
        for (const auto& [begin, cells] : segments) {
            const Range& range = found[index++];
            CHECK(range == Range{begin, begin + kCells * kCell});
            std::vector<char> seen(kCells, '?');
            state.for_each_piece(range, [&](const Range& piece, const FrameworkBlock* block) {
                const char kind = block == nullptr ? 'f' : block->waits_for == 0 ? 'l' : 'w';
                for (std::uint64_t at = piece.begin; at < piece.end; at += kCell)
                    seen[(at - begin) / kCell] = kind;
            });
            CHECK(seen == cells);
            for (std::uint64_t i = 0; i < kCells; ++i) {
                waiting_bytes += cells[i] == 'w' ? kCell : 0;
                gap_bytes += cells[i] == 'f' ? kCell : 0;
                gaps += cells[i] == 'f' && (i == 0 || cells[i - 1] != 'f');
            }
            if (cells == std::vector<char>(kCells, 'f')) {  // not split
                gap_bytes -= kCells * kCell;
                --gaps;
            }
        }
        const FrameworkStats& all = state.device(0).all();
        CHECK(all.allocated_bytes.current == total);
        CHECK(all.allocation.current == live.size());
        CHECK(all.active.current == live.size() + waiting.size());
        CHECK(state.device(0).waiting() == waiting_bytes);
        CHECK(all.inactive_split.current == gaps);
        CHECK(all.inactive_split_bytes.current == gap_bytes);
        CHECK(state.device(0).disagreements == 0);
        CHECK(state.contradictions()() == 0);
    }
}
