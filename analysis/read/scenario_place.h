// Members of one JSON object of a scenario, read by name. Those that nobody reads are told: the answer is one
// without them. The first problem of a line is the one that is told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/quantity.h"
#include "analysis/read/json.h"

namespace fragscope::analysis {

// The first problem of a line, and what of it was not used.
class ScenarioProblem {
  public:
    void say(std::string sentence) {
        if (sentence_.empty()) sentence_ = std::move(sentence);
    }
    bool found() const { return !sentence_.empty(); }
    const std::string& sentence() const { return sentence_; }
    void not_used(std::string member) { not_used_.push_back(std::move(member)); }
    std::vector<std::string> take_not_used() { return std::move(not_used_); }

  private:
    std::string sentence_;
    std::vector<std::string> not_used_;
};

class ScenarioObject {
  public:
    // `value` and `problem` outlive it. A value that is no object is a problem.
    ScenarioObject(const JsonValue& value, std::string place, ScenarioProblem& problem);
    // Says which members nobody read.
    ~ScenarioObject();
    ScenarioObject(const ScenarioObject&) = delete;
    ScenarioObject& operator=(const ScenarioObject&) = delete;

    bool failed() const { return problem_.found(); }
    // "column 7, events[2].bytes: expected …, and it is …".
    void complain(std::string_view name, const std::string& expected);

    // Nothing where there is no such member.
    const JsonValue* member(std::string_view name);
    void skip(std::string_view name) { member(name); }
    void skip_all() { read_.assign(read_.size(), true); }

    std::string required_text(std::string_view name);
    std::string text_or(std::string_view name);  // empty where it is not there; numbers count as text
    std::vector<std::string> texts(std::string_view name);
    bool flag(std::string_view name);
    std::uint64_t count_or(std::string_view name, std::uint64_t absent);
    std::optional<std::uint64_t> optional_count(std::string_view name);
    // Bytes. null: not known.
    Interval required_amount(std::string_view name);
    Interval amount_or(std::string_view name, const Interval& absent);
    std::optional<Interval> optional_amount(std::string_view name);
    std::vector<Interval> amounts(std::string_view name);

  private:
    std::optional<Interval> amount(const JsonValue& value, bool inside);

    const JsonValue& value_;
    std::string place_;
    ScenarioProblem& problem_;
    std::vector<bool> read_;  // by member
};

}  // namespace fragscope::analysis
