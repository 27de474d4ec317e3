// The fields of one protobuf message of a strange file, one after the other, by number: nothing is copied,
// and a message is read without its definition. Protobuf's wire format is public: a field is a number with a
// type of wire, then a number of seven bits a byte, 4 or 8 bytes, or a length and so many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fragscope::analysis {

class ProtoFields {
  public:
    enum class Wire : std::uint8_t { kNumber = 0, kEightBytes = 1, kBytes = 2, kFourBytes = 5 };

    // `offset`: where the message begins in the file, for what is said of it.
    explicit ProtoFields(std::string_view message, std::size_t offset = 0)
        : rest_(message), offset_(offset) {}

    // False: there are no more fields, or problem() says what stands where one was expected.
    bool next();
    std::uint32_t number() const { return number_; }
    Wire wire() const { return wire_; }
    std::uint64_t value() const { return value_; }  // of kNumber
    std::int64_t signed_value() const { return static_cast<std::int64_t>(value_); }
    std::string_view bytes() const { return bytes_; }  // of kBytes
    ProtoFields message() const { return ProtoFields(bytes_, content_offset_); }
    // A field that holds several numbers side by side is a message of bare numbers; false: there are no more.
    bool next_packed(std::uint64_t& value);
    // Where the field begins in the file.
    std::size_t offset() const { return field_offset_; }
    // "expected a field at offset 12, …"; empty: nothing is wrong so far.
    const std::string& problem() const { return problem_; }

  private:
    bool take_number(std::uint64_t& value);
    bool fail(const char* expected);
    void drop(std::size_t bytes);

    std::string_view rest_;
    std::size_t offset_;
    std::uint32_t number_ = 0;
    Wire wire_ = Wire::kNumber;
    std::uint64_t value_ = 0;
    std::string_view bytes_;
    std::size_t field_offset_ = 0;
    std::size_t content_offset_ = 0;
    std::string problem_;
};

}  // namespace fragscope::analysis
