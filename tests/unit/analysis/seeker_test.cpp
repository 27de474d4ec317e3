// Any moment, in any order of asking, equals a replay from the beginning.
#include "analysis/seeker.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "analysis/counts.h"
#include "analysis/framework_shown.h"
#include "analysis/session.h"
#include "analysis/state_books.h"
#include "tests/unit/analysis/builder.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

// Everything that is shown of a state, as text.
std::string shown(const ProcessState& state, const FrameworkState& framework, const Trace& trace) {
    report::State out;
    show_books(state, trace, {0}, out);
    for (const report::FrameworkAllocator& each : framework_shown(framework, trace, {0}))
        *out.add_framework() = each;
    return out.SerializeAsString();
}

void add_random_calls(ProcessBuilder& p, std::size_t count, std::mt19937_64& random) {
    p.reserve(0x7000000000, 64 * kMiB);
    for (std::size_t i = 1; i < count; ++i) {
        const std::uint64_t place = random() % 32;
        const std::uint64_t block = 0x100000000 + place * 4 * kMiB;
        const std::uint64_t page = 0x7000000000 + place * 2 * kMiB;
        switch (random() % 9) {
            case 0:
            case 1:
                p.linear(block, 1 + random() % (4 * kMiB));
                break;
            case 2:
                p.free(block);
                break;
            case 3:
                p.create(1 + place, 2 * kMiB);
                break;
            case 4:
                p.map(page, 2 * kMiB, 1 + random() % 32);
                break;
            case 5:
                p.unmap(page, 2 * kMiB);
                break;
            case 6:
                p.release(1 + place);
                break;
            case 7:
                p.call(wire::Kind::kBlockAcquired, block + 512 * (random() % 8), 512);
                break;
            default:
                p.call(wire::Kind::kBlockReleased, block + 512 * (random() % 8), 512);
        }
    }
}

}  // namespace

TEST_CASE(
    "every moment is what a replay from the beginning makes of it, in whatever order they are asked for") {
    std::mt19937_64 random(11);
    for (const std::size_t copies : {1u, 2u, 7u, 16u}) {
        SessionBuilder session;
        auto& p = session.process();
        const std::size_t count = 1 + random() % 700;
        add_random_calls(p, count, random);
        const Trace& trace = session.trace();
        const EventLog& events = trace.events[0];
        REQUIRE(events.size() == count);
        std::vector<std::string> expected;
        ProcessState state = state_of(trace, {0});
        FrameworkState framework;
        expected.push_back(shown(state, framework, trace));
        for (const Event& event : events) {
            state.apply(event);
            framework.apply(event, state);
            expected.push_back(shown(state, framework, trace));
        }
        std::vector<std::uint64_t> told;
        StateSeeker seeker(
            trace, {0},
            [&](const ProcessState&, const Event& event) { told.push_back(event.sequence.value); }, copies,
            1);
        std::size_t wrong = 0;
        for (int i = 0; i < 200; ++i) {
            const std::size_t index = random() % (count + 3);  // also behind the end
            seeker.move_to(index);
            REQUIRE(seeker.index() == std::min(index, count));
            wrong += shown(seeker.state(), seeker.framework(), trace) != expected[seeker.index()] ? 1 : 0;
        }
        CHECK(wrong == 0);
        seeker.move_to(count);
        // Each event was told of once, in order.
        REQUIRE(told.size() == count);
        for (std::size_t i = 0; i < count; ++i) REQUIRE(told[i] == events[i].sequence.value);
        // By now all copies are there: going back replays no more than an interval.
        const std::size_t interval = count / copies + 1;
        for (int i = 0; i < 100; ++i) {
            seeker.move_to(count);
            const std::size_t before = seeker.replayed();
            seeker.move_to(random() % count);
            CHECK(seeker.replayed() - before <= interval);
        }
    }
}

TEST_CASE("counts are those of a map") {
    std::mt19937_64 random(12);
    Counts counts;
    std::map<std::uint64_t, std::uint32_t> model;
    std::size_t wrong = 0;
    for (int i = 0; i < 300'000; ++i) {
        // Neighbours, as pages are, and now and then far away ones.
        const std::uint64_t number = random() % 50 == 0 ? random() : random() % (1 + (i / 1000) % 200);
        const auto at = model.find(number);
        if (at == model.end() || random() % 2 == 0) {
            wrong += counts.add(number) != ++model[number] ? 1 : 0;
        } else {
            const std::uint32_t left = --at->second;
            if (left == 0) model.erase(at);
            wrong += counts.remove(number) != left ? 1 : 0;
        }
        wrong += counts.size() != model.size() ? 1 : 0;
    }
    CHECK(wrong == 0);
}
