#include "analysis/read/pprof_profile.h"

#include <fmt/format.h>

#include "analysis/read/proto_fields.h"

namespace fragscope::analysis {

namespace {

using Wire = ProtoFields::Wire;

// Numbers of pprof's fields, by message.
enum : std::uint32_t { kSampleType = 1, kSample = 2, kLocation = 4, kFunction = 5, kText = 6, kTime = 9 };
enum : std::uint32_t { kTypeType = 1, kTypeUnit = 2 };
enum : std::uint32_t { kSamplePlace = 1, kSampleValue = 2, kSampleLabel = 3 };
enum : std::uint32_t { kLabelKey = 1, kLabelText = 2 };
enum : std::uint32_t { kLocationId = 1, kLocationAddress = 3, kLocationLine = 4 };
enum : std::uint32_t { kLineFunction = 1, kLineLine = 2 };
enum : std::uint32_t { kFunctionId = 1, kFunctionName = 2, kFunctionFile = 4 };

// A repeated number may stand alone or packed with others.
template <typename Take>
std::string take_numbers(const ProtoFields& field, Take&& take) {
    if (field.wire() == Wire::kNumber) {
        take(field.value());
        return "";
    }
    ProtoFields packed = field.message();
    std::uint64_t value = 0;
    while (packed.next_packed(value)) take(value);
    return packed.problem();
}

}  // namespace

std::string PprofProfile::take_sample(ProtoFields fields) {
    Sample sample;
    sample.places.begin = places_.size();
    sample.values.begin = values_.size();
    sample.labels.begin = raw_labels_.size();
    while (fields.next()) {
        std::string wrong;
        if (fields.number() == kSamplePlace)
            wrong = take_numbers(fields, [&](std::uint64_t value) { places_.push_back(value); });
        if (fields.number() == kSampleValue)
            wrong = take_numbers(
                fields, [&](std::uint64_t value) { values_.push_back(static_cast<std::int64_t>(value)); });
        if (fields.number() == kSampleLabel) {
            RawLabel label;
            ProtoFields inner = fields.message();
            while (inner.next()) {
                if (inner.number() == kLabelKey) label.key = inner.value();
                if (inner.number() == kLabelText) label.text = inner.value();
            }
            raw_labels_.push_back(label);
            wrong = inner.problem();
        }
        if (!wrong.empty()) return wrong;
    }
    sample.places.count = places_.size() - sample.places.begin;
    sample.values.count = values_.size() - sample.values.begin;
    sample.labels.count = raw_labels_.size() - sample.labels.begin;
    if (sample.values.count == 0) return "it has no values, expected one for each type";
    samples_.push_back(sample);
    return fields.problem();
}

std::string PprofProfile::take_location(ProtoFields fields) {
    Location location;
    std::uint64_t id = 0;
    location.lines.begin = lines_.size();
    while (fields.next()) {
        if (fields.number() == kLocationId) id = fields.value();
        if (fields.number() == kLocationAddress) location.address = fields.value();
        if (fields.number() != kLocationLine) continue;
        RawLine line;
        ProtoFields inner = fields.message();
        while (inner.next()) {
            if (inner.number() == kLineFunction) line.function = inner.value();
            if (inner.number() == kLineLine) line.line = inner.signed_value();
        }
        if (!inner.problem().empty()) return inner.problem();
        lines_.push_back(line);
    }
    location.lines.count = lines_.size() - location.lines.begin;
    if (id == 0) return "it has no number, expected one from 1 on";
    if (!locations_.emplace(id, location).second)
        return fmt::format("it has the number {}, which another one has", id);
    return fields.problem();
}

std::string PprofProfile::take_function(ProtoFields fields) {
    Function function;
    std::uint64_t id = 0;
    while (fields.next()) {
        if (fields.number() == kFunctionId) id = fields.value();
        if (fields.number() == kFunctionName) function.name = fields.value();
        if (fields.number() == kFunctionFile) function.file = fields.value();
    }
    if (id == 0) return "it has no number, expected one from 1 on";
    if (!functions_.emplace(id, function).second)
        return fmt::format("it has the number {}, which another one has", id);
    return fields.problem();
}

std::string_view PprofProfile::text(std::uint64_t index) const {
    return index < texts_.size() ? texts_[static_cast<std::size_t>(index)] : std::string_view();
}

// Texts may stand behind all that names them.
std::string PprofProfile::resolve() {
    const auto named = [&](std::uint64_t index) { return index < texts_.size(); };
    const auto missing = [&](const char* what, std::uint64_t index) {
        return fmt::format("{} names text {}, expected one of {}", what, index, texts_.size());
    };
    for (const RawType& type : raw_types_) {
        if (!named(type.type)) return missing("a type of values", type.type);
        if (!named(type.unit)) return missing("a type of values", type.unit);
        types_.push_back({text(type.type), text(type.unit)});
    }
    for (const RawLabel& label : raw_labels_) {
        if (!named(label.key)) return missing("a label", label.key);
        if (!named(label.text)) return missing("a label", label.text);
        labels_.push_back({text(label.key), text(label.text)});
    }
    for (const auto& [id, function] : functions_) {
        if (!named(function.name)) return missing("a function", function.name);
        if (!named(function.file)) return missing("a function", function.file);
    }
    for (const RawLine& line : lines_)
        if (!functions_.contains(line.function))
            return fmt::format("a line names function {}, which is not there", line.function);
    for (const std::uint64_t place : places_)
        if (!locations_.contains(place))
            return fmt::format("a sample names place {}, which is not there", place);
    for (std::size_t i = 0; i < samples_.size(); ++i)
        if (samples_[i].values.count != types_.size())
            return fmt::format("sample {} has {} values, expected {}", i + 1, samples_[i].values.count,
                               types_.size());
    return "";
}

std::string PprofProfile::read(std::string_view bytes) {
    ProtoFields fields(bytes);
    while (fields.next()) {
        std::string wrong;
        const char* what = "";
        const bool message = fields.wire() == Wire::kBytes;
        if (fields.number() == kSampleType && message) {
            RawType type;
            ProtoFields inner = fields.message();
            while (inner.next()) {
                if (inner.number() == kTypeType) type.type = inner.value();
                if (inner.number() == kTypeUnit) type.unit = inner.value();
            }
            raw_types_.push_back(type);
            what = "type of values";
            wrong = inner.problem();
        }
        if (fields.number() == kSample && message) {
            what = "sample";
            wrong = take_sample(fields.message());
        }
        if (fields.number() == kLocation && message) {
            what = "place";
            wrong = take_location(fields.message());
        }
        if (fields.number() == kFunction && message) {
            what = "function";
            wrong = take_function(fields.message());
        }
        if (fields.number() == kText && message) texts_.push_back(fields.bytes());
        if (fields.number() == kTime && fields.wire() == Wire::kNumber) time_ns_ = fields.signed_value();
        if (!wrong.empty()) return fmt::format("the {} at offset {}: {}", what, fields.offset(), wrong);
    }
    if (!fields.problem().empty()) return fields.problem();
    if (raw_types_.empty()) return "it names no types of values, expected at least one";
    return resolve();
}

std::vector<PprofProfile::Line> PprofProfile::lines(std::uint64_t place, std::uint64_t& address) const {
    std::vector<Line> out;
    const Location& location = locations_.at(place);
    address = location.address;
    for (std::size_t i = 0; i < location.lines.count && i < kMostLines; ++i) {
        const RawLine& line = lines_[location.lines.begin + i];
        const Function& function = functions_.at(line.function);
        out.push_back({text(function.name), text(function.file), line.line});
    }
    return out;
}

bool is_pprof(std::string_view head) {
    ProtoFields fields(head);
    if (!fields.next() || fields.number() != kSampleType || fields.wire() != Wire::kBytes) return false;
    ProtoFields inner = fields.message();
    std::size_t found = 0;
    while (inner.next()) {
        if ((inner.number() != kTypeType && inner.number() != kTypeUnit) || inner.wire() != Wire::kNumber)
            return false;
        ++found;
    }
    return found != 0 && inner.problem().empty();
}

}  // namespace fragscope::analysis
