#include "analysis/read/scenario_place.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "analysis/read/line_reader.h"
#include "analysis/read/scenario_reader.h"

namespace fragscope::analysis {
namespace {

using Kind = JsonValue::Kind;

constexpr char kAmount[] =
    "bytes: a whole number below 2^64, a text such as \"15.90 GiB\", null, or an object with low and high";

std::string shown(const JsonValue* value) {
    if (value == nullptr) return "it is not there";
    if (value->kind == Kind::kNumber || value->kind == Kind::kString)
        return "it is " + quoted_text(value->text);
    return fmt::format("it is {}", kind_in_words(value->kind));
}

}  // namespace

std::optional<Interval> amount_in_words(std::string_view text) {
    __extension__ using Wide = unsigned __int128;
    static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 14> kUnits = {{
        {"B", 1},
        {"kB", 1000},
        {"KB", 1000},
        {"MB", 1000'000},
        {"GB", 1000'000'000},
        {"TB", 1000'000'000'000},
        {"KiB", std::uint64_t{1} << 10},
        {"MiB", std::uint64_t{1} << 20},
        {"GiB", std::uint64_t{1} << 30},
        {"TiB", std::uint64_t{1} << 40},
        {"PiB", std::uint64_t{1} << 50},
        {"bytes", 1},
        {"byte", 1},
        {"EiB", std::uint64_t{1} << 60},
    }};
    const char* at = text.data();
    const char* const end = text.data() + text.size();
    std::uint64_t digits = 0;
    std::uint64_t scale = 1;  // 10 to the number of decimal places
    std::size_t seen = 0;
    bool point = false;
    for (; at != end && ((*at >= '0' && *at <= '9') || (*at == '.' && !point && seen != 0)); ++at) {
        if (*at == '.') {
            point = true;
            continue;
        }
        if (++seen > 18) return std::nullopt;
        digits = digits * 10 + static_cast<std::uint64_t>(*at - '0');
        if (point) scale *= 10;
    }
    if (seen == 0 || at == end || (point && scale == 1)) return std::nullopt;
    if (*at == ' ') ++at;
    const std::string_view name(at, static_cast<std::size_t>(end - at));
    for (const auto& [unit, bytes] : kUnits) {
        if (unit != name) continue;
        const Wide twice = Wide{digits} * 2;
        // Every amount that is written so when it is rounded to that place; without one it is exact.
        const Wide least = point && twice != 0 ? twice - 1 : twice;
        const Wide most = point ? twice + 1 : twice;
        const Wide divisor = Wide{scale} * 2;
        const Wide low = (least * bytes + divisor - 1) / divisor;
        const Wide high = most * bytes / divisor;
        if (high > UINT64_MAX || low > high) return std::nullopt;
        return Interval{static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high)};
    }
    return std::nullopt;
}

ScenarioObject::ScenarioObject(const JsonValue& value, std::string place, ScenarioProblem& problem)
    : value_(value), place_(std::move(place)), problem_(problem), read_(value.members.size(), false) {
    if (value.kind == Kind::kObject) return;
    problem_.say(fmt::format("column {}{}{}: expected an object, and it is {}", value.column,
                             place_.empty() ? "" : ", ", place_, kind_in_words(value.kind)));
}

ScenarioObject::~ScenarioObject() {
    for (std::size_t i = 0; i < read_.size(); ++i) {
        if (read_[i]) continue;
        const JsonMember& member = value_.members[i];
        problem_.not_used(fmt::format("{}{}{} (column {})", place_, place_.empty() ? "" : ".",
                                      quoted_text(member.name), member.value.column));
    }
}

void ScenarioObject::complain(std::string_view name, const std::string& expected) {
    const JsonValue* value = value_.find(name);
    problem_.say(fmt::format("column {}, {}{}{}: expected {}; {}",
                             value == nullptr ? value_.column : value->column, place_,
                             place_.empty() ? "" : ".", name, expected, shown(value)));
}

const JsonValue* ScenarioObject::member(std::string_view name) {
    for (std::size_t i = 0; i < value_.members.size(); ++i) {
        if (value_.members[i].name != name) continue;
        read_[i] = true;
        return &value_.members[i].value;
    }
    return nullptr;
}

std::string ScenarioObject::required_text(std::string_view name) {
    std::string out = text_or(name);
    if (out.empty()) complain(name, "a text");
    return out;
}

std::string ScenarioObject::text_or(std::string_view name) {
    const JsonValue* value = member(name);
    if (value == nullptr || value->kind == Kind::kNull) return "";
    if (value->kind == Kind::kString || value->kind == Kind::kNumber) return value->text;
    complain(name, "a text");
    return "";
}

std::vector<std::string> ScenarioObject::texts(std::string_view name) {
    std::vector<std::string> out;
    const JsonValue* value = member(name);
    if (value == nullptr) return out;
    for (const JsonValue& item : value->items) {
        if (item.kind == Kind::kString) out.push_back(item.text);
    }
    if (value->kind != Kind::kArray || out.size() != value->items.size()) complain(name, "a list of texts");
    return out;
}

bool ScenarioObject::flag(std::string_view name) {
    const JsonValue* value = member(name);
    if (value == nullptr) return false;
    if (value->kind != Kind::kTrue && value->kind != Kind::kFalse) complain(name, "true or false");
    return value->kind == Kind::kTrue;
}

std::optional<std::uint64_t> ScenarioObject::optional_count(std::string_view name) {
    const JsonValue* value = member(name);
    if (value == nullptr || value->kind == Kind::kNull) return std::nullopt;
    const std::optional<std::uint64_t> number = whole_number(*value);
    if (!number) complain(name, "a whole number below 2^64");
    return number;
}

std::uint64_t ScenarioObject::count_or(std::string_view name, std::uint64_t absent) {
    return optional_count(name).value_or(absent);
}

std::optional<Interval> ScenarioObject::amount(const JsonValue& value, bool inside) {
    if (value.kind == Kind::kNull) return Interval{};
    if (value.kind == Kind::kNumber) {
        const std::optional<std::uint64_t> number = whole_number(value);
        return number ? std::optional(Interval::exactly(*number)) : std::nullopt;
    }
    if (value.kind == Kind::kString) return amount_in_words(value.text);
    if (value.kind != Kind::kObject || inside) return std::nullopt;
    Interval out;
    for (const JsonMember& member : value.members) {
        const std::optional<Interval> end = amount(member.value, true);
        if (!end || (member.name != "low" && member.name != "high")) return std::nullopt;
        // An end that is itself rounded: as wide as it may be.
        (member.name == "low" ? out.low : out.high) = member.name == "low" ? end->low : end->high;
    }
    if (out.low && out.high && *out.low > *out.high) return std::nullopt;
    return out;
}

Interval ScenarioObject::required_amount(std::string_view name) {
    const std::optional<Interval> out = optional_amount(name);
    if (!out) complain(name, kAmount);
    return out.value_or(Interval{});
}

std::optional<Interval> ScenarioObject::optional_amount(std::string_view name) {
    const JsonValue* value = member(name);
    if (value == nullptr) return std::nullopt;
    std::optional<Interval> out = amount(*value, false);
    if (!out) complain(name, kAmount);
    if (out && !out->low) out->low = 0;
    return out;
}

Interval ScenarioObject::amount_or(std::string_view name, const Interval& absent) {
    return optional_amount(name).value_or(absent);
}

std::vector<Interval> ScenarioObject::amounts(std::string_view name) {
    std::vector<Interval> out;
    const JsonValue* value = member(name);
    if (value == nullptr || value->kind != Kind::kArray) {
        complain(name, "a list of amounts");
        return out;
    }
    for (const JsonValue& item : value->items) {
        const std::optional<Interval> each = amount(item, false);
        if (!each) {
            complain(name, fmt::format("a list of {}", kAmount));
            return out;
        }
        out.push_back({each->low.value_or(0), each->high});
    }
    return out;
}

}  // namespace fragscope::analysis
