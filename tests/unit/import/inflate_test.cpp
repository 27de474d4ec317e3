// gzip files in the place of any importer's. They are made by zlib itself; what must come out is what went
// in.
#include "analysis/read/inflate.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <random>
#include <string>

#include "tests/unit/import/imported.h"

using namespace fragscope;
using namespace fragscope::analysis;
using namespace fragscope::test;

namespace {

const std::string kLog =
    "Thread,Time,Action,Pointer,Size,Stream\n"
    "1,01:02:03.000004,allocate,0x100,64,0\n"
    "1,01:02:03.000005,free,0x100,64,0\n";

struct Inflated {
    std::string text;
    std::string problem;
};

// `step`: how many bytes are read at once, on both sides.
Inflated inflated(const std::string& data, std::size_t step, const InflateLimits& limits = {}) {
    std::size_t at = 0;
    const auto more = [&](std::span<char> to) {
        const std::size_t bytes = std::min({to.size(), step, data.size() - at});
        std::copy_n(data.data() + at, bytes, to.data());
        at += bytes;
        return bytes;
    };
    Inflater inflater({}, more, limits);
    Inflated out;
    std::vector<char> buffer(step);
    while (const std::size_t bytes = inflater.read(buffer)) out.text.append(buffer.data(), bytes);
    out.problem = inflater.problem();
    CHECK(inflater.read(buffer) == 0);  // it stays at its end
    return out;
}

std::string random_text(std::size_t bytes, unsigned seed) {
    std::mt19937 random(seed);
    std::string out(bytes, '\0');
    for (char& c : out) c = static_cast<char>('a' + random() % 20);
    return out;
}

}  // namespace

TEST_CASE("a member, several and none of a size come out as they went in, whatever the pieces") {
    const std::string text = random_text(300'000, 1);
    const std::string head = random_text(100, 2);
    for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{1} << 20}) {
        CAPTURE(step);
        const Inflated one = inflated(gzipped(text), step);
        CHECK(one.problem.empty());
        CHECK(one.text == text);
        const Inflated several = inflated(gzipped("") + gzipped(head) + gzipped("") + gzipped(text), step);
        CHECK(several.problem.empty());
        CHECK(several.text == head + text);
        const Inflated padded = inflated(gzipped(head) + std::string(1000, '\0'), step);
        CHECK(padded.problem.empty());
        CHECK(padded.text == head);
    }
    CHECK(inflated(gzipped(""), 16).text.empty());
    CHECK(inflated(gzipped(""), 16).problem.empty());
}

TEST_CASE("cut anywhere, the place is said, and what came out is a beginning") {
    const std::string text = random_text(2000, 3);
    const std::string first = gzipped(text);
    const std::string data = first + gzipped(text);
    for (std::size_t length = 2; length < data.size(); ++length) {
        CAPTURE(length);
        const Inflated out = inflated(data.substr(0, length), 512);
        CHECK((text + text).starts_with(out.text));
        if (length == first.size()) {
            CHECK(out.problem.empty());
            continue;
        }
        CHECK(out.problem ==
              fmt::format("its gzip data breaks off at offset {}, inside the member that begins at offset {}",
                          length, length < first.size() ? 0 : first.size()));
    }
}

TEST_CASE("damage and strange bytes are problems with a place") {
    const std::string text = random_text(5000, 4);
    const std::string data = gzipped(text);
    // Every byte of deflate's data, of the checksum and of the length counts; of the header of 10 bytes (RFC
    // 1952, 2.3) time, extra flags and system do not, and flags may ask for fields that are not there.
    std::size_t harmless = 0;
    for (std::size_t at = 10; at < data.size(); ++at) {
        std::string damaged = data;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
        CAPTURE(at);
        const Inflated out = inflated(damaged, 700);
        if (out.problem.empty()) {  // a bit that fills up deflate's last byte
            ++harmless;
            CHECK(out.text == text);
        } else {
            CHECK(out.problem.find("at offset ") != std::string::npos);
        }
    }
    CHECK(harmless <= 1);
    std::string checksum = data;
    checksum[data.size() - 8] = static_cast<char>(checksum[data.size() - 8] ^ 1);
    CHECK(inflated(checksum, 4096).problem.find("incorrect data check") != std::string::npos);
    const Inflated tail = inflated(data + "xyz", 4096);
    CHECK(tail.problem ==
          fmt::format("behind its gzip data, at offset {}, there are other bytes, expected its end",
                      data.size()));
    CHECK(tail.text == text);
    CHECK(inflated(data + std::string(5, '\0') + data, 4096).problem ==
          fmt::format("behind its gzip data, at offset {}, there are other bytes, expected its end",
                      data.size() + 5));
}

TEST_CASE("limits on size and on ratio end a file that unpacks without end") {
    const std::string text = random_text(1000, 5);
    InflateLimits limits;
    limits.most_bytes = 1000;
    CHECK(inflated(gzipped(text), 64, limits).problem.empty());
    limits.most_bytes = 999;
    CHECK(inflated(gzipped(text), 64, limits).problem ==
          "it unpacks to more than 999 bytes, the most that is taken");
    // 64 MiB of zeros: deflate makes of them about a thousandth.
    const std::string zeros = gzipped(std::string(std::size_t{1} << 26, '\0'));
    CHECK(inflated(zeros, 65536).problem.empty());
    const Inflated bomb = inflated(zeros + zeros, 65536);
    CHECK(bomb.problem.find("it unpacks to more than 400 times its size by offset") != std::string::npos);
    CHECK(bomb.text.size() < (std::size_t{1} << 26) + 2 * 65536);
}

TEST_CASE("any importer's file may be gzipped") {
    const ReadResult plain = import_text(kLog);
    REQUIRE_MESSAGE(plain.trace, plain.error);
    const ReadResult packed = import_text(gzipped(kLog), "", "log.csv.gz");
    REQUIRE_MESSAGE(packed.trace, packed.error);
    CHECK(events_in_words(*packed.trace) == events_in_words(*plain.trace));
    CHECK(packed.trace->session.provenance().kind() == "rmm-csv");
    CHECK(packed.trace->end.warnings().empty());

    // Longer than the head, several members.
    std::string text = kLog;
    std::string data = gzipped(kLog);
    for (unsigned i = 0; i < 3000; ++i) {
        const std::string line = fmt::format("1,01:02:04.{:06},allocate,0x{:x},64,0\n", i, 0x1000 + i * 64);
        text += line;
        if (i % 1000 == 0) data += gzipped("");
        data += gzipped(line);
    }
    const ReadResult long_plain = import_text(text);
    const ReadResult long_packed = import_text(data);
    REQUIRE_MESSAGE(long_packed.trace, long_packed.error);
    CHECK(events_in_words(*long_packed.trace) == events_in_words(*long_plain.trace));
}

TEST_CASE("what is said of a gzipped file names which places it means, and nothing of a cut one is kept") {
    const ReadResult bad = import_text(gzipped(kLog + "nonsense\n"));
    REQUIRE_MESSAGE(bad.trace, bad.error);
    CHECK(warnings_of(*bad.trace).find("line 4") != std::string::npos);
    CHECK(warnings_of(*bad.trace).find("those of its decompressed data") != std::string::npos);
    const ReadResult second = import_text(gzipped(kLog + kLog));
    CHECK(second.error.find("line 4 is a second header") != std::string::npos);
    CHECK(second.error.find("those of its decompressed data") != std::string::npos);
    const std::string data = gzipped(kLog);
    CHECK(import_text(data.substr(0, data.size() - 1)).error.find("breaks off at offset") !=
          std::string::npos);
    CHECK(import_text(gzipped("a,b,c\n")).error.find("decompressed, ") == 0);
    CHECK(import_text(gzipped(data)).error.find("is of no kind that can be imported") != std::string::npos);
    CHECK(import_text(gzipped("a,b,c\n"), "rmm-csv").error.find("line 1: 3 fields, expected 6") !=
          std::string::npos);
}
