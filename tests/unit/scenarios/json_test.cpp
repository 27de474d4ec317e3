// The JSON reader: what RFC 8259 allows, exactly; everything else with the place.
#include "analysis/read/json.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

using namespace fragscope::analysis;
using Kind = JsonValue::Kind;

namespace {

JsonValue value_of(const std::string& text) {
    const JsonText read = read_json(text);
    REQUIRE_MESSAGE(read.value, text << ": " << read.problem);
    return *read.value;
}

std::size_t problem_at(const std::string& text) {
    const JsonText read = read_json(text);
    CHECK_FALSE(read.value);
    CHECK_FALSE(read.problem.empty());
    return read.column;
}

}  // namespace

TEST_CASE("values of every kind") {
    const JsonValue value = value_of(R"( {"a": [1, -2.5e+3, true, false, null], "b": {"c": "x"}} )");
    CHECK(value.kind == Kind::kObject);
    REQUIRE(value.find("a") != nullptr);
    const JsonValue& list = *value.find("a");
    REQUIRE(list.items.size() == 5);
    CHECK(list.items[0].text == "1");
    CHECK(list.items[1].text == "-2.5e+3");
    CHECK(list.items[2].kind == Kind::kTrue);
    CHECK(list.items[3].kind == Kind::kFalse);
    CHECK(list.items[4].kind == Kind::kNull);
    CHECK(value.find("b")->find("c")->text == "x");
    CHECK(value.find("d") == nullptr);
    CHECK(value.column == 2);
    CHECK(list.items[1].column == 12);
    CHECK(value_of("{}").members.empty());
    CHECK(value_of("[]").items.empty());
}

TEST_CASE("integers up to 2^64 - 1 are exact; what is none has no whole number") {
    CHECK(whole_number(value_of("18446744073709551615")) == UINT64_MAX);
    CHECK(whole_number(value_of("9007199254740993")) == 9007199254740993U);  // 2^53 + 1
    CHECK(whole_number(value_of("0")) == 0);
    CHECK_FALSE(whole_number(value_of("18446744073709551616")));
    CHECK_FALSE(whole_number(value_of("-1")));
    CHECK_FALSE(whole_number(value_of("1.0")));
    CHECK_FALSE(whole_number(value_of("1e3")));
    CHECK_FALSE(whole_number(value_of("\"1\"")));
}

TEST_CASE("strings: escapes, characters beyond the first plane") {
    CHECK(value_of(R"("\"\\\/\b\f\n\r\t")").text == "\"\\/\b\f\n\r\t");
    CHECK(value_of(R"("\u0041\u00e9\u20ac\ud83d\ude00")").text == "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    CHECK(problem_at(R"("\ud83d")") == 8);
    CHECK(problem_at(R"("\ude00")") == 8);
    CHECK(problem_at(R"("\ud83dA")") == 8);
    CHECK(problem_at(R"("\x")") == 3);
    CHECK(problem_at(R"("\u12")") == 4);
    CHECK(problem_at("\"a\nb\"") == 3);
    CHECK(problem_at("\"abc") == 5);
    CHECK(problem_at("\"\xFF\"") != 0);
    CHECK(problem_at("\"\xC0\xAF\"") != 0);          // an overlong form
    CHECK(problem_at("\"\xED\xA0\x80\"") != 0);      // half of a character
    CHECK(problem_at("\"\xF4\x90\x80\x80\"") != 0);  // beyond the last
    CHECK(value_of("\"\xF4\x8F\xBF\xBF\"").text == "\xF4\x8F\xBF\xBF");
}

TEST_CASE("what is no JSON says where") {
    CHECK(problem_at("") == 1);
    CHECK(problem_at("{") == 2);
    CHECK(problem_at("{\"a\" 1}") == 6);
    CHECK(problem_at("{\"a\": 1,}") == 9);
    CHECK(problem_at("{\"a\": 1 \"b\": 2}") == 9);
    CHECK(problem_at("[1 2]") == 4);
    CHECK(problem_at("[1,]") == 4);
    CHECK(problem_at("{} x") == 4);
    CHECK(problem_at("01") == 2);
    CHECK(problem_at("1.") == 3);
    CHECK(problem_at("1e") == 3);
    CHECK(problem_at("-") == 1);
    CHECK(problem_at("+1") == 1);
    CHECK(problem_at("nul") == 1);
    CHECK(problem_at("NaN") == 1);
    CHECK(problem_at("{\"a\": 1, \"a\": 2}") == 10);
    CHECK(problem_at("{a: 1}") == 2);
    CHECK(problem_at("// x") == 1);
}

TEST_CASE("depth, members and values are bounded") {
    const std::string deep = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
    CHECK(value_of(deep).kind == Kind::kArray);
    CHECK(problem_at("[" + deep + "]") == kMaxJsonDepth + 1);
    CHECK(problem_at(std::string(1000000, '[')) == kMaxJsonDepth + 1);
    std::string many = "[0";
    for (std::size_t i = 2; i < kMaxJsonValues; ++i) many += ",0";
    CHECK(value_of(many + "]").items.size() == kMaxJsonValues - 1);
    CHECK(problem_at(many + ",0]") == many.size() + 2);
    std::string members = "{\"0\":0";
    for (int i = 1; i < 64; ++i) members += ",\"" + std::to_string(i) + "\":0";
    CHECK(value_of(members + "}").members.size() == 64);
    CHECK(problem_at(members + ",\"x\":0}") == members.size() + 2);
}

TEST_CASE("any change of any byte is read, or refused with a place inside of the text") {
    const std::string text =
        R"({"id": "a", "list": [1, 2.5, null, {"low": 18446744073709551615}], "t": "\u00e9\n"})";
    std::mt19937 random(7);
    for (int i = 0; i < 20000; ++i) {
        std::string changed = text;
        const std::size_t at = random() % changed.size();
        switch (random() % 3) {
            case 0:
                changed[at] = static_cast<char>(random() % 256);
                break;
            case 1:
                changed.erase(at, random() % 4 + 1);
                break;
            default:
                changed.insert(at, 1, static_cast<char>(random() % 256));
        }
        const JsonText read = read_json(changed);
        if (read.value) continue;
        CHECK_FALSE(read.problem.empty());
        CHECK(read.column >= 1);
        CHECK(read.column <= changed.size() + 1);
    }
}
