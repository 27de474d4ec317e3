#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "collector/environment.h"
#include "collector/text_assembly.h"
#include "collector/utf8.h"

using namespace fragscope;
using collector::TextAssembly;
using Took = collector::TextAssembly::Took;

namespace {

wire::TextRecord part(std::uint32_t total, std::uint16_t number, const std::string& text) {
    wire::TextRecord record{};
    record.total_bytes = total;
    record.part_bytes = static_cast<std::uint16_t>(text.size());
    record.part = number;
    record.kind = wire::Kind::kText;
    record.text_kind = wire::TextKind::kExecutable;
    std::memcpy(record.text, text.data(), text.size());
    return record;
}

}  // namespace

TEST_CASE("a text is whole when its parts fill its length") {
    TextAssembly text;
    const std::string half(32, 'a');
    CHECK(text.take(part(40, 0, half)) == Took::kPart);
    CHECK(text.take(part(40, 1, "bbbbbbbb")) == Took::kWhole);
    CHECK(text.text().text == half + "bbbbbbbb");
}

TEST_CASE("parts that do not belong together are refused, and the next text starts afresh") {
    TextAssembly text;
    CHECK(text.take(part(40, 1, "late")) == Took::kRefused);
    CHECK(text.take(part(40, 0, std::string(32, 'a'))) == Took::kPart);
    CHECK(text.take(part(40, 2, "skips one")) == Took::kRefused);
    CHECK(text.take(part(40, 1, "too late")) == Took::kRefused);
    CHECK(text.take(part(41, 0, std::string(32, 'a'))) == Took::kPart);
    CHECK(text.take(part(40, 1, "other length")) == Took::kRefused);
    CHECK(text.take(part(40, 0, std::string(32, 'a'))) == Took::kPart);
    wire::TextRecord other = part(40, 1, "bbbbbbbb");
    other.id = 7;
    CHECK(text.take(other) == Took::kRefused);
    CHECK(text.take(part(8, 0, "123456789")) == Took::kRefused);
    CHECK(text.take(part(wire::kMaxTextBytes + 1, 0, "x")) == Took::kRefused);
    wire::TextRecord wide = part(40, 0, "x");
    wide.part_bytes = 33;
    CHECK(text.take(wide) == Took::kRefused);
    wire::TextRecord unknown = part(1, 0, "x");
    unknown.text_kind = static_cast<wire::TextKind>(99);
    CHECK(text.take(unknown) == Took::kRefused);
    CHECK(text.take(part(40, 0, "")) == Took::kRefused);
    CHECK(text.take(part(1, 0, "x")) == Took::kWhole);
}

TEST_CASE("rubbish never makes a text longer than the limit") {
    std::mt19937 random(3);
    TextAssembly text;
    for (int i = 0; i < 200'000; ++i) {
        wire::TextRecord record{};
        record.total_bytes = static_cast<std::uint32_t>(random() % 5000);
        record.part_bytes = static_cast<std::uint16_t>(random() % 40);
        record.part = static_cast<std::uint16_t>(random() % 3);
        record.text_kind = static_cast<wire::TextKind>(1 + random() % 13);
        if (text.take(record) == Took::kWhole) CHECK(text.text().text.size() <= wire::kMaxTextBytes);
    }
}

TEST_CASE("text becomes UTF-8") {
    CHECK(collector::to_utf8("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80") ==
          "plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    CHECK(collector::to_utf8("a\xff"
                             "b") == "a?b");
    CHECK(collector::to_utf8("\xc3") == "?");
    CHECK(collector::to_utf8("\xc0\x80") == "??");
    CHECK(collector::to_utf8("\xed\xa0\x80") == "???");
    CHECK(collector::to_utf8("\xf4\x90\x80\x80") == "????");
}

TEST_CASE("the environment: what failed stays unknown") {
    trace::Process process;
    wire::Record record{};
    record.kind = wire::Kind::kDevice;
    record.device = 1;
    std::memcpy(&record.address, "ABCDEFGH", 8);
    std::memcpy(&record.object, "ijklmnop", 8);
    record.bytes = 1000;
    collector::apply_environment(record, "", process);
    record.kind = wire::Kind::kDeviceGranularity;
    record.result = 801;
    collector::apply_environment(record, "", process);
    REQUIRE(process.devices_size() == 1);
    CHECK(process.devices(0).uuid() == "ABCDEFGHijklmnop");
    CHECK(process.devices(0).capacity_bytes() == 1000);
    CHECK_FALSE(process.devices(0).has_minimum_granularity_bytes());
    record.kind = wire::Kind::kHookMissing;
    collector::apply_environment(record, "cuMemFancy", process);
    CHECK(process.hooks_missing(0) == "cuMemFancy");
    collector::apply_text({wire::TextKind::kCommandLine, 0, 0, std::string("a\0b c\0\0", 7)}, process);
    REQUIRE(process.command_line_size() == 3);
    CHECK(process.command_line(1) == "b c");
    CHECK(process.command_line(2) == "");
}
