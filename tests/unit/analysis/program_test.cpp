// Where in the program something happened: call stacks, ranges, marks, names of threads.
#include <doctest/doctest.h>

#include <string>

#include "analysis/callers.h"
#include "analysis/phases.h"
#include "tests/unit/analysis/scenario.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;
using wire::Kind;

namespace {

ProcessNames& names(SessionBuilder& session) {
    session.trace().names.resize(session.trace().processes.size());
    return session.trace().names[0];
}

void text(SessionBuilder& session, std::uint32_t id, const std::string& words) {
    names(session).texts[id] = words;
}

// One frame at this offset of libwork.so.
void stack(SessionBuilder& session, std::uint32_t id, std::uint64_t offset, std::uint32_t origin = 0) {
    trace::CodeModule module;
    module.set_id(1);
    module.set_path("/opt/lib/libwork.so");
    names(session).modules[1] = module;
    trace::Stack made;
    made.set_id(id);
    made.set_origin(origin);
    made.add_frames(wire::module_frame(1, offset));
    names(session).stacks[id] = made;
}

}  // namespace

TEST_CASE("the failed call's stack: origin, files and offsets, lines of Python, addresses") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 9 * kGiB).failed().stack(3).snapshot(8 * kGiB, 8 * kGiB).snapshot_end();
    text(session, 7, "cudaMalloc");
    text(session, 8, "step\n/home/train.py");
    stack(session, 3, 0x1234, 7);
    trace::Stack& made = names(session).stacks[3];
    made.add_frames(wire::python_frame(8, 42));
    made.add_frames(wire::address_frame(0x7f00));
    made.add_frames(wire::module_frame(9, 0x10));  // a file whose name was lost
    made.set_lost(true);
    made.set_no_lines(true);
    const auto e = explained(session);
    const report::CallStack& got = e.request().stack();
    CHECK(got.origin() == "cudaMalloc");
    REQUIRE(got.frames_size() == 4);
    CHECK(got.frames(0) == "libwork.so+0x1234");
    CHECK(got.frames(1) == "step (/home/train.py:42) [Python]");
    CHECK(got.frames(2) == "0x7f00 (code without a file)");
    CHECK(got.frames(3) == "0x10 in a file whose name was lost");
    CHECK(got.lost());
    CHECK(got.no_lines());
    CHECK(make_report(session.trace()).failures(0).stack().frames_size() == 4);
}

TEST_CASE("who may open the files names the places, inlined ones too") {
    SessionBuilder session;
    session.process().linear(0, 9 * kGiB).failed().stack(3);
    stack(session, 3, 0x1234);
    ReportOptions options;
    options.stack_words = [](const ProcessNames& names, const trace::Stack& made) {
        CHECK(names.modules.at(1).path() == "/opt/lib/libwork.so");
        CHECK(wire::frame_offset(made.frames(0)) == 0x1234);
        return std::vector<std::string>{"inner at a.cpp:1", "outer at b.cpp:2"};
    };
    const auto e = explain_failure(session.trace(), 0, options);
    REQUIRE(e.request().stack().frames_size() == 2);
    CHECK(e.request().stack().frames(1) == "outer at b.cpp:2");
}

TEST_CASE("a stack whose definition was lost says so; a call without one has none") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0, 9 * kGiB).failed().stack(3);
    CHECK(explained(session).request().stack().frames(0).find("lost") != std::string::npos);
    p.stack(0);
    CHECK_FALSE(explained(session).request().has_stack());
}

TEST_CASE("ranges nest by thread; started ones end by their number; the last mark is the thread's own") {
    SessionBuilder session;
    auto& p = session.process();
    for (const auto& [id, words] :
         {std::pair{1u, "epoch"}, {2u, "forward"}, {3u, "loading"}, {4u, "ready"}, {5u, "other"}})
        text(session, id, words);
    (*p.process().mutable_thread_names())[1] = "worker";
    p.call(Kind::kRangeBegun, 0, 0, 1).call(Kind::kRangeBegun, 0, 0, 2).call(Kind::kRangeBegun, 0, 0, 3, 77);
    p.call(Kind::kMark, 0, 0, 4);
    p.thread(2)
        .call(Kind::kRangeBegun, 0, 0, 5)
        .call(Kind::kMark, 0, 0, 5)
        .call(Kind::kRangeEnded, 0, 0, 0, 77);
    p.thread(1).linear(0, 9 * kGiB).failed();
    const auto e = explained(session);
    CHECK(e.request().thread_name() == "worker");
    REQUIRE(e.request().phases_size() == 2);
    CHECK(e.request().phases(0) == "epoch");
    CHECK(e.request().phases(1) == "forward");
    CHECK(e.request().last_mark() == "ready");
}

TEST_CASE("phases over time: the longest of each name, and how often it came") {
    SessionBuilder session;
    auto& p = session.process();
    text(session, 1, "step");
    text(session, 2, "saved");
    text(session, 3, "my library");
    p.linear(0x10000000, kMiB);
    p.call(Kind::kRangeBegun, 3, 0, 1).call(Kind::kRangeEnded, 3);
    p.call(Kind::kRangeBegun, 3, 0, 1).call(Kind::kMark, 0, 0, 2).call(Kind::kRangeEnded, 3);
    p.call(Kind::kRangeBegun, 0, 0, 1);  // another domain, never ended
    p.call(Kind::kRangeEnded, 3);        // ends nothing
    const auto report = make_report(session.trace());
    check_words(report);
    REQUIRE(report.timelines_size() == 1);
    const auto& phases = report.timelines(0).phases();
    REQUIRE(phases.size() == 3);
    CHECK(phases[0].name() == "step");
    CHECK(phases[0].domain() == "my library");
    CHECK(phases[0].times() == 2);
    CHECK(phases[0].ended_ns() - phases[0].begun_ns() == 2000);  // the builder's clock: a microsecond a call
    CHECK(phases[1].mark());
    CHECK(phases[1].name() == "saved");
    CHECK_FALSE(phases[1].has_ended_ns());
    CHECK(phases[2].name() == "step");
    CHECK_FALSE(phases[2].has_ended_ns());
}

TEST_CASE("who held most when most was held: by stack, with what has none") {
    SessionBuilder session;
    auto& p = session.process();
    p.linear(0x10000000, 4 * kMiB).stack(1).linear(0x20000000, 2 * kMiB).stack(1);
    p.create(1, 8 * kMiB).stack(2).pool_take(0x60000000, kMiB, 0xb00);
    const std::uint64_t at_peak = p.last_sequence();
    p.free(0x10000000).linear(0x10000000, kMiB).stack(2);
    stack(session, 1, 0x100);
    stack(session, 2, 0x200);
    session.trace().session.mutable_recording()->set_stack_bytes(2 * kMiB);
    const auto report = make_report(session.trace());
    check_words(report);
    REQUIRE(report.live_at_peaks_size() == 1);
    const report::LiveAtPeak& live = report.live_at_peaks(0);
    CHECK(live.sequence() == at_peak);
    CHECK(live.all().low_bytes() == 15 * kMiB);
    REQUIRE(live.sites_size() == 2);
    CHECK(live.sites(0).bytes().low_bytes() == 8 * kMiB);
    CHECK(live.sites(0).stack().frames(0) == "libwork.so+0x200");
    CHECK(live.sites(1).bytes().low_bytes() == 6 * kMiB);
    CHECK(live.sites(1).count() == 2);
    CHECK(live.without_stack().low_bytes() == kMiB);
    CHECK(live.without_stack_reason().find("from 2 MiB on") != std::string::npos);
}

TEST_CASE("without stacks nobody is named") {
    SessionBuilder session;
    session.process().linear(0x10000000, kMiB);
    CHECK(make_report(session.trace()).live_at_peaks_size() == 0);
}
