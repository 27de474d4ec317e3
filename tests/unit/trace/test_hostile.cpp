// Files with correct checksums and content that no writer makes. Nothing in them may be believed.
#include <doctest/doctest.h>
#include <zstd.h>

#include <functional>

#include "tests/unit/trace/trace_file.h"

using namespace fragscope;

namespace {

trace::EventBatch good_batch() {
    trace::EventBatch batch;
    batch.set_count(3);
    batch.add_function_names("cuMemAlloc_v2");
    batch.add_thread_ids(1);
    for (int i = 0; i < 3; ++i) {
        batch.add_sequence(1);
        batch.add_kind(static_cast<std::uint32_t>(wire::Kind::kLinearAcquired));
    }
    return batch;
}

// The file's problem when a good batch is followed by this one; the good one must be there in any case.
std::string problem_of(const std::function<void(trace::EventBatch&)>& spoil) {
    trace::Chunk good;
    *good.mutable_events() = good_batch();
    trace::Chunk bad = good;
    spoil(*bad.mutable_events());
    const analysis::ReadResult read =
        test::read_bytes(test::HandMade().session().chunk(good).chunk(bad).end().bytes());
    REQUIRE(read.trace);
    REQUIRE(read.trace->events.at(0).size() == 3);
    CHECK(read.trace->file.cut_off);
    return read.trace->file.problem.substr(read.trace->file.problem.find(": ") + 2);
}

std::string problem_of_file(const test::HandMade& file) {
    const analysis::ReadResult read = test::read_bytes(file.bytes());
    REQUIRE(read.trace);
    return read.trace->file.problem.substr(read.trace->file.problem.find(": ") + 2);
}

}  // namespace

TEST_CASE("columns of different lengths") {
    CHECK(problem_of([](auto& b) { b.add_kind(1); }) == "column kind has 4 entries, expected 3 or none");
    CHECK(problem_of([](auto& b) { b.mutable_sequence()->RemoveLast(); }) ==
          "column sequence has 2 entries, expected 3 or none");
    CHECK(problem_of([](auto& b) { b.add_extra(1); }) == "column extra has 1 entries, expected 3 or none");
    CHECK(problem_of([](auto& b) { b.add_start_ns(1); }) ==
          "column start_ns has 1 entries, expected 3 or none");
    CHECK(problem_of([](auto& b) { b.add_stack(1); }) == "column stack has 1 entries, expected 3 or none");
}

TEST_CASE("counts that cannot be") {
    CHECK(problem_of([](auto& b) { b.set_count(0); }) == "a batch of 0 events, expected 1 to 184");
    CHECK(problem_of([](auto& b) { b.set_count(UINT32_MAX); }).find("a batch of 4294967295 events") == 0);
    CHECK(problem_of([](auto& b) { b.clear_sequence(); }) == "the events have no sequence numbers");
}

TEST_CASE("values out of range") {
    const auto three = [](auto* column, std::uint32_t value) {
        column->Clear();
        for (int i = 0; i < 3; ++i) column->Add(value);
    };
    CHECK(problem_of([&](auto& b) { three(b.mutable_kind(), 109); }) ==
          "column kind holds 109, expected less than 109");
    CHECK(problem_of([&](auto& b) { three(b.mutable_function(), 1); }) ==
          "column function holds 1, expected less than 1");
    CHECK(problem_of([&](auto& b) { three(b.mutable_thread(), 9); }) ==
          "column thread holds 9, expected less than 1");
    CHECK(problem_of([&](auto& b) { three(b.mutable_result(), 65536); }) ==
          "column result holds 65536, expected less than 65536");
    CHECK(problem_of([&](auto& b) { three(b.mutable_flags(), 1u << 31); }).find("column flags holds") == 0);
    CHECK(problem_of([&](auto& b) { three(b.mutable_device(), 256); }) ==
          "column device holds 256, expected less than 256");
    CHECK(problem_of([](auto& b) { b.set_process(1u << 16); }) == "process 65536, expected less than 65536");
    CHECK(problem_of([](auto& b) { b.clear_function_names(); }) == "the events have no function names");
    CHECK(problem_of([](auto& b) { b.clear_thread_ids(); }) == "the events have no thread ids");
    CHECK(problem_of([](auto& b) { b.set_sequence(1, -1); }) ==
          "sequence number 0 after 1, expected them in order and from 1");
    CHECK(problem_of([](auto& b) { b.set_sequence(0, 0); }) ==
          "sequence number 0 after 0, expected them in order and from 1");
    CHECK(problem_of([](auto& b) {
              b.set_sequence(2, INT64_MIN);
              b.set_sequence(1, INT64_MAX);
          }) == "sequence number 0 after 9223372036854775808, expected them in order and from 1");
}

TEST_CASE("names that cannot be") {
    const auto problem = [](const std::function<void(trace::Names&)>& spoil) {
        trace::Chunk names;
        trace::Names& good = *names.mutable_names();
        good.add_texts()->set_id(1);
        good.add_modules()->set_id(1);
        good.add_stacks()->set_id(1);
        trace::Chunk bad = names;
        spoil(*bad.mutable_names());
        return problem_of_file(test::HandMade().session().chunk(bad));
    };
    CHECK(problem([](auto&) {}) == "the file ends, expected more events or the end of the session");
    CHECK(problem([](auto& n) { n.mutable_texts(0)->set_id(0); }) ==
          "text 0, expected a new one from 1 to 1048575");
    CHECK(problem([](auto& n) { n.mutable_texts(0)->set_id(1u << 20); }) ==
          "text 1048576, expected a new one from 1 to 1048575");
    CHECK(problem([](auto& n) { n.add_texts()->set_id(1); }) ==
          "text 1, expected a new one from 1 to 1048575");
    CHECK(problem([](auto& n) { n.mutable_modules(0)->set_id(65536); }) ==
          "loaded file 65536, expected a new one from 1 to 65535");
    CHECK(problem([](auto& n) { n.add_modules()->set_id(1); }) ==
          "loaded file 1, expected a new one from 1 to 65535");
    CHECK(problem([](auto& n) { n.mutable_stacks(0)->set_id(1u << 22); }) ==
          "call stack 4194304, expected a new one from 1 to 4194303");
    CHECK(problem([](auto& n) { n.add_stacks()->set_id(1); }) ==
          "call stack 1, expected a new one from 1 to 4194303");
    CHECK(problem([](auto& n) {
              for (int i = 0; i < 129; ++i) n.mutable_stacks(0)->add_frames(1);
          }) == "a call stack of 129 frames, expected at most 128");
    CHECK(problem([](auto& n) { n.set_process(1u << 16); }) == "process 65536, expected less than 65536");
}

TEST_CASE("headers that cannot be") {
    trace::Chunk process;
    process.mutable_process()->set_pid(1);
    const auto with = [&](const std::function<void(trace::ChunkHeader&)>& change) {
        return problem_of_file(test::HandMade().session().chunk(process, change));
    };
    CHECK(with([](auto& h) { h.magic = 0; }) == "expected the start of a chunk, found 0x00000000");
    CHECK(with([](auto& h) { h.version = 5; }) == "a chunk of format version 5, expected at most 4");
    CHECK(with([](auto& h) { h.version = 0; }) == "a chunk of format version 0, expected at most 4");
    CHECK(with([](auto& h) { h.kind = static_cast<trace::ChunkKind>(8); }) ==
          "a chunk of kind 8, expected 1 to 7");
    CHECK(with([](auto& h) { h.kind = trace::ChunkKind::kLoss; }) ==
          "a chunk of kind 4 holds a message of kind 2");
    CHECK(with([](auto& h) { h.number = 5; }) == "chunk number 5, expected 1");
    CHECK(with([](auto& h) { h.stored_bytes = UINT32_MAX; }).find("expected a chunk of 4294967295 bytes") ==
          0);
    CHECK(with([](auto& h) { h.raw_bytes = 1u << 30; }).find("which no writer makes") != std::string::npos);
    CHECK(with([](auto& h) { h.raw_bytes = 1; }).find("which no writer makes") != std::string::npos);
    CHECK(with([](auto& h) { h.raw_bytes += 1; }).find("the chunk does not unpack") == 0);
}

TEST_CASE("chunks at the wrong place") {
    CHECK(problem_of_file(test::HandMade().session().session()) == "a second description of the session");
    CHECK(problem_of_file(test::HandMade().session().end().end()) ==
          "more chunks behind the end of the session");
    const analysis::ReadResult read = test::read_bytes(test::HandMade().end().bytes());
    CHECK_FALSE(read.trace);
    CHECK(read.error.find("expected the session's description as first chunk") != std::string::npos);
}

TEST_CASE("content that is no message") {
    CHECK(problem_of_file(test::HandMade().session().raw(trace::ChunkKind::kEvents, "\xff\xff\xff", 3)) ==
          "the chunk's content is not a trace message");
    CHECK(problem_of_file(test::HandMade().session().raw(trace::ChunkKind::kEvents, "", 0)) ==
          "a chunk of kind 3 holds a message of kind 0");
}

TEST_CASE("a small chunk cannot unpack into much") {
    const std::string zeros(15u << 20, '\0');
    std::string packed(ZSTD_compressBound(zeros.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), zeros.data(), zeros.size(), 1));
    REQUIRE(packed.size() < 4096);
    CHECK(problem_of_file(test::HandMade().session().raw(trace::ChunkKind::kEvents, packed,
                                                         static_cast<std::uint32_t>(zeros.size())))
              .find("which no writer makes") != std::string::npos);
    // Nor when its header lies about how much.
    CHECK(problem_of_file(test::HandMade().session().raw(trace::ChunkKind::kEvents, packed,
                                                         static_cast<std::uint32_t>(packed.size() + 1)))
              .find("the chunk does not unpack") == 0);
}
