// The ring protocol by itself: every order of the two ends' steps in a small ring, producers that are killed
// anywhere, and two threads at full speed.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "proto/ring.h"

using namespace fragscope::wire;

namespace {

// Fields that belong together, so that a record of two halves is found out.
Record record_of(std::uint64_t number, std::uint32_t generation = 0) {
    Record record{};
    record.sequence = number;
    record.stack = generation;
    record.address = number * 3;
    record.extra = ~number;
    return record;
}
bool whole(const Record& record) {
    return record.address == record.sequence * 3 && record.extra == ~record.sequence;
}

// ---------------------------------------------------------------------------------------------------- every
// order

// What one end can do next. A producer that is killed is followed by another on the same ring.
enum Step { kProduce, kTakeOne, kTakeAll, kKill, kSteps };

// The ring with both ends, and what a queue would hold.
struct Model {
    static constexpr std::uint32_t kSlots = 2;
    RingHeader header{};
    Record slots[kSlots] = {};
    RingWriter writer{&header, slots, kSlots};
    RingReader reader{&header, slots, kSlots};
    Record* open = nullptr;  // reserved
    int filled = 0;          // halves of it
    std::uint64_t committed = 0, taken = 0;
    bool good = true;

    void expect(bool holds) { good = good && holds; }

    // Four steps make a record: reserve, fill in half, fill in the rest, commit.
    void produce() {
        if (open == nullptr) {
            open = writer.reserve();
            expect((open == nullptr) == (committed - taken == kSlots));
        } else if (filled == 0) {
            open->sequence = committed + 1;
            open->address = 0xdead;
            filled = 1;
        } else if (filled == 1) {
            *open = record_of(committed + 1);
            filled = 2;
        } else {
            writer.commit();
            open = nullptr;
            filled = 0;
            ++committed;
        }
    }
    void take(std::size_t limit) {
        const std::uint64_t waiting = committed - taken;
        const std::size_t count = reader.drain(limit, [&](const Record& record) {
            ++taken;
            expect(whole(record) && record.sequence == taken);
        });
        expect(count == (waiting < limit ? waiting : limit));
        expect(reader.fault() == RingReader::Fault::kNone);
    }
    void step(int what) {
        switch (what) {
            case kProduce:
                return produce();
            case kTakeOne:
                return take(1);
            case kTakeAll:
                return take(kSlots);
            default:
                writer = RingWriter(&header, slots, kSlots);
                open = nullptr;
                filled = 0;
        }
    }
};

// ---------------------------------------------------------------------------------------------------- with
// processes

struct SharedRing {
    static constexpr std::uint32_t kSlots = 8;
    RingHeader header;
    Record slots[kSlots];
};

}  // namespace

TEST_CASE("in every order of steps the ring is a queue, whoever is killed where") {
    constexpr int kDepth = 8;
    int orders = 1;
    for (int i = 0; i < kDepth; ++i) orders *= kSteps;
    int bad = 0;
    for (int order = 0; order < orders; ++order) {
        Model model;
        // Begun differently, so that the positions wrap in some of them.
        for (int i = 0; i < order % 7; ++i) {
            model.produce();
            if (i % 4 == 3) model.take(1);
        }
        for (int i = 0, rest = order; i < kDepth; ++i, rest /= kSteps) model.step(rest % kSteps);
        model.take(Model::kSlots);
        model.expect(model.taken == model.committed);
        if (!model.good) ++bad;
    }
    CHECK(bad == 0);
}

TEST_CASE(
    "of a producer that is killed anywhere, what it committed is there and nothing else, and the next goes "
    "on") {
    void* memory =
        mmap(nullptr, sizeof(SharedRing), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto& ring = *new (memory) SharedRing{};
    RingReader reader(&ring.header, ring.slots, SharedRing::kSlots);
    std::mt19937 random(3);
    int bad = 0;
    std::uint64_t all = 0;
    for (std::uint32_t generation = 1; generation <= 60; ++generation) {
        const pid_t child = fork();
        if (child == 0) {
            RingWriter writer(&ring.header, ring.slots, SharedRing::kSlots);
            for (std::uint64_t number = 1;;) {
                Record* slot = writer.reserve();
                if (slot == nullptr) {
                    std::this_thread::yield();
                    continue;
                }
                *slot = record_of(number, generation);
                writer.commit();
                ++number;
            }
        }
        REQUIRE(child > 0);
        std::uint64_t seen = 0;
        const auto take = [&](const Record& record) {
            if (!whole(record) || record.stack != generation || record.sequence != ++seen) ++bad;
        };
        // A random number of records into its life.
        const std::uint64_t enough = random() % 300;
        while (seen < enough)
            if (reader.drain(1 + random() % SharedRing::kSlots, take) == 0) std::this_thread::yield();
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        reader.drain(SIZE_MAX, take);
        if (reader.drain(SIZE_MAX, take) != 0 || ring.header.head.load() != ring.header.tail.load()) ++bad;
        all += seen;
    }
    CHECK(bad == 0);
    CHECK(reader.fault() == RingReader::Fault::kNone);
    CHECK(ring.header.tail.load() == all);
    munmap(memory, sizeof(SharedRing));
}

TEST_CASE("two threads at full speed") {
    constexpr std::uint64_t kRecords = 100'000;
    const auto ring = std::make_unique<SharedRing>();
    RingReader reader(&ring->header, ring->slots, SharedRing::kSlots);
    std::thread producer([&] {
        RingWriter writer(&ring->header, ring->slots, SharedRing::kSlots);
        for (std::uint64_t number = 1; number <= kRecords;) {
            Record* slot = writer.reserve();
            if (slot == nullptr) {
                std::this_thread::yield();
                continue;
            }
            *slot = record_of(number++);
            writer.commit();
        }
    });
    std::uint64_t seen = 0, bad = 0;
    while (seen < kRecords)
        if (reader.drain(5, [&](const Record& record) {
                if (!whole(record) || record.sequence != ++seen) ++bad;
            }) == 0)
            std::this_thread::yield();
    producer.join();
    CHECK(bad == 0);
}
