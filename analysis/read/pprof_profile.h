// A profile in pprof's format (protobuf, public: github.com/google/pprof, profile.proto): samples with
// values, a call stack and labels each. Read as a whole: about twenty times the profile's own size at the
// most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fragscope::analysis {

class PprofProfile {
  public:
    static constexpr std::size_t kMostLines = 64;  // of one place: functions that were inlined there

    struct ValueType {
        std::string_view type;
        std::string_view unit;
    };
    struct Line {
        std::string_view function;
        std::string_view file;
        std::int64_t line = 0;  // 0: not told
    };
    struct Label {
        std::string_view key;
        std::string_view text;  // empty: it is a number
    };
    // What a list of another vector a sample or place has.
    struct Part {
        std::size_t begin = 0;
        std::size_t count = 0;
    };
    struct Sample {
        Part places;  // numbers of places, the innermost first
        Part values;  // as many as there are types
        Part labels;
    };

    // The bytes must outlive it. Empty: read; else what is wrong, with the offset.
    std::string read(std::string_view bytes);

    const std::vector<ValueType>& types() const { return types_; }
    const std::vector<Sample>& samples() const { return samples_; }
    std::int64_t value(const Sample& sample, std::size_t type) const {
        return values_[sample.values.begin + type];
    }
    std::uint64_t place(const Sample& sample, std::size_t i) const {
        return places_[sample.places.begin + i];
    }
    const Label& label(const Sample& sample, std::size_t i) const { return labels_[sample.labels.begin + i]; }
    // The lines of a place, the innermost first; none: they are not told. `address`: of its instruction, 0:
    // not told.
    std::vector<Line> lines(std::uint64_t place, std::uint64_t& address) const;
    std::int64_t time_ns() const { return time_ns_; }  // since 1970; 0: not told

  private:
    struct Location {
        std::uint64_t address = 0;
        Part lines;
    };
    struct Function {
        std::uint64_t name = 0;
        std::uint64_t file = 0;
    };
    struct RawLine {
        std::uint64_t function = 0;
        std::int64_t line = 0;
    };
    struct RawLabel {
        std::uint64_t key = 0;
        std::uint64_t text = 0;
    };
    struct RawType {
        std::uint64_t type = 0;
        std::uint64_t unit = 0;
    };
    std::string take_sample(class ProtoFields fields);
    std::string take_location(class ProtoFields fields);
    std::string take_function(class ProtoFields fields);
    std::string resolve();
    std::string_view text(std::uint64_t index) const;

    std::vector<std::string_view> texts_;
    std::vector<RawType> raw_types_;
    std::vector<ValueType> types_;
    std::vector<Sample> samples_;
    std::vector<std::uint64_t> places_;
    std::vector<std::int64_t> values_;
    std::vector<RawLabel> raw_labels_;
    std::vector<Label> labels_;
    std::unordered_map<std::uint64_t, Location> locations_;
    std::vector<RawLine> lines_;
    std::unordered_map<std::uint64_t, Function> functions_;
    std::int64_t time_ns_ = 0;
};

// Whether a file that begins so can be a profile: its first field is a type of values.
bool is_pprof(std::string_view head);

}  // namespace fragscope::analysis
