// A file whose bytes changed on the way: each change is noticed, and what stands before it is still read.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "tests/unit/trace/trace_file.h"

using namespace fragscope;

namespace {

// `part` holds nothing that `whole` does not.
void check_prefix(const analysis::Trace& part, const analysis::Trace& whole) {
    REQUIRE(part.events.size() <= whole.events.size());
    for (std::size_t p = 0; p < part.events.size(); ++p) {
        REQUIRE(part.events[p].size() <= whole.events[p].size());
        for (std::size_t i = 0; i < part.events[p].size(); ++i) {
            CHECK(part.events[p][i].sequence == whole.events[p][i].sequence);
            CHECK(part.events[p][i].address == whole.events[p][i].address);
            CHECK(part.events[p][i].result == whole.events[p][i].result);
        }
    }
}

}  // namespace

TEST_CASE("any single changed byte is noticed") {
    const test::Bytes good = test::small_trace();
    const analysis::ReadResult whole = test::read_bytes(good);
    REQUIRE(whole.trace);
    REQUIRE(whole.trace->file.problem == "");
    for (std::size_t i = 0; i < good.size(); ++i) {
        for (const unsigned change : {0x01u, 0x80u, 0xffu}) {
            CAPTURE(i);
            CAPTURE(change);
            test::Bytes bad = good;
            bad[i] ^= static_cast<std::byte>(change);
            const analysis::ReadResult read = test::read_bytes(bad);
            if (!read.trace) {
                CHECK(read.error != "");
                continue;
            }
            CHECK(read.trace->file.problem != "");
            CHECK(read.trace->file.cut_off);
            CHECK(read.trace->file.readable_bytes <= i);
            check_prefix(*read.trace, *whole.trace);
        }
    }
}

TEST_CASE("a file cut off anywhere is read up to its last whole chunk") {
    const test::Bytes good = test::small_trace();
    const analysis::ReadResult whole = test::read_bytes(good);
    REQUIRE(whole.trace);
    std::size_t traces = 0;
    for (std::size_t length = 0; length < good.size(); ++length) {
        CAPTURE(length);
        const analysis::ReadResult read =
            test::read_bytes({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)});
        if (!read.trace) {
            CHECK(read.error != "");
            continue;
        }
        ++traces;
        CHECK(read.trace->file.cut_off);
        CHECK(read.trace->file.problem.rfind("at offset ", 0) == 0);
        CHECK(read.trace->file.readable_bytes <= length);
        check_prefix(*read.trace, *whole.trace);
    }
    CHECK(traces > good.size() / 2);
}

TEST_CASE("bytes behind the end are a problem, not a part of the trace") {
    test::Bytes bytes = test::small_trace();
    const std::size_t size = bytes.size();
    bytes.push_back(std::byte{0});
    const analysis::ReadResult read = test::read_bytes(bytes);
    REQUIRE(read.trace);
    CHECK_FALSE(read.trace->file.cut_off);
    CHECK(read.trace->file.readable_bytes == size);
    CHECK(read.trace->file.problem != "");
}

TEST_CASE("a newer format is refused by name, with both versions") {
    test::Bytes bytes = test::small_trace();
    trace::FileHeader header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    header.version = trace::kFormatVersion + 1;
    header.checksum = trace::file_checksum(header);
    std::memcpy(bytes.data(), &header, sizeof header);
    const test::TemporaryFile file(bytes);
    CHECK(analysis::read_trace(file.path()).error ==
          file.path() +
              " has trace format version 5; this Fragscope reads versions up to 4: use a newer one");
}

TEST_CASE("where the session's description is damaged, the sentence says that nothing can be read") {
    test::Bytes bytes = test::small_trace();
    bytes[sizeof(trace::FileHeader) + sizeof(trace::ChunkHeader)] ^= std::byte{1};
    const test::TemporaryFile file(bytes);
    const std::string error = analysis::read_trace(file.path()).error;
    CHECK(
        error.rfind(file.path() +
                        " is damaged where it begins, so nothing of it can be read: at offset 32: the chunk",
                    0) == 0);
}

TEST_CASE("what is no trace file is refused in one sentence") {
    const auto error = [](const std::string& path) {
        const analysis::ReadResult read = analysis::read_trace(path);
        CHECK_FALSE(read.trace);
        return read.error;
    };
    CHECK(error("/no/such/file") == "cannot read /no/such/file: No such file or directory");
    CHECK(error("/tmp") == "cannot read /tmp: it is a directory, not a trace file");
    CHECK(error("/dev/null") == "cannot read /dev/null: it is not a regular file");
    const test::TemporaryFile empty({});
    CHECK(error(empty.path()) == empty.path() + " is empty, not a Fragscope trace");
    const test::TemporaryFile tiny(test::Bytes(5));
    CHECK(error(tiny.path()) == tiny.path() + " is not a Fragscope trace: it has only 5 bytes");
    const test::TemporaryFile foreign(test::Bytes(5000, std::byte{'x'}));
    CHECK(error(foreign.path()) ==
          foreign.path() + " is not a Fragscope trace: its first 8 bytes are not a trace's");
    const std::string pipe = empty.path() + "-pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(error(pipe) == "cannot read " + pipe + ": it is not a regular file");
    std::filesystem::remove(pipe);
}
