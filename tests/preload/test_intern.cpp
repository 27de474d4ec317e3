// The shim's table of texts inside one program, which may therefore run under the sanitizers: the same number
// for the same text whoever asks, everything that was named is told, and a full table says so.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "interpose/emit.h"
#include "interpose/intern.h"
#include "interpose/state.h"
#include "session.h"

namespace fragscope::interpose {

void announce_process() {}
void reset_process_state() { forget_names(); }

}  // namespace fragscope::interpose

using namespace fragscope;
using namespace fragscope::interpose;
using fragscope::preload_test::Options;

namespace {

// The one session of this process: a process attaches once.
preload_test::Session& shared_session() {
    static preload_test::Session session([] {
        Options options;
        options.ring_count = 8;
        options.ring_records = 1u << 14;
        return options;
    }());
    static const bool set = setenv(wire::kSessionVariable, session.name().c_str(), 1) == 0 && attach();
    REQUIRE(set);
    return session;
}

std::string text_of(std::uint32_t id) {
    const StringText text = string_text(id);
    return {text.text == nullptr ? "" : text.text, text.bytes};
}

std::uint64_t lost_texts(preload_test::Session& session) {
    return session.process(0).lost_kinds[static_cast<std::uint32_t>(wire::Kind::kText)].load();
}

}  // namespace

TEST_CASE("texts have numbers before there is a session, and are told once there is one") {
    const std::uint32_t before = intern("before the session", 18);
    REQUIRE(before != 0);
    CHECK(text_of(before) == "before the session");
    CHECK(intern("", 0) == 0);
    CHECK(text_of(0).empty());
    CHECK(text_of(kMaxStrings + 1).empty());
    preload_test::Session& session = shared_session();
    tell_string(before);
    CHECK(told_string("before the session", 18) == before);
    const std::string long_text(wire::kMaxTextBytes + 10, 'x');
    const std::uint32_t cut = told_string(long_text.data(), long_text.size());
    CHECK(text_of(cut) == long_text.substr(0, wire::kMaxTextBytes));
    session.drain();
    const auto told = session.strings(0);
    CHECK(told.at(before) == "before the session");
    CHECK(told.at(cut) == long_text.substr(0, wire::kMaxTextBytes));
    CHECK(told.size() == 2);
}

TEST_CASE("threads that name the same texts at the same time agree on the numbers") {
    preload_test::Session& session = shared_session();
    constexpr int kThreads = 4, kTexts = 500;
    std::vector<std::map<std::string, std::uint32_t>> numbers(kThreads);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&numbers, thread] {
            for (int i = 0; i < kTexts; ++i) {
                // Each begins elsewhere, so that all meet each other's texts in all states.
                const std::string text = "step " + std::to_string((i + thread * kTexts / kThreads) % kTexts);
                numbers[static_cast<std::size_t>(thread)][text] = told_string(text.data(), text.size());
            }
        });
    for (std::thread& thread : threads) thread.join();
    session.drain();
    const auto told = session.strings(0);
    std::map<std::uint32_t, std::string> by_number;
    for (const auto& [text, number] : numbers[0]) {
        REQUIRE(number != 0);
        CHECK(by_number.emplace(number, text).second);
        CHECK(told.at(number) == text);
    }
    for (const auto& each : numbers) CHECK(each == numbers[0]);
}

TEST_CASE("a child has its parent's numbers, and tells them to its own session") {
    preload_test::Session& session = shared_session();
    const std::uint32_t number = told_string("of the parent", 13);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const bool fine = attach() && told_string("of the parent", 13) == number;
        _exit(fine ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 0);
    session.drain();
    CHECK(session.strings(1).at(number) == "of the parent");
}

TEST_CASE("a full table gives no numbers, counts that, and keeps those it gave") {
    preload_test::Session& session = shared_session();
    const std::uint32_t kept = told_string("kept", 4);
    const std::uint64_t lost = lost_texts(session);
    std::uint64_t refused = 0, given = 0;
    const std::string filler(1000, 'f');
    for (std::size_t i = 0; i < kStringMemory / filler.size() + 10; ++i) {
        const std::string text = std::to_string(i) + filler;
        session.drain();
        (told_string(text.data(), text.size()) == 0 ? refused : given) += 1;
    }
    CHECK(refused >= 10);
    CHECK(given > 1000);
    CHECK(lost_texts(session) == lost + refused);
    CHECK(intern("kept", 4) == kept);
    CHECK(text_of(kept) == "kept");
}
