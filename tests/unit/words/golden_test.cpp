// Whole pages from hand-built messages, compared with the texts beside them. Run with
// FRAGSCOPE_UPDATE_GOLDENS=1 to write them anew, and read the difference before keeping it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "proto/state.pb.h"
#include "tests/unit/words/unqualified.h"
#include "tools/words_explain.h"
#include "tools/words_json.h"
#include "tools/words_report.h"
#include "tools/words_state.h"

using namespace fragscope;
using namespace fragscope::tools;

namespace {

const std::string kFolder = FRAGSCOPE_WORDS_FOLDER;

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

template <typename Message>
Message message_in(const std::string& name) {
    const std::string text = content_of(kFolder + "/" + name + ".textproto");
    Message message;
    REQUIRE_MESSAGE(google::protobuf::TextFormat::ParseFromString(text, &message), name);
    return message;
}

enum class Answer { kExplain, kReport, kState };

struct Case {
    std::string name;
    Answer answer;
};

const std::vector<Case> kCases = {
    {"internal", Answer::kExplain}, {"straddle", Answer::kExplain}, {"none", Answer::kExplain},
    {"empty", Answer::kExplain},    {"asked", Answer::kExplain},    {"empty", Answer::kReport},
    {"run", Answer::kReport},       {"empty", Answer::kState},      {"train", Answer::kState},
    {"domain", Answer::kState},     {"fragmented", Answer::kExplain}, {"curves", Answer::kReport},
    {"profile", Answer::kReport}};

const char* name_of(Answer answer) {
    return answer == Answer::kReport ? "report" : answer == Answer::kState ? "state" : "explain";
}

std::string rendered(const Case& one, const Style& style) {
    switch (one.answer) {
        case Answer::kReport:
            return render_report(message_in<report::Report>(one.name), style);
        case Answer::kState:
            return render_state(message_in<report::State>(one.name), style);
        default:
            return render_explanation(message_in<report::Explanation>(one.name), style);
    }
}

std::optional<std::string> json_of(const Case& one) {
    switch (one.answer) {
        case Answer::kReport:
            return json_line(message_in<report::Report>(one.name));
        case Answer::kState:
            return json_line(message_in<report::State>(one.name));
        default:
            return json_line(message_in<report::Explanation>(one.name));
    }
}

std::vector<const char*> keys_of(Answer answer) {
    switch (answer) {
        case Answer::kReport:
            return {"\"trace\"", "\"health\"", "\"failures\""};
        case Answer::kState:
            return {"\"trace\"", "\"health\"", "\"framework\""};
        default:
            return {"\"id\"", "\"health\"", "\"actions\""};
    }
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

}  // namespace

TEST_CASE("pages are as they were read and approved") {
    const bool update = std::getenv("FRAGSCOPE_UPDATE_GOLDENS") != nullptr;
    for (const Case& one : kCases) {
        for (const Style& style : {Style{80, false, false}, Style{110, true, false}}) {
            const std::string path =
                fmt::format("{}/golden/{}_{}_{}.txt", kFolder, name_of(one.answer), one.name, style.width);
            const std::string text = rendered(one, style);
            if (update) std::ofstream(path, std::ios::binary) << text;
            INFO(path);
            CHECK(text == content_of(path));
        }
    }
}

TEST_CASE(
    "every page: within its width, no bare 'free', no control characters, no text lost to a narrow page") {
    for (const Case& one : kCases) {
        for (const int width : {40, 60, 80, 110}) {
            for (const std::string& line : lines_of(rendered(one, Style{width, false, false}))) {
                INFO(one.name << " at " << width << ": " << line);
                CHECK(display_width(line) <= static_cast<std::size_t>(width));
                CHECK(unqualified_free(line).empty());
                CHECK(
                    line.find_first_not_of(
                        " !\"#$%&'()*+,-./"
                        "0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~") ==
                    std::string::npos);
            }
        }
    }
}

TEST_CASE("the reader learns first what is missing and why it failed") {
    const std::string text = rendered({"straddle", Answer::kExplain}, Style{80, false, false});
    const std::size_t missing = text.find("1,204 records were lost");
    const std::size_t verdict = text.find("Why it failed: undetermined");
    const std::size_t request = text.find("The request\n");
    REQUIRE(missing != std::string::npos);
    REQUIRE(verdict != std::string::npos);
    REQUIRE(request != std::string::npos);
    CHECK(missing < verdict);
    CHECK(verdict < request);
}

TEST_CASE("every page has its JSON line") {
    for (const Case& one : kCases) {
        const auto line = json_of(one);
        REQUIRE(line.has_value());
        CHECK(line->find('\n') == std::string::npos);
        CHECK(unqualified_free(*line) == "");
        for (const char* key : keys_of(one.answer)) {
            INFO(one.name << " " << key);
            CHECK(line->find(key) != std::string::npos);
        }
    }
}

TEST_CASE("a page finds a bare 'free' when there is one") {
    CHECK(unqualified_free("2 GiB free") != "");
    CHECK(unqualified_free("Free: 2 GiB") != "");
    CHECK(unqualified_free("cuMemFree, freed, device-free memory, eligible free memory").empty());
}
