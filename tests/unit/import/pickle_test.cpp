// The pickle reader on what Python writes in each protocol, and on what an attacker may.
#include "analysis/read/pickle.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/import/pickle_samples.h"

namespace {

using namespace fragscope;
using analysis::PickleReader;
using analysis::PickleValue;
using Kind = PickleValue::Kind;
using namespace std::string_literals;

class Nobody : public analysis::PickleClient {
  public:
    PickleValue filled(PickleReader&, PickleValue dict) override { return dict; }
    PickleValue under(PickleReader&, PickleValue, PickleValue value) override { return value; }
};

std::string in_words(const PickleReader& reader, PickleValue value, int depth = 0) {
    if (depth > 20) return "…";
    const auto items = reader.items(value);
    const auto list = [&](char open, char close) {
        std::string out(1, open);
        for (std::size_t i = 0; i < items.size(); ++i)
            out += (i == 0 ? "" : ", ") + in_words(reader, items[i], depth + 1);
        return out + close;
    };
    switch (value.kind()) {
        case Kind::kNone:
            return "None";
        case Kind::kBool:
            return value.number() != 0 ? "True" : "False";
        case Kind::kInt:
        case Kind::kBigInt:
            if (const auto number = reader.signed_number(value)) return fmt::format("{}", *number);
            return fmt::format("{}", *reader.unsigned_number(value));
        case Kind::kHugeInt:
            return "huge";
        case Kind::kFloat:
            return fmt::format("{}", *reader.real_number(value));
        case Kind::kString:
            return fmt::format("'{}'", reader.text(value));
        case Kind::kBytes:
            return "bytes";
        case Kind::kList:
            return list('[', ']');
        case Kind::kTuple:
            return list('(', ')');
        case Kind::kSet:
            return list('<', '>');
        case Kind::kMade:
            return "made";
        case Kind::kDict: {
            std::string out = "{";
            for (std::size_t i = 0; i + 1 < items.size(); i += 2)
                out += fmt::format("{}{}: {}", i == 0 ? "" : ", ", reader.text(items[i]),
                                   in_words(reader, items[i + 1], depth + 1));
            return out + "}";
        }
    }
    return "";
}

// The value in words, or "! " and the problem. The bytes come in pieces of `piece`.
std::string said(const std::string& bytes, std::size_t piece = 7) {
    std::size_t at = 0;
    Nobody nobody;
    PickleReader reader(
        [&](std::span<char> to) {
            const std::size_t more = std::min({piece, to.size(), bytes.size() - at});
            std::copy_n(bytes.data() + at, more, to.data());
            at += more;
            return more;
        },
        nobody);
    const auto value = reader.read();
    return value ? in_words(reader, *value) : "! " + reader.problem();
}

}  // namespace

TEST_CASE("what Python writes, in each of its protocols") {
    for (const std::string& sample : test::kSamples) {
        CHECK(said(sample, 1) == test::kSampleInWords);
        CHECK(said(sample, 1 << 16) == test::kSampleInWords);
    }
}

TEST_CASE("numbers") {
    CHECK(said("K\xff."s) == "255");
    CHECK(said("M\x01\x02."s) == "513");
    CHECK(said("J\xff\xff\xff\xff."s) == "-1");
    CHECK(said("J\x00\x00\x00\x80."s) == "-2147483648");
    CHECK(said("\x8a\x00."s) == "0");
    CHECK(said("\x8a\x01\x80."s) == "-128");
    CHECK(said("\x8a\x02\x80\x00."s) == "128");
    CHECK(said("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."s) == "-9223372036854775808");
    CHECK(said("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s) == "18446744073709551615");
    CHECK(said("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."s) == "huge");
    CHECK(said("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff."s) == "huge");
    CHECK(said("\x8b\x01\x00\x00\x00\x05."s) == "5");
    CHECK(said("I01\n."s) == "True");
    CHECK(said("I-7\n."s) == "-7");
    CHECK(said("L18446744073709551616L\n."s) == "huge");
    CHECK(said("Ix\n."s) == "! at offset 0: 'x' is no whole number");
    CHECK(said("F1.5\n."s) == "1.5");
    CHECK(said("G\x3f\xf8\x00\x00\x00\x00\x00\x00."s) == "1.5");
    CHECK(said("N."s) == "None");
}

TEST_CASE("strings of all forms; equal ones are held once") {
    CHECK(said("\x8c\x02hi."s) == "'hi'");
    CHECK(said("X\x02\x00\x00\x00hi."s) == "'hi'");
    CHECK(said("\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s) == "'hi'");
    CHECK(said("U\x02hi."s) == "'hi'");
    CHECK(said("S'a\\'b\\n\\x41'\n."s) == "'a'b\nA'");
    CHECK(said("S'a\n."s) == "! at offset 0: a string without its quotes: expected them as Python writes them");
    CHECK(said("V\\u20ac\xe9\\U0001f600\n."s) == "'€é😀'");
    CHECK(said("C\x02hi."s) == "bytes");
    Nobody nobody;
    PickleReader reader([](std::span<char>) { return std::size_t{0}; }, nobody);
    std::vector<PickleValue> first;
    for (int i = 0; i < 10'000; ++i) first.push_back(reader.string(std::to_string(i)));
    for (int i = 0; i < 10'000; ++i)
        REQUIRE(reader.string(std::to_string(i)) == first[static_cast<std::size_t>(i)]);
    CHECK(reader.strings() == 10'000);
}

TEST_CASE("containers, marks and the memo") {
    CHECK(said("(K\x01K\x02l."s) == "[1, 2]");
    CHECK(said("]K\x01""aK\x02""a."s) == "[1, 2]");
    CHECK(said("](K\x01(K\x02te."s) == "[1, (2)]");
    CHECK(said("(\x8c\x01kK\x01""d."s) == "{k: 1}");
    CHECK(said("}\x8c\x01kK\x01s."s) == "{k: 1}");
    CHECK(said("\x8f(K\x01\x90."s) == "<1>");
    CHECK(said("(K\x01\x91."s) == "<1>");
    CHECK(said("K\x01K\x02\x86."s) == "(1, 2)");
    CHECK(said("K\x01\x32\x86."s) == "(1, 1)");          // DUP
    CHECK(said("K\x01K\x02\x30."s) == "1");              // POP
    CHECK(said("K\x01(K\x02K\x03\x31."s) == "1");        // POP_MARK
    CHECK(said("]q\x01h\x01\x86."s) == "([], [])");
    // A list that was stored and is filled later is the same list where it was recalled before.
    CHECK(said("]\x94(h\x00""e."s).starts_with("[[[["));
    CHECK(said("\x95\x01\x00\x00\x00\x00\x00\x00\x00N."s) == "None");
}

TEST_CASE("everything that imports, calls or builds is refused by name, and named") {
    struct Row {
        std::string bytes;
        const char* name;
    };
    const std::vector<Row> rows{
        {"cos\nsystem\n(U\x02lstR."s, "GLOBAL would import 'os.system'"},
        {"\x8c\x02os\x8c\x06system\x93."s, "STACK_GLOBAL would import 'os.system'"},
        {"(ios\nsystem\n."s, "INST would import and call 'os.system'"},
        {"(NoN."s, "OBJ would call a class"},
        {"N)R."s, "REDUCE would call a function"},
        {"NNb."s, "BUILD would change an object by code"},
        {"N)\x81."s, "NEWOBJ would call a class"},
        {"N)}\x92."s, "NEWOBJ_EX would call a class"},
        {"P1\n."s, "PERSID asks for an object from outside of the pickle"},
        {"NQ."s, "BINPERSID asks for an object from outside of the pickle"},
        {"\x82\x01."s, "EXT1 would import what a registry names"},
        {"\x83\x01\x00."s, "EXT2 would import what a registry names"},
        {"\x84\x01\x00\x00\x00."s, "EXT4 would import what a registry names"},
        {"\x97."s, "NEXT_BUFFER asks for a buffer from outside of the pickle"},
        {"\x98."s, "READONLY_BUFFER asks for a buffer from outside of the pickle"},
    };
    for (const Row& row : rows) {
        const std::string answer = said(row.bytes);
        CAPTURE(answer);
        CHECK(answer.starts_with("! at offset "));
        CHECK(answer.find(row.name) != std::string::npos);
        CHECK(answer.ends_with(": expected data only, and none of it is carried out"));
    }
}

TEST_CASE("a pickle that breaks off anywhere says where") {
    for (const std::string& sample : test::kSamples) {
        for (std::size_t bytes = 0; bytes < sample.size(); ++bytes) {
            const std::string answer = said(sample.substr(0, bytes), 64);
            CAPTURE(answer);
            REQUIRE(answer.starts_with("! at offset "));
            REQUIRE(answer.find(fmt::format("the file ends at offset {}", bytes)) != std::string::npos);
        }
    }
}

TEST_CASE("what no pickle holds is refused, whatever it claims") {
    CHECK(said("\xff."s) == "! at offset 0: the byte 0xff is no opcode of a pickle");
    CHECK(said("\x80\x06."s) == "! at offset 0: pickle protocol 6: expected 5 or an older one");
    CHECK(said("."s) == "! at offset 0: the pickle's stack is empty: expected a value on it");
    CHECK(said("Ka."s) == "97");
    CHECK(said("NK\x01""a."s) == "! at offset 3: items for None: expected a list");
    CHECK(said("](e."s) == "[]");
    CHECK(said("(e."s) == "! at offset 1: nothing to add to: expected a list before the items");
    CHECK(said("}(Nu."s) == "! at offset 3: items for a dictionary: expected the dictionary and pairs of a key and a value");
    CHECK(said("u."s) == "! at offset 0: no MARK before it: expected one");
    CHECK(said("K\x01\x86."s) == "! at offset 2: a tuple of 2 items: expected as many on the stack");
    // Values in front of a mark are nobody's until it is gone.
    CHECK(said("K\x01(."s) == "! at offset 3: the pickle's stack is empty: expected a value on it");
    CHECK(said("h\x00."s) == "! at offset 0: memo number 0: nothing was stored under it");
    CHECK(said("Nr\xff\xff\xff\xff."s) == "! at offset 1: memo number 4294967295: expected one below the opcodes read so far");
    CHECK(said(std::string(analysis::kMaxPickleDepth + 1, '(')) ==
          "! at offset 1000: containers in each other 1000 deep: expected fewer");
    // Lengths are claims: no room is made for them.
    CHECK(said("\x8d\xff\xff\xff\xff\xff\xff\xff\x7fhi"s) ==
          "! at offset 0: the file ends at offset 11, inside the pickle: expected more of it");
    CHECK(said("\x8e\xff\xff\xff\xff\xff\xff\xff\xffhi"s).starts_with("! at offset 0: the file ends"));
    CHECK(said("\x8b\xff\xff\xff\x7f\x01"s).starts_with("! at offset 0: the file ends"));
}

TEST_CASE("damage anywhere ends in a value or a sentence") {
    std::mt19937_64 random(7);
    for (int i = 0; i < 20'000; ++i) {
        std::string bytes = test::kSamples[random() % test::kSamples.size()];
        for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips)
            bytes[random() % bytes.size()] = static_cast<char>(bytes[random() % bytes.size()] ^ (1 << random() % 8));
        const std::string answer = said(bytes, 1 << 16);
        REQUIRE(!answer.empty());
    }
}

TEST_CASE("a client's value takes a dictionary's place wherever it is met again") {
    struct Numbers : analysis::PickleClient {
        std::uint64_t made = 0;
        PickleValue filled(PickleReader&, PickleValue) override { return PickleValue::made(1, made++); }
        PickleValue under(PickleReader&, PickleValue, PickleValue value) override { return value; }
    } numbers;
    // A dictionary with an item, stored under 0, in a list three times.
    const std::string bytes = "]}\x94\x8c\x01kNs\x61h\x00\x61h\x00\x61."s;
    std::size_t at = 0;
    PickleReader reader(
        [&](std::span<char> to) {
            const std::size_t more = std::min(to.size(), bytes.size() - at);
            std::copy_n(bytes.data() + at, more, to.data());
            at += more;
            return more;
        },
        numbers);
    const auto value = reader.read();
    REQUIRE(value);
    const auto items = reader.items(*value);
    REQUIRE(items.size() == 3);
    for (const PickleValue item : items) CHECK(item == PickleValue::made(1, 0));
    CHECK(numbers.made == 1);
}
